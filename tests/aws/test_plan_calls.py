"""The API calls in a plan: of the shapes that botocore has, and those that the genuine client sends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from pairs import HUB_RECIPE, write_hub_pair, write_pair, write_recipe
from standin import Call, StandIn
from standin_refusals import broken_by

import toolkit
from toolkit.apply.progress import Silent
from toolkit.planning.plan import Plan
from toolkit.platforms.local.validation import problems
from toolkit.platforms.sagemaker.kinds.scaling import ANSWERED_ARN
from toolkit.platforms.sagemaker.rules.names import LEASES_PREFIX
from toolkit.recipe.known import catalogue

FROM_HUB = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
SCALED = FROM_HUB + "scaling: {min_instances: 1, max_instances: 3}\n"
FROM_ZERO = FROM_HUB.replace("role: create", "role: create, inference_component: {endpoint: shared}") + (
    "scaling: {min_instances: 0, max_instances: 2}\n"
)
STAGED = HUB_RECIPE.replace("platform: {", "platform: {role: create, ").replace("org/", "./")
# Kinds that are made by copying or building, of which no call is known before.
COPIED = {"Weights", "Image", "Artifacts"}
# Without AWS, or a head that is trained first, there is no plan of these.
NOT_PLANNED_ALONE = {"gemma-4-31b-it/p-eagle", "qwen3-8b/train-p-eagle", "tiny/train-p-eagle"}
READS = ("Get", "List", "Describe", "Head", "BatchGet")

Calls = Sequence[Mapping[str, Any]]


@pytest.fixture
def environment(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    standin.account.iam.late = 0.0  # so that nothing is refused and sent again


def planned(plan: Plan) -> list[Mapping[str, Any]]:
    """All calls of a plan as its JSON document has them, without what is only sent over TLS."""
    document = json.loads(json.dumps(plan.to_dict()))
    calls = [call for action in document["actions"] for call in action["calls"]]
    return [call for call in calls if call["operation"] != "PutBucketPolicy"]


def sent(standin: StandIn, plan: Plan) -> list[Mapping[str, Any]]:
    """All calls that changed something, but for locks and files."""
    return sorted_calls(list(_sent(standin, plan)))


def _sent(standin: StandIn, plan: Plan) -> Iterator[Mapping[str, Any]]:
    for call in standin.calls:
        if not call.operation.startswith(READS) and not _is_lock_or_file(call):
            added = ("Checksum", "Content", "Metadata") if call.service == "s3" else ()  # by the client itself
            request = {key: value for key, value in call.request.items() if not key.startswith(added)}
            if request.get("AlarmName", "").endswith("-from-zero"):
                request["AlarmActions"] = [ANSWERED_ARN for _ in request["AlarmActions"]]
            yield {"service": call.service, "operation": call.operation, "request": request}


def _is_lock_or_file(call: Call) -> bool:
    return call.service == "s3" and call.request.get("Key", "").startswith((LEASES_PREFIX, "weights/", "staged/"))


def sorted_calls(calls: Calls) -> list[Mapping[str, Any]]:
    return sorted(calls, key=lambda call: json.dumps(call, sort_keys=True))


@pytest.mark.parametrize("text", [FROM_HUB, SCALED, FROM_ZERO, STAGED], ids=["plain", "scaled", "from zero", "staged"])
def test_what_a_plan_says_is_what_is_sent(standin: StandIn, environment: None, tmp_path: Path, text: str) -> None:
    recipe = write_recipe(write_pair(tmp_path).parent, text) if text == STAGED else write_hub_pair(tmp_path, text)
    for change in ("", "num_speculative_tokens: 4", "max_num_batched_tokens: 8192"):
        key = change.partition(":")[0]
        lines = recipe.read_text().splitlines()
        recipe.write_text("\n".join(f"  {change}" if key and f"{key}:" in line else line for line in lines) + "\n")
        plan = toolkit.plan(recipe)
        standin.calls.clear()
        toolkit.deploy(recipe, progress=Silent())
        assert sent(standin, plan) == sorted_calls(planned(plan))
    standin.calls.clear()
    removed = toolkit.destroy(recipe, progress=Silent())
    by_kind = [call for call in planned(removed) if call["operation"] != "DeleteObject"]
    deletions = [call for call in sent(standin, removed) if not call["operation"].startswith("DeleteObject")]
    assert deletions == sorted_calls(by_kind)


def test_a_log_group_that_sagemaker_made(standin: StandIn, environment: None, tmp_path: Path) -> None:
    logs: Any = standin.session().client("logs")
    logs.create_log_group(logGroupName="/aws/sagemaker/Endpoints/hub")
    plan = toolkit.plan(write_hub_pair(tmp_path, FROM_HUB))
    (group,) = [action for action in plan.actions if action.kind == "LogGroup"]
    assert [call["operation"] for call in group.calls] == ["TagResource", "PutRetentionPolicy"]
    standin.calls.clear()
    toolkit.deploy(tmp_path / "recipe.yaml", progress=Silent())
    assert sent(standin, plan) == sorted_calls(planned(plan))


@pytest.mark.parametrize("name", sorted(set(catalogue()) - NOT_PLANNED_ALONE))
def test_each_call_of_a_shipped_recipe_has_botocores_shape_and_breaks_no_rule(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    plan = toolkit.plan(name)
    if plan.platform not in ("sagemaker", "local"):
        return
    assert all(bool(action.calls) != (action.kind in COPIED) for action in plan.changes)
    loader = botocore.session.Session()
    for call in planned(plan):
        operation = loader.get_service_model(call["service"]).operation_model(call["operation"])
        assert operation.input_shape
        assert list(problems(call["request"], operation.input_shape)) == []
        assert broken_by(f"{call['service']}:{call['operation']}", call["request"]) == []
