"""Characters beyond 16 bits in a recipe, escaped as JSON does it: a pair of escapes, or by mistake half of a pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pairs import RECIPE, write_pair

from toolkit.cli.main import run

PAIR, HALF = r'"x\ud83d\ude00"', r'"x\ud83d"'

# what is written in the recipe around the text, and the code of the finding on "x😀" there, if any
PLACES = {
    "description": (RECIPE.replace("a pair of a few kB", "TEXT"), ""),
    "flag": (RECIPE.replace("dtype: float32", "tokenizer: TEXT"), ""),
    "environment": (RECIPE.replace('OFFLINE: "1"', "OFFLINE: TEXT"), ""),
    "name": (RECIPE.replace("name: tiny", "name: TEXT"), "recipe.bad-value"),
    "flag's name": (RECIPE.replace("dtype: float32", "TEXT: 1"), "recipe.bad-value"),
    "tag": (f"{RECIPE}tags: {{team: TEXT}}\n", "sagemaker.tags"),
    "tag's key": (f"{RECIPE}tags: {{TEXT: red}}\n", "sagemaker.tags"),
    "workload": (f"{RECIPE}workloads: {{TEXT: prompts.jsonl}}\n", "recipe.bad-value"),
    "key": (f"{RECIPE}TEXT: 1\n", "recipe.unknown-key"),
}


def line_of(text: str) -> int:
    return text[: text.index("TEXT")].count("\n") + 1


@pytest.mark.parametrize(("text", "code"), PLACES.values(), ids=PLACES)
def test_a_pair_of_escapes_is_one_character(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: str
) -> None:
    path = write_pair(tmp_path)
    path.write_text(text.replace("TEXT", '"x😀"'))
    written = [(run(["check", str(path), *options]), *capsys.readouterr()) for options in ([], ["--json"])]
    path.write_text(text.replace("TEXT", PAIR))

    escaped = [(run(["check", str(path), *options]), *capsys.readouterr()) for options in ([], ["--json"])]

    assert escaped == written
    (exit_code, _, stderr), (_, document, _) = escaped
    assert exit_code == bool(code)
    assert not stderr if code else stderr.endswith(f"Next: toolkit plan {path}\n")
    assert [finding["code"] for finding in json.loads(document)["findings"]] == [code] * bool(code)


@pytest.mark.parametrize("text", [text for text, _ in PLACES.values()], ids=PLACES)
def test_half_a_pair_is_an_error_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = write_pair(tmp_path)
    path.write_text(text.replace("TEXT", HALF))
    message = rf"{path}:{line_of(text)} not YAML: \ud83d is half of a surrogate pair, which is no character"
    hint = "Write the character itself, or both halves of the pair."

    assert run(["check", str(path)]) == 2
    assert capsys.readouterr() == ("", f"error: {message}\n  {hint}\n")
    assert run(["check", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {"error": "UnreadableRecipe", "message": message, "hint": hint}


def test_the_plan_shows_the_character(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_pair(tmp_path)
    path.write_text(RECIPE.replace('OFFLINE: "1"', f"OFFLINE: {PAIR}"))

    assert run(["plan", str(path), "--json"]) == 0

    actions = json.loads(capsys.readouterr().out)["actions"]
    (model,) = [action["request"] for action in actions if action["kind"] == "Model"]
    assert model["PrimaryContainer"]["Environment"]["HF_HUB_OFFLINE"] == "x😀"
