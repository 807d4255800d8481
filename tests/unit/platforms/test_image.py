"""The image of a recipe: rendered without looking at anything but the recipe and the container's own files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aws_kinds import desired, wanted
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from fakes import ACCOUNT
from pairs import recipe_with, write_hub_pair, write_pair

from toolkit.api.context import arms_of
from toolkit.errors import StalePlanError, UsageError
from toolkit.loading import load, on_platform
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.image import base_image, programs, render, spec_of
from toolkit.platforms.sagemaker.keys import AwsRollout
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection

BASE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/ours@sha256:" + "a" * 64


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_hub_pair(tmp_path))


def custom(recipe: Recipe, **section: object) -> Recipe:
    return replace(recipe, container=ContainerSection.model_validate(section))


def images_of(recipe: Recipe, account: Account) -> list[Resource]:
    """The image that is built for the recipe, after its repository."""
    return wanted(recipe, "Repository", "Image", account=account)


def test_the_whole_dockerfile(recipe: Recipe, golden: Callable[[str, object], None]) -> None:
    golden("dockerfile-p-eagle", render(custom(recipe, base=BASE), ACCOUNT).dockerfile.splitlines())


def test_the_whole_dockerfile_with_a_fragment(
    recipe: Recipe, golden: Callable[[str, object], None], tmp_path: Path
) -> None:
    (tmp_path / "more.Dockerfile").write_text("RUN echo more > /more\n")
    fragment = custom(recipe, base=BASE, dockerfile=str(tmp_path / "more.Dockerfile"), wheels=["orjson==3.11.5"])
    spec = render(fragment, ACCOUNT)
    golden("dockerfile-fragment", spec.dockerfile.splitlines())
    assert spec.needs_run


def test_a_recipe_that_runs_an_image_as_it_is_builds_none(recipe: Recipe) -> None:
    assert images_of(recipe, ACCOUNT) == []


def test_on_this_machine_the_image_has_a_local_name_and_no_repository_is_made(recipe: Recipe) -> None:
    (built,) = images_of(recipe_with(custom(recipe, base=BASE), platform="local", run="container"), ACCOUNT)
    assert built.request["Image"] == f"localhost/{built.name}"
    assert built.name == f"toolkit/{recipe.name}:{built.request['Tag']}"


def test_on_this_machine_no_image_is_built_unless_it_runs_in_one(recipe: Recipe) -> None:
    assert images_of(recipe_with(custom(recipe, base=BASE), platform="local"), ACCOUNT) == []


def test_on_this_machine_the_base_has_to_be_named(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match=r"container: \{base: "):
        images_of(recipe_with(recipe, platform="local", run="container"), ACCOUNT)


def test_what_is_in_the_image(recipe: Recipe) -> None:
    files = render(custom(recipe), ACCOUNT).files
    assert {"/opt/toolkit/serve", "/opt/toolkit/LICENSE", "/opt/toolkit/sbom.json"} <= files.keys()
    assert files["/opt/toolkit/serve"].mode == 0o755


def test_the_bill_of_materials_names_base_files_and_wheels(recipe: Recipe) -> None:
    spec = render(custom(recipe, base=BASE, wheels=["orjson==3.11.5"]), ACCOUNT)
    components = json.loads(spec.files["/opt/toolkit/sbom.json"].content or b"")["components"]
    assert (components[0]["type"], components[0]["name"]) == ("container", BASE)
    assert components[-1]["purl"] == "pkg:pypi/orjson@3.11.5"
    assert "serve" in [item["name"] for item in components]


def test_the_bill_of_materials_is_a_valid_one(recipe: Recipe) -> None:
    """By the schema of CycloneDX, as its own library has it."""
    spec = render(custom(recipe, base=BASE, wheels=["orjson==3.11.5"]), ACCOUNT)
    text = (spec.files["/opt/toolkit/sbom.json"].content or b"").decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


@pytest.mark.parametrize(
    "change", [{"base": BASE}, {"wheels": ["orjson==3.11.5"]}, {"python": "3.13"}], ids=["base", "wheels", "python"]
)
def test_what_changes_the_image_changes_its_tag(recipe: Recipe, change: dict[str, object]) -> None:
    assert render(custom(recipe, **change), ACCOUNT).tag != render(custom(recipe), ACCOUNT).tag


def test_wheels_are_for_the_python_of_the_base() -> None:
    trainium = load("llama-3.1-8b-instruct/eagle3-trn2")
    assert render(trainium, ACCOUNT).python == "3.14"
    assert render(custom(trainium, base=BASE), ACCOUNT).python == "3.12"
    assert render(custom(trainium, base=BASE, python="3.13"), ACCOUNT).python == "3.13"


def test_what_does_not_change_the_image_keeps_its_tag(recipe: Recipe) -> None:
    other = replace(recipe, engine=recipe.engine.edit(max_num_seqs=1))
    assert render(custom(other), ACCOUNT).tag == render(custom(recipe), ACCOUNT).tag
    assert render(custom(recipe).baseline(), ACCOUNT).tag == render(custom(recipe), ACCOUNT).tag


def test_the_labels_say_base_and_engine(recipe: Recipe) -> None:
    labels = render(custom(recipe, base=BASE), ACCOUNT).labels
    assert labels["org.opencontainers.image.base.digest"] == f"sha256:{'a' * 64}"
    assert (labels["toolkit.engine.name"], labels["toolkit.engine.version"]) == ("vllm", recipe.engine.version)


def test_a_base_by_tag_has_no_digest_to_say(recipe: Recipe) -> None:
    labels = render(custom(recipe, base=BASE.replace(f"@sha256:{'a' * 64}", ":1")), ACCOUNT).labels
    assert "org.opencontainers.image.base.digest" not in labels


def test_no_image_with_a_tag_ever_expires(recipe: Recipe) -> None:
    (made, _) = images_of(custom(recipe), ACCOUNT)
    (rule,) = json.loads(made.request["lifecyclePolicyText"])["rules"]
    assert rule["selection"]["tagStatus"] == "untagged"


def test_a_base_is_awss_image_of_that_version_by_its_digest(recipe: Recipe) -> None:
    plain = base_image(custom(recipe), ACCOUNT)
    assert plain.endswith("/vllm:server-sagemaker-cuda-v2.6")
    pinned = replace(ACCOUNT, digests={plain: BASE})
    assert base_image(custom(recipe), pinned) == BASE


def test_a_version_that_aws_has_no_image_of_takes_vllms_own(recipe: Recipe) -> None:
    newer = replace(recipe, engine=recipe.engine.edit(version="0.33.0"))
    assert base_image(custom(newer), ACCOUNT) == "docker.io/vllm/vllm-openai:v0.33.0"


def test_the_saved_request_says_all_of_it(recipe: Recipe) -> None:
    (_, built) = images_of(custom(recipe, wheels=["orjson==3.11.5"]), ACCOUNT)
    saved = json.loads(json.dumps(built.request))
    assert spec_of(saved) == render(custom(recipe, wheels=["orjson==3.11.5"]), ACCOUNT)


def test_the_model_runs_the_image_by_its_tag(recipe: Recipe) -> None:
    resources = desired([custom(recipe)], ACCOUNT)
    (built,) = [item for item in resources if item.kind == "Image"]
    (model,) = [item for item in resources if item.kind == "Model"]
    assert model.request["PrimaryContainer"]["Image"] == built.request["Image"]
    assert built.request["Image"].startswith(f"{ACCOUNT.registry}/toolkit/hub:")


def test_a_baked_drafter_is_in_the_image_and_nowhere_else(tmp_path: Path) -> None:
    recipe = recipe_with(on_platform(load(write_pair(tmp_path)), "sagemaker"), role="create")
    versioned = replace(recipe, engine=recipe.engine.edit(version="0.30.0"))
    with_drafter_in_image = custom(versioned, bake_drafter=True)
    resources = desired([with_drafter_in_image], ACCOUNT)
    (model,) = [item for item in resources if item.kind == "Model"]
    container = model.request["PrimaryContainer"]
    assert "AdditionalModelDataSources" not in container
    assert json.loads(container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"])["model"] == "/opt/toolkit/drafter"
    assert "/opt/toolkit/drafter/config.json" in render(with_drafter_in_image, ACCOUNT).files


def test_only_a_folder_can_be_baked(recipe: Recipe) -> None:
    with pytest.raises(
        UsageError, match="`bake_drafter` needs a drafter in a local folder, and org/drafter is not one"
    ):
        render(custom(recipe, bake_drafter=True), ACCOUNT)


def test_a_repository_of_ones_own_is_not_made(recipe: Recipe) -> None:
    (built,) = images_of(custom(recipe, repository="team/images"), ACCOUNT)
    assert built.kind == "Image"
    assert built.request["Repository"] == "team/images"


def test_a_name_with_capitals_makes_a_legal_repository(recipe: Recipe) -> None:
    (repository, _) = images_of(custom(replace(recipe, name="GPT-Oss")), ACCOUNT)
    assert repository.name == "toolkit/gpt-oss"


def test_a_fragment_that_is_not_there(recipe: Recipe) -> None:
    with pytest.raises(UsageError, match="Dockerfile fragment /nowhere cannot be read"):
        render(custom(recipe, dockerfile="/nowhere"), ACCOUNT)


def test_in_china_the_base_is_that_of_chinas_registry(recipe: Recipe) -> None:
    assert ".amazonaws.com.cn/vllm:" in base_image(custom(recipe), Account("1" * 12, "cn-north-1"))


def test_every_variant_of_an_experiment_has_an_image(tmp_path: Path) -> None:
    recipe = recipe_with(on_platform(load(write_pair(tmp_path)), "sagemaker"), role="create")
    versioned = replace(recipe, engine=recipe.engine.edit(version="0.30.0"))
    resources = desired([replace(custom(versioned, bake_drafter=True), rollout=AwsRollout(shadow=True))], ACCOUNT)
    built = {item.request["Image"] for item in resources if item.kind == "Image"}
    assert {item.request["PrimaryContainer"]["Image"] for item in resources if item.kind == "Model"} == built


def test_one_build_makes_the_images_of_an_endpoint_and_of_its_baseline(tmp_path: Path) -> None:
    recipe = recipe_with(on_platform(load(write_pair(tmp_path)), "sagemaker"), role="create")
    versioned = replace(recipe, engine=recipe.engine.edit(version="0.30.0"))
    arms = arms_of(custom(versioned, bake_drafter=True), baseline=True)
    building = RULES.parts.building
    assert building
    built = [item.name for item in building.resources(arms, ACCOUNT) if item.kind == "Image"]
    assert len(built) == 2
    assert built == [item.name for item in desired(arms, ACCOUNT) if item.kind == "Image"]


def test_a_file_that_has_changed_since_is_not_built_under_the_old_tag(tmp_path: Path) -> None:
    recipe = on_platform(load(write_pair(tmp_path)), "sagemaker")
    versioned = replace(recipe, engine=recipe.engine.edit(version="0.30.0"))
    (_, built) = images_of(custom(versioned, bake_drafter=True), ACCOUNT)
    (tmp_path / "drafter" / "config.json").write_text("{}")
    with pytest.raises(StalePlanError, match="has changed since this was planned"):
        spec_of(built.request)


@pytest.mark.parametrize(
    ("engine", "own"), [("vllm", {"serve"}), ("vllm-neuron", {"serve", "compile"}), ("benchmark", {"benchmark.py"})]
)
def test_containers_of_engines_on_vllm_have_its_programs_too(engine: str, own: set[str]) -> None:
    shared = {"entrypoint.py", "init.py", "serve_middleware.py"}
    assert own <= programs(engine).keys()
    assert shared & programs(engine).keys() == (shared if engine != "benchmark" else set())
