"""A record names the recipe's file, however a command was called; none where it was given the endpoint's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aws_in_memory import ON_AWS, AwsInMemory, aws_in_memory
from fakes import Told
from pairs import write_pair

import toolkit
from toolkit.api.context import record_on
from toolkit.apply.progress import Silent
from toolkit.planning.plan import Plan


@pytest.fixture
def aws() -> Iterator[AwsInMemory]:
    with aws_in_memory() as platform:
        yield platform


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws: AwsInMemory) -> Path:
    """One that was deployed twice."""
    path = write_pair(tmp_path)
    monkeypatch.chdir(tmp_path)
    for positions in (1024, 512):
        path.write_text(ON_AWS.replace("max_model_len: 1024", f"max_model_len: {positions}"))
        toolkit.deploy(path, progress=Silent())
    return path


@pytest.mark.parametrize("command", [toolkit.rollback, toolkit.destroy])
@pytest.mark.parametrize("by_name", [False, True])
def test_a_record_names_the_file(
    recipe: Path, aws: AwsInMemory, command: Callable[..., object], *, by_name: bool
) -> None:
    record = record_on(aws, "tiny", Told())
    before = len(record.events())
    assert {event.recipe for event in record.events()} == {str(recipe)}
    command("tiny" if by_name else recipe.name, progress=Silent())
    written = record.events()[before:]
    assert written
    assert {event.recipe for event in written} == {"" if by_name else str(recipe)}


def test_a_plan_of_no_file_shows_its_endpoint(recipe: Path) -> None:
    done = toolkit.destroy("tiny", progress=Silent())
    assert isinstance(done, Plan)
    assert done.recipe == ""
    assert repr(done).startswith("<Plan tiny, tiny-baseline on sagemaker: ")
