"""What a plan says of an update: in the recipe's words, and as a diff of the requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_hub_pair
from standin import StandIn
from typer.testing import CliRunner

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import app
from toolkit.planning.plan import Action, Plan

FROM_HUB = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
COMPONENT = FROM_HUB.replace("role: create", "role: create, inference_component: {}")
CONTAINER = "ProductionVariants.AllTraffic.Model.PrimaryContainer"
K = f"{CONTAINER}.Environment.SM_VLLM_SPECULATIVE_CONFIG.num_speculative_tokens"
K_CHANGE = {"path": K, "from": 7, "to": 4}


@pytest.fixture(autouse=True)
def environment(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)


def updated(root: Path, text: str, *edits: tuple[str, str]) -> Path:
    """A recipe that is in service, and was edited."""
    recipe = write_hub_pair(root, text)
    toolkit.deploy(recipe, progress=Silent())
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    recipe.write_text(text)
    return recipe


def of_kind(recipe: Path, kind: str) -> Action:
    (found,) = [action for action in toolkit.plan(recipe).actions if action.kind == kind]
    return found


def test_one_edit_is_told_in_the_recipes_words(standin: StandIn, tmp_path: Path) -> None:
    recipe = updated(tmp_path, FROM_HUB, ("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    action = of_kind(recipe, "Endpoint")
    assert action.verb == "update"
    assert action.reason.startswith(
        "num_speculative_tokens 7 -> 4; starts new containers, about 15 min, while the old ones serve; runs hub-"
    )
    assert list(action.changes) == [K_CHANGE]
    toolkit.deploy(recipe, progress=Silent())
    assert of_kind(recipe, "Endpoint").changes == ()


def test_the_next_plan_knows_how_long_the_last_start_took(standin: StandIn, tmp_path: Path) -> None:
    assert not any("as at its last start" in note for note in toolkit.plan(write_hub_pair(tmp_path, FROM_HUB)).notes)
    recipe = updated(tmp_path, FROM_HUB, ("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    assert any("as at its last start" in note for note in toolkit.plan(recipe).notes)
    toolkit.deploy(recipe, progress=Silent())
    assert not any("Its containers answer" in note for note in toolkit.plan(recipe).notes)


def test_many_edits_are_counted_and_all_of_them_are_in_the_diff(standin: StandIn, tmp_path: Path) -> None:
    recipe = updated(
        tmp_path,
        FROM_HUB,
        ("num_speculative_tokens: 7", "num_speculative_tokens: 4"),
        ("max_model_len: 1024", "max_model_len: 512"),
        ("ml.g6.xlarge", "ml.g6e.xlarge"),
        ("health_check_timeout: 600", "health_check_timeout: 900"),
    )
    action = of_kind(recipe, "Endpoint")
    told = action.reason.partition(";")[0]
    assert told.endswith("and 1 more")
    changes = {change["path"].rpartition(".")[2]: (change["from"], change["to"]) for change in action.changes}
    assert changes == {
        "num_speculative_tokens": (7, 4),
        "SM_VLLM_MAX_MODEL_LEN": ("1024", "512"),
        "InstanceType": ("ml.g6.xlarge", "ml.g6e.xlarge"),
        "ContainerStartupHealthCheckTimeoutInSeconds": (600, 900),
    }
    words = {"num_speculative_tokens 7 -> 4", "max_model_len 1024 -> 512", "health_check_timeout 600 -> 900"}
    assert words | {"instance_types ml.g6.xlarge -> ml.g6e.xlarge"} >= set(
        told.removesuffix(", and 1 more").split(", ")
    )


def test_a_variable_that_comes_and_a_model_that_changes(standin: StandIn, tmp_path: Path) -> None:
    recipe = updated(tmp_path, FROM_HUB, ("  version: 0.30.0\n", "  version: 0.30.0\n  env: {LOG: debug}\n"))
    assert list(of_kind(recipe, "Endpoint").changes) == [
        {"path": f"{CONTAINER}.Environment.LOG", "from": None, "to": "debug"}
    ]
    assert of_kind(recipe, "Endpoint").reason.startswith("LOG nothing -> debug; ")


def test_a_component(standin: StandIn, tmp_path: Path) -> None:
    recipe = updated(tmp_path, COMPONENT, ("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    action = of_kind(recipe, "InferenceComponent")
    assert action.reason.startswith("num_speculative_tokens 7 -> 4; restarts its copies; runs hub-")
    path = "Specification.Model.PrimaryContainer.Environment.SM_VLLM_SPECULATIVE_CONFIG.num_speculative_tokens"
    assert list(action.changes) == [{**K_CHANGE, "path": path}]


def test_an_alarm_that_somebody_has_changed(standin: StandIn, tmp_path: Path) -> None:
    recipe = updated(tmp_path, FROM_HUB)
    cloudwatch: Any = standin.session().client("cloudwatch")
    (alarm,) = cloudwatch.describe_alarms(AlarmNames=["toolkit-hub-first-token"])["MetricAlarms"]
    keys = ("AlarmName", "AlarmDescription", "ActionsEnabled", "Namespace", "MetricName", "Dimensions",
            "ExtendedStatistic", "Period", "EvaluationPeriods", "DatapointsToAlarm", "ComparisonOperator",
            "TreatMissingData")  # fmt: skip
    cloudwatch.put_metric_alarm(**{key: alarm[key] for key in keys}, Threshold=5.0)
    (action,) = toolkit.plan(recipe).changes
    assert (action.kind, action.reason) == ("Alarm", "Threshold 5.0 -> 10000000.0; has changed")
    assert list(action.changes) == [{"path": "Threshold", "from": 5.0, "to": 10000000.0}]


def test_the_table_the_diff_and_the_document(standin: StandIn, tmp_path: Path) -> None:
    recipe = updated(tmp_path, FROM_HUB, ("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    plain = CliRunner().invoke(app, ["plan", str(recipe)]).stdout
    assert "num_speculative_tokens 7 -> 4" in plain
    assert K not in plain
    assert (
        f"update Endpoint hub:\n  {K}: 7 -> 4\n" in CliRunner().invoke(app, ["plan", str(recipe), "--verbose"]).stdout
    )
    document = json.loads(CliRunner().invoke(app, ["plan", str(recipe), "--json"]).stdout)
    assert [item["changes"] for item in document["actions"] if item["kind"] == "Endpoint"] == [[K_CHANGE]]

    toolkit.plan(recipe).save(tmp_path / "plan.json")
    saved = json.dumps(Plan.read(tmp_path / "plan.json").to_dict()["actions"])
    assert json.loads(saved) == document["actions"]
