"""The command line as programs and people use it: exit codes, one JSON document on stdout, all else on stderr."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pairs import edit_config, write_pair

from toolkit.cli.main import run
from toolkit.recipe import schema


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout, which is one JSON document and nothing else."""
        return json.loads(self.out)


Toolkit = Callable[..., Ended]


@pytest.fixture
def toolkit(capsys: pytest.CaptureFixture[str]) -> Toolkit:
    def call(*arguments: object) -> Ended:
        code = run([str(argument) for argument in arguments])
        return Ended(code, *capsys.readouterr())

    return call


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_pair(tmp_path)


@pytest.fixture
def bad(good: Path, tmp_path: Path) -> Path:
    """A head without its mask token."""
    edit_config(tmp_path / "drafter", ptd_token_id=None)
    return good


class Terminal(io.StringIO):
    """A terminal at which someone types, or presses Ctrl-C."""

    def __init__(self, typed: str | None) -> None:
        super().__init__(typed)
        self._interrupted = typed is None

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        if self._interrupted:
            raise KeyboardInterrupt
        return super().readline(size)


def test_check_of_a_good_recipe(toolkit: Toolkit, good: Path) -> None:
    could = "vLLM 0.32.0 is here, and says with --ask what it makes of this"
    assert toolkit("check", good) == Ended(0, f"{good}: no findings\n", f"{could}\nNext: toolkit plan {good}\n")
    engine = {"name": "vLLM 0.32.0", "asked": False, "why_not": "its answer is not kept"}
    expected = {"recipe": str(good), "ok": True, "findings": [], "engine": engine}
    assert toolkit("check", good, "--json").document == expected


def test_check_of_a_bad_recipe(toolkit: Toolkit, bad: Path) -> None:
    ended = toolkit("check", bad)
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.startswith(f"{bad}:6 speculation.model: the drafter's config.json names no mask token")
    ended = toolkit("check", bad, "--json")
    assert ended.code == 1
    assert [finding["code"] for finding in ended.document["findings"]] == ["pair.mask-token"]


def test_check_of_a_recipe_with_a_warning(toolkit: Toolkit, good: Path, tmp_path: Path) -> None:
    edit_config(tmp_path / "drafter", num_depths=2)
    ended = toolkit("check", good, "--json")
    assert ended.code == 0
    assert ended.document["ok"]


@pytest.mark.parametrize("content", [None, "name: [", "", "- a"])
@pytest.mark.parametrize("command", ["check", "plan", "lock", "deploy"])
def test_no_recipe_to_read(toolkit: Toolkit, tmp_path: Path, command: str, content: str | None) -> None:
    path = tmp_path / "recipe.yaml"
    if content is not None:
        path.write_text(content)
    ended = toolkit(command, path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: {path}")
    ended = toolkit(command, path, "--json")
    assert ended.code == 2
    assert ended.document["error"] == ("RecipeNotFound" if content is None else "UnreadableRecipe")


@pytest.mark.parametrize("command", ["plan", "deploy"])
def test_a_bad_recipe_goes_no_further(toolkit: Toolkit, bad: Path, command: str) -> None:
    ended = toolkit(command, bad, "--json")
    assert ended.code == 1
    assert ended.document["error"] == "RecipeError"
    assert ended.document["findings"] == toolkit("check", bad, "--json").document["findings"]
    assert not (Path(os.environ["TOOLKIT_HOME"]) / "local").exists(), "nothing was started"


def test_plan(toolkit: Toolkit, good: Path) -> None:
    ended = toolkit("plan", good)
    assert (ended.code, ended.err) == (0, f"Next: toolkit deploy {good}\n")
    assert ended.out.splitlines()[0].split() == ["verb", "kind", "name", "reason"]
    assert ended.out.endswith("10 changes on local, 0.00 $/h while running\n")


def test_plan_as_json(toolkit: Toolkit, good: Path) -> None:
    ended = toolkit("plan", good, "--json")
    assert (ended.code, ended.err) == (0, "")
    document = ended.document
    assert (document["platform"], document["endpoints"]) == ("local", ["tiny"])
    assert {"recipe", "actions", "price_per_hour", "fingerprint"} <= document.keys()
    assert {"kind", "name", "verb", "reason", "request"} <= document["actions"][0].keys()


def test_plan_with_a_baseline(toolkit: Toolkit, good: Path) -> None:
    assert toolkit("plan", good, "--baseline", "--json").document["endpoints"] == ["tiny", "tiny-baseline"]


def test_a_saved_plan_is_the_one_that_was_shown(toolkit: Toolkit, good: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    ended = toolkit("plan", good, "--out", saved, "--json")
    assert ended.document == json.loads(saved.read_text())
    assert ended.err == f"saved; to apply it: toolkit deploy --plan {saved}\n"


def test_plan_starts_nothing(toolkit: Toolkit, good: Path) -> None:
    toolkit("plan", good)
    assert not (Path(os.environ["TOOLKIT_HOME"]) / "local").exists()


def test_recipes(toolkit: Toolkit) -> None:
    ended = toolkit("recipes")
    assert (ended.code, ended.err) == (0, "Next: toolkit recipes show gemma-4-31b-it/p-eagle\n")
    assert "tiny/p-eagle" in ended.out
    assert toolkit("recipes", "--json").document["tiny/p-eagle"]["speculation"]["method"] == "p-eagle"


def test_schema(toolkit: Toolkit) -> None:
    """As it is committed: `toolkit schema > recipe.schema.json` shows what has changed, line by line."""
    committed = Path(schema.__file__).with_name("recipe.schema.json")
    assert toolkit("schema").out == committed.read_text(encoding="utf-8")


def test_lock(toolkit: Toolkit, good: Path, tmp_path: Path) -> None:
    path = tmp_path / "recipe.lock.json"
    assert toolkit("lock", good) == Ended(0, f"wrote {path}\n", f"Next: toolkit plan {good}\n")
    assert toolkit("lock", good, "--json").document == {"lock": str(path), "pinned": {}, "unpinned": []}
    assert toolkit("check", good).code == 0


def test_lock_of_models_that_cannot_be_read(toolkit: Toolkit, good: Path, tmp_path: Path) -> None:
    (tmp_path / "target" / "config.json").unlink()
    ended = toolkit("lock", good, "--json")
    assert ended.code == 2
    assert ended.document["error"] == "UnreadableModel"


def test_status_where_nothing_runs(toolkit: Toolkit) -> None:
    first = "Next: toolkit deploy tiny/p-eagle --platform local\n"
    assert toolkit("status") == Ended(0, "no endpoints\n", f"not listed: AWS (no credentials)\n{first}")
    listed = {"endpoints": [], "not_listed": ["AWS (no credentials)"], "not_described": 0}
    assert toolkit("status", "--json").document == listed
    assert toolkit("status", "--platform", "sagemaker").code == 3


@pytest.mark.parametrize("command", [("invoke", "tiny", "hello"), ("logs", "tiny"), ("prove", "tiny")])
def test_an_endpoint_that_does_not_exist(toolkit: Toolkit, command: tuple[str, ...]) -> None:
    ended = toolkit(*command)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("error: there is no endpoint tiny")


def test_an_endpoint_that_does_not_exist_as_json(toolkit: Toolkit) -> None:
    ended = toolkit("prove", "tiny", "--json")
    assert ended.code == 3
    assert ended.document["error"] == "EndpointNotFound"
    assert ended.document["hint"]


def test_destroy_of_a_recipe_that_is_not_deployed(toolkit: Toolkit, good: Path) -> None:
    here = ["destroy", good, "--yes"]
    assert toolkit(*here) == Ended(0, f"nothing to remove: {good} has no resources\n", "Next: toolkit status\n")
    assert toolkit(*here, "--json").document["actions"] == []


@pytest.mark.parametrize("options", [(), ("--platform", "local")])
def test_destroy_of_a_name_that_no_platform_has(toolkit: Toolkit, options: tuple[str, ...]) -> None:
    ended = toolkit("destroy", "tiny", "--yes", *options)
    assert (ended.code, ended.out) == (3, "")
    unasked = "; not asked: AWS (no credentials)"
    assert ended.err == f"error: there is no endpoint tiny{unasked}\n  See what there is: toolkit status\n"


def test_destroy_asks_nobody_where_there_is_no_terminal(toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    ended = toolkit("destroy", "tiny")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("Cannot ask: stdin is not a terminal.\n  Add --yes.\n")


@pytest.mark.parametrize(
    ("typed", "code"), [("y\n", 0), ("Yes\n", 0), ("n\n", 1), ("\n", 1), ("", 1), ("yippie\n", 1), (None, 130)]
)
def test_destroy_asks_on_a_terminal(
    toolkit: Toolkit, good: Path, monkeypatch: pytest.MonkeyPatch, typed: str | None, code: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    ended = toolkit("destroy", good, "--json")
    assert ended.code == code
    assert ended.err.startswith(f"Remove {good} and everything created for it? [y/N] ")
    assert bool(ended.out) == (code != 1), "the question is not part of the answer"


def test_ctrl_c_says_how_to_go_on(toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(None))
    assert "The same command carries on; `toolkit destroy` removes it." in toolkit("destroy", "tiny").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "tiny/p-eagle", "--jsom"], "No such option: --jsom"),
        (["chek"], "No such command 'chek'"),
        (["check"], "give a recipe, or --all"),
        (["invoke", "tiny", "hi", "--max-tokens", "0"], "Invalid value for '--max-tokens'"),
        (["deploy"], "give a recipe, or a saved plan with --plan"),
        (["deploy", "--plan", "/nonexistent.json"], "/nonexistent.json is not a saved plan"),
        (["status", "--platform", "cloud"], "'cloud' is not one of 'local', 'sagemaker', 'kubernetes'"),
        (["destroy", "tiny", "--platform", "cloud", "--yes"], "'cloud' is not one of 'local', 'sagemaker'"),
    ],
)
def test_wrong_usage(toolkit: Toolkit, arguments: list[str], message: str) -> None:
    ended = toolkit(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


def test_help(toolkit: Toolkit) -> None:
    ended = toolkit("--help")
    assert (ended.code, ended.err) == (0, "")
    commands = ["check", "plan", "deploy", "status", "invoke", "logs", "prove", "destroy", "recipes", "lock", "schema"]
    assert all(f"\n  {command}" in ended.out for command in commands)


@pytest.mark.parametrize("start", [["-m", "toolkit"], ["-c", "from toolkit.cli.start import main; main()"]])
def test_the_process_ends_with_the_commands_code(bad: Path, start: list[str]) -> None:
    command = [sys.executable, *start, "check", str(bad), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert json.loads(ended.stdout)["ok"] is False


def test_ctrl_c_while_modules_are_imported_is_no_traceback(tmp_path: Path) -> None:
    """A module that is imported at the start, and waits: any other moment would be a matter of luck."""
    (tmp_path / "typer.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "toolkit", "check", "tiny/p-eagle"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as begun:
        assert begun.stdout
        assert begun.stdout.readline() == "importing\n"
        begun.send_signal(signal.SIGINT)
        _, said = begun.communicate(timeout=30)

    assert (begun.returncode, said) == (130, "interrupted: nothing was begun\n")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["bench", "ep", "--concurrency", "1", "--concurrency=4"], "Write: --concurrency 1,4"),
        (["bench", "ep", "--time", "1m", "--time", "2m"], "Give --time once."),
    ],
)
def test_an_option_that_is_given_twice_is_refused(toolkit: Toolkit, typed: list[str], hint: str) -> None:
    ended = toolkit(*typed)

    assert ended.code == 2
    assert f"error: {typed[2]} is given 2 times\n  {hint}\n" in ended.err


@pytest.mark.parametrize(
    "typed",
    [
        ["prove", "http://127.0.0.1:9/v1", "--prompts", "a.jsonl", "--prompts", "b.jsonl"],  # may be repeated
        ["recipes", "--json", "--json"],
        ["invoke", "ep", "--max-tokens", "3", "--", "--max-tokens"],
    ],
)
def test_what_may_be_repeated_is_not(toolkit: Toolkit, typed: list[str]) -> None:
    assert "is given" not in toolkit(*typed).err
