"""Where the toolkit's home is, as machines have it: named by what is no shell, or somebody else's."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from huggingface_hub import constants
from other_user import as_nobody

from toolkit.api.context import read_lock_of
from toolkit.catalog.updates import NOTHING, read_update
from toolkit.children import own_variables
from toolkit.cli.main import run
from toolkit.engines.vllm import fetched  # noqa: F401 - loaded now: `nobody` may not read it
from toolkit.engines.vllm.asking import ask
from toolkit.home import cache, home, user_home
from toolkit.loading import load
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.recipe.facts import Lock
from toolkit.recipe.hub import hub_client
from toolkit.recipe.recipe import Recipe


@pytest.mark.parametrize(
    ("named", "is_at"),
    [
        ("~/kept", user_home() / "kept"),
        ("~", user_home()),
        ("kept/here", Path.cwd() / "kept/here"),
        ("/a/b", Path("/a/b")),
        (".", Path.cwd()),
    ],
)
def test_a_home_that_no_shell_has_expanded(named: str, is_at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", named)
    assert home() == is_at


def test_processes_that_work_elsewhere_have_the_same_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", "kept")
    assert own_variables("TOOLKIT_")["TOOLKIT_HOME"] == str(Path.cwd() / "kept")


def test_a_cache_that_is_not_absolute_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "kept")
    assert cache() == user_home() / ".cache" / "toolkit"
    monkeypatch.setenv("XDG_CACHE_HOME", "/kept")
    assert cache() == Path("/kept/toolkit")


@pytest.fixture
def roots_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As `sudo -u` and a container's other user have it."""
    folder = tmp_path / "root"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TOOLKIT_HOME", str(folder / ".toolkit"))
    return folder / ".toolkit"


def test_a_home_of_somebody_else_is_one_without_an_update(roots_home: Path) -> None:
    assert as_nobody(_has_no_update)


def _has_no_update() -> bool:
    return read_update() is NOTHING


def test_what_needs_a_home_of_ones_own_says_how_to_get_one(roots_home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command in (["local", "stop"], ["local", "status"]):
        run(command)  # which loads what `nobody` may not read
    capfd.readouterr()
    hint = "Set TOOLKIT_HOME to a folder of your own."
    assert as_nobody(run, ["local", "stop", "--json"]) == 3
    said = capfd.readouterr()
    message = f"{roots_home / 'local'}: Permission denied"
    assert said.err == f"error: {message}\n  {hint}\n"
    assert json.loads(said.out) == {"error": "PlatformError", "message": message, "hint": hint}
    assert as_nobody(run, ["local", "status"]) == 3
    assert hint in capfd.readouterr().err


def test_a_token_in_such_a_home_is_none(roots_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(roots_home / "token"))
    assert "Authorization" in hub_client(token="mine").headers
    assert as_nobody(_has_no_token)


def _has_no_token() -> bool:
    return "Authorization" not in hub_client().headers


def test_code_of_an_engine_in_such_a_home_can_be_fetched(roots_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(roots_home))
    _recipe()
    assert as_nobody(_can_be_fetched)


@functools.cache
def _recipe() -> tuple[Recipe, Lock | None]:
    recipe = load("qwen3-8b/dflash")
    return recipe, read_lock_of(recipe)


def _can_be_fetched() -> bool:
    return ask(*_recipe(), now=False).can_be_fetched


def test_a_kubeconfig_in_such_a_home_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root").mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "root"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert not as_nobody(_has_cluster)


def _has_cluster() -> bool:
    return SESSION.can_be_asked()
