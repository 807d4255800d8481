"""Containers that start with what an earlier start compiled: the job that makes it, and the endpoint's model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aws_kinds import desired
from fakes import ACCOUNT
from pairs import HUB_RECIPE, RECIPE, recipe_with, write_pair, write_recipe

from toolkit.api.jobs import compile_plan
from toolkit.errors import NotCompiled, UsageError
from toolkit.loading import load
from toolkit.planning import artifacts
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Observed
from toolkit.platforms.local.validation import problems
from toolkit.platforms.sagemaker.rules import RULES, compilation
from toolkit.platforms.sagemaker.rules.compilation import compile_resources
from toolkit.platforms.sagemaker.rules.price import price_of
from toolkit.recipe.recipe import Recipe

WARM = HUB_RECIPE.replace("engine:\n", "engine:\n  warm_start: true\n")
SAGEMAKER = botocore.session.get_session().get_service_model("sagemaker")


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_recipe(tmp_path, WARM))


def with_engine(**changes: Any) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, engine=recipe.engine.edit(**changes))


def one(kind: str, recipe: Recipe) -> Any:
    (found,) = [item.request for item in desired([recipe], ACCOUNT) if item.kind == kind]
    return found


def job(recipe: Recipe) -> Any:
    (found,) = [item.request for item in compile_resources([recipe], ACCOUNT) if item.kind == "TrainingJob"]
    return found


def test_where_nothing_is_compiled_yet_its_containers_can_do_without(recipe: Recipe) -> None:
    cold = artifacts.compiling_at_start(recipe)
    assert (artifacts.compiles_ahead(recipe), artifacts.compiles_ahead(cold)) == (True, False)
    assert artifacts.compiling_at_start(cold) is cold


def test_sagemaker_takes_the_job(recipe: Recipe) -> None:
    shape = SAGEMAKER.operation_model("CreateTrainingJob").input_shape
    assert shape
    assert list(problems(job(recipe), shape)) == []


def test_every_gpu_that_serves_has_training_jobs() -> None:
    types = set(SAGEMAKER.shape_for("TrainingInstanceType").enum)
    gpus = {instance.name for instance in RULES.instances() if instance.compute_capability}
    assert gpus - types == set()


def test_the_job_starts_the_recipes_own_image_on_its_own_type_with_its_own_flags(recipe: Recipe) -> None:
    made, served = job(recipe), one("Model", recipe)["PrimaryContainer"]
    assert made["ResourceConfig"] == {"InstanceType": "ml.g6.xlarge", "InstanceCount": 1}
    assert made["AlgorithmSpecification"]["ContainerEntrypoint"] == ["/opt/toolkit/compile"]
    assert made["AlgorithmSpecification"]["TrainingImage"] == served["Image"]
    here, there = made["Environment"], served["Environment"]
    differ = {name for name in {*here, *there} if here.get(name) != there.get(name)}
    assert differ == {"SM_VLLM_MODEL", "SM_VLLM_SPECULATIVE_CONFIG", "TOOLKIT_ARTIFACTS"}  # which have paths


def test_the_container_gets_what_the_job_has_made_as_a_channel(recipe: Recipe) -> None:
    container = one("Model", recipe)["PrimaryContainer"]
    channels = {item["ChannelName"]: item["S3DataSource"]["S3Uri"] for item in container["AdditionalModelDataSources"]}
    assert channels["compiled"] == job(recipe)["CheckpointConfig"]["S3Uri"]
    assert container["Environment"]["TOOLKIT_ARTIFACTS"] == "/opt/ml/additional-model-data-sources/compiled"
    assert container["Environment"]["TOOLKIT_ARTIFACTS_KEY"] == job(recipe)["Environment"]["TOOLKIT_ARTIFACTS_KEY"]


def test_its_image_has_the_programs_that_take_it(recipe: Recipe) -> None:
    files = one("Image", recipe)["Files"]
    assert {"/opt/toolkit/serve", "/opt/toolkit/compile", "/opt/toolkit/warm.py"} <= set(files)


def test_off_there_is_nothing_of_it(tmp_path: Path) -> None:
    cold = load(write_recipe(tmp_path, HUB_RECIPE))
    container = one("Model", cold)["PrimaryContainer"]
    assert [item.kind for item in desired([cold], ACCOUNT) if item.kind in ("Artifacts", "Image")] == []
    assert [name for name in container["Environment"] if "ARTIFACTS" in name] == []
    with pytest.raises(UsageError, match="is compiled when its containers start") as raised:
        artifacts.require_compiles_ahead(cold)
    assert "warm_start: true" in raised.value.hint


@pytest.mark.parametrize(
    "change",
    [
        with_engine(version="0.31.0"),
        with_engine(max_model_len=2048),
        with_engine(max_num_batched_tokens=8192),
        with_engine(env={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
        with_engine(args={"tensor-parallel-size": 2}),
        lambda recipe: recipe_with(recipe, instance_types=("ml.g6e.xlarge",)),
        lambda recipe: recipe_with(recipe, weights="hub"),  # vLLM's hash has a model's name then, and else its path
        lambda recipe: replace(recipe, target=recipe.target.edit(model="org/other")),
        lambda recipe: recipe.baseline(),
    ],
)
def test_what_changes_the_code_changes_its_name(recipe: Recipe, change: Callable[[Recipe], Recipe]) -> None:
    assert artifacts.key(change(recipe)) != artifacts.key(recipe)


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: replace(recipe, name="another"),
        with_engine(env={"VLLM_LOGGING_LEVEL": "DEBUG"}),
        with_engine(args={"uvicorn-log-level": "debug", "enable-auto-tool-choice": True, "tool-call-parser": "hermes"}),
        lambda recipe: recipe_with(recipe, tags={"team": "x"}),
        lambda recipe: recipe_with(recipe, instance_types=("ml.g6.12xlarge",)),
    ],
)
def test_what_does_not_change_the_code_keeps_its_name(recipe: Recipe, change: Callable[[Recipe], Recipe]) -> None:
    assert artifacts.key(change(recipe)) == artifacts.key(recipe)


def test_the_plan_says_what_to_do_first_and_what_it_costs(recipe: Recipe) -> None:
    (note,) = compilation.notes(recipe)
    assert "`toolkit compile" in note
    assert f"The job's ml.g6.xlarge costs {price_of('ml.g6.xlarge'):.2f} $/h, as for hosting" in note


def test_a_family_of_instance_types_has_one_job_on_the_first_of_them(recipe: Recipe) -> None:
    types = ("ml.g6.xlarge", "ml.g5.xlarge", "ml.g6.12xlarge")
    several = recipe_with(recipe, instance_types=types)
    jobs = [item.request for item in compile_resources([several], ACCOUNT) if item.kind == "TrainingJob"]
    assert [job["ResourceConfig"]["InstanceType"] for job in jobs] == ["ml.g6.xlarge", "ml.g5.xlarge"]


def test_the_price_of_each_job_is_told(recipe: Recipe) -> None:
    several = recipe_with(recipe, instance_types=("ml.g6.xlarge", "ml.g5.xlarge", "ml.g6.12xlarge"))
    told = [note for note in compilation.job_notes(several) if "$/h" in note]
    assert [note.split()[2] for note in told] == ["ml.g6.xlarge", "ml.g5.xlarge"]
    (note,) = compilation.notes(several)
    assert all(note.count(f"The job's {name} costs") == 1 for name in ("ml.g6.xlarge", "ml.g5.xlarge"))


def test_a_deployment_without_it_names_both_ways_out(recipe: Recipe) -> None:
    plan = make_plan("hub.yaml", RULES, ["hub"], desired([recipe], ACCOUNT), Observed(), price_per_hour=None)
    with pytest.raises(NotCompiled) as raised:
        compilation.require_compiled(plan)
    assert raised.value.hint.startswith("Run: toolkit compile hub.yaml. Or remove `warm_start`")


def test_the_flags_that_made_another_one_are_named(recipe: Recipe) -> None:
    wanted = json.loads(job(recipe)["Environment"]["TOOLKIT_ARTIFACTS_PARTS"])
    assert wanted["instance_family"] == "g6"
    assert {"drafter", "image", "max_model_len", "num_speculative_tokens", "target", "version"} <= wanted.keys()


def test_this_machine_keeps_it_without_a_job(tmp_path: Path) -> None:
    write_pair(tmp_path)
    here = load(write_recipe(tmp_path, RECIPE.replace("engine:\n", "engine:\n  warm_start: true\n")))
    container = one("Model", here)["PrimaryContainer"]
    assert {name for name in container["Environment"] if "ARTIFACTS" in name} == {"TOOLKIT_ARTIFACTS_KEY"}
    assert "compiled" not in [item["ChannelName"] for item in container["AdditionalModelDataSources"]]
    with pytest.raises(UsageError, match="this machine keeps what an engine's first start makes") as raised:
        compile_plan(here)
    assert "Run: toolkit deploy" in raised.value.hint
