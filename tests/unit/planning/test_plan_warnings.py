"""What `check` warns of, a plan tells too: it is the last thing that is read before money is spent."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_in_memory import ON_AWS, AwsInMemory, Terminal, aws_in_memory
from fakes import Told
from pairs import write_pair

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.findings import Finding
from toolkit.home import cache
from toolkit.planning.plan import Plan


def test_a_plan_tells_each_warning_of_check() -> None:
    recipe = "qwen3-32b/draft-model-trn2-eks"
    warned = [finding for finding in toolkit.check(recipe).findings if finding.severity == "warning"]
    assert warned
    notes = [note for note in toolkit.plan(recipe).notes if note.startswith("Warning: ")]
    assert notes == [f"Warning: {finding.sentence}" for finding in warned]
    assert notes[0].startswith("Warning: platform.instance_types.0: nxd-inference ")
    assert notes[0].endswith("Then write `kubernetes: {neuron_driver: 2.28.0.0}`. [neuron.driver]")


def test_a_warning_on_the_whole_recipe_without_a_hint_is_a_sentence_too() -> None:
    assert Finding("a.code", "all is odd", hint="").sentence == "all is odd [a.code]"


@pytest.fixture
def aws() -> Iterator[AwsInMemory]:
    with aws_in_memory() as platform:
        yield platform


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = write_pair(tmp_path)
    path.write_text(ON_AWS)
    return path


def shorter(recipe: Path, name: str, positions: int) -> Path:
    """A copy that would change the endpoint."""
    copied = recipe.with_name(name)
    copied.write_text(ON_AWS.replace("max_model_len: 1024", f"max_model_len: {positions}"))
    return copied


def said(plan: Plan) -> list[str]:
    return [note for note in plan.notes if "was deployed from" in note]


def of(recipe: Path) -> list[str]:
    return [f"Warning: tiny was deployed from {recipe}. If both shall serve, give one of them another `name:`"]


@pytest.mark.usefixtures("aws")
def test_an_endpoint_of_another_recipe_is_not_changed_without_a_word(recipe: Path) -> None:
    """Who copies a recipe may forget its name."""
    copied = shorter(recipe, "copied.yaml", 512)
    toolkit.deploy(recipe, progress=Silent())
    assert said(toolkit.plan(copied)) == of(recipe)
    recipe.write_text(copied.read_text())
    assert said(toolkit.plan(recipe)) == []


@pytest.mark.usefixtures("aws")
def test_deploy_says_it_where_nothing_is_asked(recipe: Path) -> None:
    toolkit.deploy(recipe, progress=Silent())
    told = Told()
    toolkit.deploy(shorter(recipe, "copied.yaml", 512), progress=told)
    assert told.said.count(of(recipe)[0]) == 1


@pytest.mark.usefixtures("aws")
def test_deploy_says_a_warning_once_where_it_asks(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warnings = toolkit.plan(recipe).warnings
    assert warnings
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert run(["deploy", str(recipe), "--no-wait"]) == 1
    printed = " ".join(capsys.readouterr().err.split())
    assert [printed.count(" ".join(warning.split())) for warning in warnings] == [1] * len(warnings)


@pytest.mark.usefixtures("aws")
def test_a_rollback_of_the_same_recipe_is_of_no_other_one(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recipe.parent)
    for positions in (1024, 512):
        toolkit.deploy(shorter(recipe, recipe.name, positions), progress=Silent())
    toolkit.rollback(recipe.name, progress=Silent())
    assert said(toolkit.plan(shorter(recipe, recipe.name, 256))) == []
    assert said(toolkit.plan(shorter(recipe, "copied.yaml", 256))) == of(recipe)


def test_an_attempt_that_never_reached_the_endpoint_does_not_count(recipe: Path, aws: AwsInMemory) -> None:
    toolkit.deploy(recipe, progress=Silent())
    aws.interrupt_in(1)
    with pytest.raises(KeyboardInterrupt):
        toolkit.deploy(shorter(recipe, "copied.yaml", 512), progress=Silent())
    assert said(toolkit.plan(shorter(recipe, recipe.name, 256))) == []


@pytest.mark.usefixtures("aws")
def test_a_registered_version_is_no_other_recipe(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    version = cache() / "registered" / "version" / "recipe.yaml"
    toolkit.deploy(recipe, progress=Silent())
    shutil.copytree(recipe.parent, version.parent, ignore=shutil.ignore_patterns("cache"))
    shorter(version, version.name, 512)
    assert said(toolkit.plan(version)) == []
    toolkit.deploy(version, progress=Silent())
    assert said(toolkit.plan(shorter(recipe, recipe.name, 256))) == []


@pytest.mark.usefixtures("aws")
def test_a_recipe_that_is_gone_is_none(recipe: Path) -> None:
    copied = shorter(recipe, "copied.yaml", 512)
    toolkit.deploy(copied, progress=Silent())
    copied.unlink()
    assert said(toolkit.plan(recipe)) == []
