"""Real endpoints on the local platform, shared by the tests of a module: each costs half a minute."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_vllm import ForkedVllm

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.platforms.local import daemon


@pytest.fixture(scope="session")
def serving_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose local platform lives as long as the tests."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TOOLKIT_HOME", str(home))
        yield home
    daemon.stop(home / "local")


@pytest.fixture(autouse=True)
def _in_serving_home(serving_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(serving_home))


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedVllm]:
    """Imported once for all tests that need no server."""
    with ForkedVllm(tmp_path_factory.mktemp("vllm")) as forked:
        yield forked


@pytest.fixture(scope="session")
def _removed_at_the_end(serving_home: Path) -> Iterator[None]:
    yield
    toolkit.destroy("tiny/p-eagle", progress=Silent())


@pytest.fixture(scope="module")
def endpoint(serving_home: Path, _removed_at_the_end: None) -> Endpoint:
    """`tiny/p-eagle` and its baseline, in service. They are there already, unless another module has removed them."""
    assert os.environ["TOOLKIT_HOME"] == str(serving_home)
    return toolkit.deploy("tiny/p-eagle", baseline=True, progress=Silent())
