"""A recipe's files for the model registry: another machine loads from them what was registered."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import ACCOUNT
from pairs import HUB_RECIPE, write_pair, write_recipe

from toolkit.errors import UsageError
from toolkit.loading import load
from toolkit.platforms.sagemaker.rules.registering import portable_files
from toolkit.recipe.recipe import Recipe

OPEN = (
    HUB_RECIPE.replace("org/", "./")
    .replace("  version: 0.30.0\n", "")
    .replace("instance_types: [ml.g6.xlarge], ", "role: create, ")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = write_pair(tmp_path).parent
    (there / "extra.dockerfile").write_text("RUN true\n")
    (there / "mine.jsonl").write_text('{"prompt": "Count."}\n')
    return there


def elsewhere(recipe: Recipe, folder: Path) -> Recipe:
    for name, text in portable_files(recipe, ACCOUNT).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return load(folder / "recipe.yaml")


def test_what_was_left_open_is_as_it_was_chosen(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = f"# mine\n{OPEN}training: {{data: [./mine.jsonl]}}\nworkloads: {{mine: ./mine.jsonl}}\n"
    recipe = load(write_recipe(folder, f"{text}container: {{dockerfile: ./extra.dockerfile}}\n"))
    assert recipe.chosen
    found = elsewhere(recipe, tmp_path_factory.mktemp("elsewhere"))
    assert found.path.read_text().startswith("# mine\n")
    assert not found.chosen
    assert found.engine.version == recipe.engine.version
    assert found.platform.types == recipe.platform.types
    assert found.training is None
    assert found.container
    assert Path(found.container.dockerfile or "").read_text() == "RUN true\n"
    assert found.workloads["mine"].read_text() == '{"prompt": "Count."}\n'
    assert found.target.model.startswith(f"s3://toolkit-{ACCOUNT.id}-")


def test_a_drafter_that_is_built_into_the_image_cannot_be_registered(folder: Path) -> None:
    recipe = load(write_recipe(folder, f"{OPEN}container: {{bake_drafter: true}}\n"))
    with pytest.raises(UsageError, match=r"speculation.model: a drafter of a folder lies in the image"):
        portable_files(recipe, ACCOUNT)


def test_prompts_that_are_no_text_are_refused(folder: Path) -> None:
    (folder / "mine.jsonl").write_bytes(b"PAR1\xff\xfe")
    recipe = load(write_recipe(folder, f"{OPEN}workloads: {{mine: ./mine.jsonl}}\n"))
    with pytest.raises(UsageError, match=r"workloads.mine: .* is no text"):
        portable_files(recipe, ACCOUNT)
