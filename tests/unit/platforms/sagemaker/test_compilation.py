"""A recipe as the training jobs that compile for it: requests to the letter, held against SageMaker's own model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aws_kinds import KINDS, desired
from fakes import ACCOUNT
from pairs import of_engine, recipe_with, write_recipe

from toolkit.api.checking import check
from toolkit.api.jobs import compilation_of
from toolkit.catalog.trainium import TRAINING_FAMILIES
from toolkit.errors import NotCompiled, UsageError
from toolkit.loading import load, on_platform
from toolkit.planning.artifacts import require_compiles_ahead
from toolkit.planning.plan import Action
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.local.validation import problems
from toolkit.platforms.sagemaker.rules import RULES, compilation
from toolkit.platforms.sagemaker.rules.compilation import LONGEST_VALUE, compile_resources
from toolkit.recipe.recipe import Recipe

RECIPE = """\
name: qwen
target: {model: org/target}
speculation: {method: draft-model, model: org/drafter, num_speculative_tokens: 7}
engine: {name: neuron, max_model_len: 1024, max_num_seqs: 4, args: {tensor-parallel-size: 32}}
platform:
  name: sagemaker
  role: create
  instance_types: [ml.trn2.48xlarge]
  health_check_timeout: 900
  capacity_reservation: arn:aws:sagemaker:us-west-2:123456789012:training-plan/mine
"""
SAGEMAKER = botocore.session.get_session().get_service_model("sagemaker")
WATCHING = ("LogGroup", "MetricFilter", "Alarm", "Dashboard", "Image", "Repository")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return replace(load(write_recipe(tmp_path, RECIPE)), weight_bytes=69_000_000_000)


def shown(resources: Sequence[Resource]) -> Any:
    """Without what other tests are about, and without the digests of container and recipe."""
    found = [{"kind": item.kind, "name": item.name, "request": item.request} for item in resources]
    text = json.dumps([item for item in found if item["kind"] not in WATCHING])
    digests = r'(?<=toolkit/qwen:)\w{16}|(?<=qwen-)[0-9a-f]{8}(?=")|(?<="Value": ")[0-9a-f]{12}(?=")'
    return json.loads(re.sub(digests, "<digest>", text))


def jobs(*recipes: Recipe) -> list[Any]:
    return [item.request for item in compile_resources(recipes, ACCOUNT) if item.kind == "TrainingJob"]


def violations(request: Any) -> list[str]:
    shape = SAGEMAKER.operation_model("CreateTrainingJob").input_shape
    assert shape
    return list(problems(request, shape))


def test_every_request_of_compiling_a_pair(recipe: Recipe, golden: Callable[[str, object], None]) -> None:
    golden("compile-trn2", shown(compile_resources([recipe], ACCOUNT)))


def test_every_request_of_serving_it(recipe: Recipe, golden: Callable[[str, object], None]) -> None:
    golden("desired-trn2", shown(desired([recipe], ACCOUNT)))


def test_resources_stand_in_the_order_in_which_they_are_made(recipe: Recipe) -> None:
    kinds = [item.kind for item in compile_resources([recipe, recipe.baseline()], ACCOUNT)]
    assert kinds == sorted(kinds, key=KINDS.index)


@pytest.mark.parametrize(
    "edit",
    [
        "",
        "network: {isolation: true, subnets: [subnet-1], security_groups: [sg-1]}\n",
        "tags: {team: x}\n",
        "engine: {name: vllm-neuron, version: 0.29.0.1.2.0, max_model_len: 512}\n",
    ],
)
def test_sagemaker_takes_the_request(tmp_path: Path, edit: str) -> None:
    text = RECIPE if not edit.startswith("engine") else re.sub("engine: .*\n", "", RECIPE)
    (request,) = jobs(load(write_recipe(tmp_path, text + edit)))
    assert violations(request) == []


def test_the_longest_name_fits_and_so_does_its_last_attempt(recipe: Recipe) -> None:
    (request,) = jobs(replace(recipe, name="a" * 44).baseline())
    assert violations({**request, "TrainingJobName": f"{request['TrainingJobName']}-99"}) == []
    role = next(item for item in compile_resources([replace(recipe, name="a" * 44)], ACCOUNT) if item.kind == "Role")
    assert len(role.name) <= 64


def test_the_families_that_have_training_jobs_are_sagemakers() -> None:
    types = [name for name in SAGEMAKER.shape_for("TrainingInstanceType").enum if re.match(r"ml\.(trn|inf)", name)]
    assert {name.split(".")[1] for name in types} == set(TRAINING_FAMILIES)


def test_the_longest_value_is_sagemakers() -> None:
    assert SAGEMAKER.shape_for("TrainingEnvironmentValue").metadata["max"] == LONGEST_VALUE


def test_the_program_finds_its_models_in_the_jobs_channels(recipe: Recipe) -> None:
    (request,) = jobs(recipe)
    channels = [channel["ChannelName"] for channel in request["InputDataConfig"]]
    environment = request["Environment"]
    assert channels == ["target", "drafter"]
    assert environment["SM_VLLM_MODEL"] == "/opt/ml/input/data/target"
    assert json.loads(environment["SM_VLLM_SPECULATIVE_CONFIG"])["model"] == "/opt/ml/input/data/drafter"


def test_a_container_that_fetches_its_models_has_no_channels(recipe: Recipe) -> None:
    (request,) = jobs(recipe_with(recipe, weights="hub"))
    assert "InputDataConfig" not in request
    assert request["Environment"]["SM_VLLM_MODEL"] == "org/target"


def test_a_flag_that_is_too_long_for_a_job_travels_as_a_file(recipe: Recipe) -> None:
    buckets = {"override_neuron_config": {"token_generation_buckets": list(range(200))}}
    long = replace(recipe, engine=recipe.engine.edit(args={"additional-config": buckets}))
    (request,) = jobs(long)
    assert request["Environment"]["SM_VLLM_CONFIG"] == "/opt/ml/input/data/config/engine.yaml"
    assert "config" in [channel["ChannelName"] for channel in request["InputDataConfig"]]
    assert violations(request) == []


def test_a_variable_that_is_too_long_for_a_job_is_refused(recipe: Recipe) -> None:
    long = replace(recipe, engine=recipe.engine.edit(env={"NEURON_CC_FLAGS": "-O1 " * 200}))
    with pytest.raises(UsageError, match="NEURON_CC_FLAGS has 800 characters"):
        jobs(long)


def test_a_recipe_and_its_baseline_share_image_target_and_role(recipe: Recipe) -> None:
    found = compile_resources([recipe, recipe.baseline()], ACCOUNT)
    numbers = {kind: sum(item.kind == kind for item in found) for kind in ("Image", "Role", "Weights", "TrainingJob")}
    assert numbers == {"Image": 1, "Role": 1, "Weights": 2, "TrainingJob": 2}


def test_each_family_is_compiled_for(recipe: Recipe) -> None:
    found = jobs(recipe_with(recipe, instance_types=("ml.trn2.48xlarge", "ml.trn1.32xlarge")))
    assert [job["ResourceConfig"]["InstanceType"] for job in found] == ["ml.trn2.48xlarge", "ml.trn1.32xlarge"]


def test_an_endpoint_of_two_families_may_read_the_code_of_both(recipe: Recipe) -> None:
    both = desired([recipe_with(recipe, instance_types=("ml.trn2.48xlarge", "ml.trn1.32xlarge"))], ACCOUNT)
    prefixes = [item.request["Prefix"] for item in both if item.kind == "Artifacts"]
    document = next(item.request["PolicyDocument"] for item in both if item.kind == "RolePolicy")
    assert [prefix in document for prefix in prefixes] == [True, True]


def job(recipe: Recipe) -> Resource:
    return next(item for item in compile_resources([recipe], ACCOUNT) if item.kind == "TrainingJob")


def known(job: Resource, complete: bool = False, jobs: Sequence[Any] = (), nearest: Any = None) -> Existing:
    return Existing("TrainingJob", job.name, True, (), {"Complete": complete, "Jobs": list(jobs), "Nearest": nearest})


def decision(job: Resource, *existing: Existing) -> Action:
    """The plan's action for a job, beside what exists."""
    (action,) = make_plan("qwen.yaml", RULES, ["qwen"], [job], Observed(existing)).actions
    return action


def test_a_job_says_how_long_it_may_take(recipe: Recipe) -> None:
    action = decision(job(recipe))
    assert (action.verb, action.expected_seconds) == ("create", 69 * 60)


def test_a_name_is_never_used_twice(recipe: Recipe) -> None:
    wanted = job(recipe)
    before = [[f"{wanted.name}-2", "Stopped", "MaxRuntimeExceeded"], [wanted.name, "Failed", "no room"]]
    action = decision(wanted, known(wanted, jobs=before))
    assert (action.name, action.verb) == (f"{wanted.name}-3", "create")
    assert action.request["TrainingJobName"] == action.name
    assert action.reason == f"does not exist: {wanted.name}-2 stopped: MaxRuntimeExceeded"


def test_what_is_compiled_without_a_job_that_we_know_needs_none(recipe: Recipe) -> None:
    wanted = job(recipe)
    assert decision(wanted, known(wanted, complete=True)).verb == "reuse"


def test_what_was_compiled_and_removed_is_compiled_again(recipe: Recipe) -> None:
    wanted = job(recipe)
    action = decision(wanted, known(wanted, jobs=[[wanted.name, "Completed", ""]]))
    assert (action.name, action.verb) == (f"{wanted.name}-2", "create")
    assert action.reason.endswith("compiled it, but it was removed since then")


def test_at_start_the_container_gets_all_the_time_that_there_is(tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, RECIPE.replace("max_num_seqs: 4", "max_num_seqs: 4, compile: at-start")))
    assert [item for item in desired([recipe], ACCOUNT) if item.kind == "Artifacts"] == []
    assert list(compilation.notes(recipe)) == [
        "Every container compiles when it starts, which takes an unknown time; SageMaker allows 60 min at most"
    ]


# ---- what the user is told to run ----


def refusal(*recipes: Recipe) -> str:
    """The hint of deploying the recipes where nothing was compiled."""
    names = [recipe.name for recipe in recipes]
    made = make_plan("qwen.yaml", RULES, names, desired(recipes, ACCOUNT), Observed(), price_per_hour=None)
    with pytest.raises(NotCompiled) as raised:
        compilation.require_compiled(made)
    return raised.value.hint


def test_a_deployment_asks_for_the_recipes_code(recipe: Recipe) -> None:
    assert refusal(recipe).startswith(
        "Run: toolkit compile qwen.yaml (the longest job takes about 69 min, an estimate)"
    )


def test_a_deployment_with_its_baseline_asks_for_the_code_of_both(recipe: Recipe) -> None:
    assert refusal(recipe, recipe.baseline()).startswith("Run: toolkit compile qwen.yaml --baseline (the longest job")


def test_the_plan_tells_how_the_baseline_is_compiled(recipe: Recipe) -> None:
    (note,) = compilation.notes(recipe)
    assert note.endswith("which takes about 69 min (an estimate); add `--baseline` to compile for the baseline too")


def test_the_plan_of_a_recipe_without_speculation_tells_of_no_baseline(recipe: Recipe) -> None:
    (note,) = compilation.notes(recipe.baseline())
    assert note.endswith("which takes about 69 min (an estimate)")


def test_on_a_cluster_the_job_compiles(recipe: Recipe) -> None:
    cluster = on_platform(recipe, "kubernetes")
    run = f"toolkit render {cluster.path} --part compile | kubectl apply --server-side --field-manager=toolkit -f -"
    with pytest.raises(UsageError, match="does not work on Kubernetes") as raised:
        compilation_of(cluster)
    assert raised.value.hint == f"Run: {run}. For a SageMaker endpoint, add: --platform sagemaker"


def test_on_a_cluster_the_check_names_the_job(recipe: Recipe) -> None:
    findings = check(on_platform(recipe, "kubernetes")).findings
    (hint,) = [found.hint for found in findings if found.code == "neuron.compiled-in"]
    apply = "kubectl apply --server-side --field-manager=toolkit -f -"
    assert hint == f"Run: toolkit render {recipe.path} --part compile | {apply}"


@pytest.mark.parametrize("platform", ["sagemaker", "kubernetes"])
def test_what_compiles_at_start_is_told_so_on_every_platform(recipe: Recipe, platform: str) -> None:
    at_start = on_platform(replace(recipe, engine=recipe.engine.edit(compile="at-start")), platform)
    with pytest.raises(UsageError, match="is compiled when its containers start"):
        require_compiles_ahead(at_start)


def test_an_engine_for_gpus_compiles_when_it_starts(recipe: Recipe) -> None:
    gpu = of_engine(recipe, "vllm", version="0.30.0")
    with pytest.raises(UsageError, match="qwen is compiled when its containers start"):
        require_compiles_ahead(gpu)
