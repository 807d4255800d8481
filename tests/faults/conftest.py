"""The whole command line on a local platform whose containers are small: what happens around it is tested."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_tools import Ran, Toolkit, daemon_in
from pairs import write_pair

from toolkit.cli.main import run


@pytest.fixture
def toolkit(capsys: pytest.CaptureFixture[str]) -> Toolkit:
    """Run a command in this process. An exception that it does not explain is the test's failure."""

    def command(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe for the local platform, with models of a few kB. Its endpoint is called tiny."""
    return write_pair(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a daemon, for all tests of a module."""
    with daemon_in(tmp_path_factory.mktemp("home")) as home:
        yield home


@pytest.fixture
def home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKIT_HOME", str(shared_home))
    return shared_home
