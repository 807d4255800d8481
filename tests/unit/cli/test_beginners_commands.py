"""Mistakes that beginners make in commands: what the hint says, followed to the letter, is a command without them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pairs import write_pair

from toolkit.cli.main import run

# The command, and how the one that its hint leads to ends: 0 done, 3 where only the endpoint is missing, 2 at another
# mistake.
USAGE = {
    "misspelled command": ("chek recipe.yaml", 0),
    "another tool's command": ("validate recipe.yaml", 0),
    "kubectl's command": ("ls", 0),
    "misspelled command of a group": ("local stauts", 0),
    "mistyped option": ("check recipe.yaml --jsom", 0),
    "one dash": ("check -json recipe.yaml", 0),
    "underscores": ("recipes --max_price 3", 0),
    "another tool's option": ("plan recipe.yaml --output plan.json", 0),
    "option before the command": ("--json check recipe.yaml", 0),
    "region after the command": ("check recipe.yaml --region eu-west-1", 0),
    "option of another command": ("status --grep error", 0),
    "option of another command with =": ("check recipe.yaml --grep=error", 0),
    "option without its value": ("status --platform", 0),
    "value for a switch": ("check recipe.yaml --json=true", 0),
    "unknown platform": ("status --platform loacl", 0),
    "number below its limit": ("recipes show qwen3-8b/p-eagle --max-price 0", 0),
    "no recipe": ("check", 0),
    "no recipe to deploy": ("plan", 0),
    "two names": ("metrics tiny tiny-p-eagle", 3),
    "prompt without quotes": ("invoke tiny Write JSON records --max-tokens 5", 3),
    "no prompt": ("invoke tiny", 3),
    "neither name nor prompt": ("invoke", 3),
    "no tokens": ("invoke tiny hello --max-tokens 0", 3),
    "text for a number": ("invoke tiny hello --max-tokens many", 3),
    "no concurrency": ("bench recipe.yaml --concurrency 0", 3),
    "time without a unit": ("prove recipe.yaml --time 5", 3),
    "limit without =": ("tune recipe.yaml --slo ttft 0.5 --k 0", 2),  # and then K
    "server without http": ("prove 127.0.0.1:9/v1", 3),
    "unknown arm": ("bench recipe.yaml --arm tiny/eagle", 3),
    "path with another ending": ("check recipe.yml", 0),
    "path that does not exist": ("check recipes/tiny/p-eagle.yaml", 0),
    "folder of recipes": ("check .", 0),
    "unknown recipe": ("check tiny/peagle", 0),
    "another name of a platform": ("check recipe.yaml --platform docker", 0),
    "price with its sign": ("recipes --max-price 5$", 0),
    "tokens in thousands": ("invoke tiny hello --max-tokens 1k", 3),
    "text for a temperature": ("invoke tiny hello --temperature hot", 3),
    "kubectl's -f": ("check -f recipe.yaml", 0),
    "argument as an option": ("plan --recipe=recipe.yaml", 0),
    "prompt as an option": ("invoke tiny --prompt hello", 3),
    "dry run of a deployment": ("deploy recipe.yaml --dry-run", 0),
    "one report to compare": ("bench --compare before.json", 2),  # which is not there
    "tail's -n": ("logs tiny -n 50", 3),
    "last lines of what goes on": ("logs tiny --follow --tail 5", 3),
    "filter without its option": ("recipes qwen", 0),
    "no recipe to show": ("recipes show", 0),
    "git's help": ("help check", 0),
    "version as a command": ("version", 0),
    "login": ("login", 0),
    "no folder to convert to": ("convert ./drafter", 0),
    "misspelled region": ("--region us-east1 check recipe.yaml", 0),
}


def next_command(typed: str, said: str) -> str:
    """The command that the hint leads to: one that it gives, or what was typed with one word replaced."""
    if given := re.search(r"(?:Run|Such as|Without it|See|Its options|Save one|Deploy (?:it|one)): toolkit (.*)", said):
        return given[1]
    meant = re.search(r"error: (\S+?):? .*\n  Did you mean (\S+?)(?: or .*)?\?", said)
    assert meant, said
    return typed.replace(meant[1], meant[2], 1)


@pytest.mark.parametrize("mistake", USAGE)
def test_the_hint_leads_to_a_command_that_works(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pair(tmp_path)
    monkeypatch.chdir(tmp_path)
    typed, ends = USAGE[mistake]
    assert run(shlex.split(typed)) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 2, said
    followed = next_command(typed, said)
    assert run(shlex.split(followed)) == ends, (said, followed)
    assert capsys.readouterr().err != said


@pytest.mark.parametrize("name", ["recipe.yaml", "tiny/p-eagle", "tiny-p-eagle"])
@pytest.mark.parametrize("command", ["prove", "logs", "metrics"])
def test_what_is_not_deployed_is_answered_with_how_to_deploy_it(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pair(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run([command, name]) == 3
    recipe = "tiny/p-eagle" if name == "tiny-p-eagle" else name
    assert capsys.readouterr().err.endswith(f"\n  Deploy it: toolkit deploy {recipe}\n")


def test_a_model_in_the_place_of_a_recipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["deploy", "Qwen/Qwen3-8B"]) == 2
    assert "for a recipe of it: toolkit new Qwen/Qwen3-8B" in capsys.readouterr().err
    write_pair(tmp_path)
    assert run(["check", str(tmp_path / "target")]) == 2
    assert f"For the model in it: toolkit new {tmp_path}/target" in capsys.readouterr().err


def test_a_plan_of_another_version_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pair(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["plan", "recipe.yaml", "--out", "plan.json"]) == 0
    saved = Path("plan.json")
    saved.write_text(saved.read_text().replace('"fingerprint"', '"seen"', 1))
    capsys.readouterr()
    assert run(["deploy", "--plan", "plan.json"]) == 2
    assert run(shlex.split(next_command("", capsys.readouterr().err))) == 0
    assert '"fingerprint"' in saved.read_text()
