"""Mistakes that beginners make in recipes: each hint, followed to the letter, leads to a recipe without that error."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pairs import write_pair
from ruamel.yaml import YAML

from toolkit.api.checking import check
from toolkit.errors import UnreadableRecipe

MISTAKES = {
    "version of two numbers": ("version: 0.32.0", "version: 0.32"),
    "version of two numbers in quotes": ("version: 0.32.0", 'version: "0.32"'),
    "version with a v": ("version: 0.32.0", "version: v0.32.0"),
    "target without its key": ("{model: ./target}", "./target"),
    "folder without ./": ("{model: ./target}", "{model: models/target}"),
    "platform without its key": ("{name: local}", "local"),
    "engine without its key": (re.compile(r"engine:\n(  .*\n)+"), "engine: vllm\n"),
    "engine as its version": (re.compile(r"engine:\n(  .*\n)+"), "engine: 0.32\n"),
    "mistyped key": ("max_model_len: 1024", "max_model_length: 1024"),
    "another tool's key": ("num_speculative_tokens: 7", "k: 7"),
    "mistyped method": ("method: p-eagle", "method: peagle"),
    "number in quotes": ("num_speculative_tokens: 7", 'num_speculative_tokens: "7"'),
    "number with a k": ("max_model_len: 1024", "max_model_len: 1k"),
    "number for text": ('HF_HUB_OFFLINE: "1"', "HF_HUB_OFFLINE: 1"),
    "name with a space": ("name: tiny", "name: My tiny model"),
    "one type, no list": ("{name: local}", "{name: local, instance_types: ml.m7i.large}"),
    "flag with dashes": ("dtype: float32", "--dtype: float32"),
    "mistyped flag": ("dtype: float32", "dtpe: float32"),
    "no platform": ("platform: {name: local}", ""),
    "no speculation": (re.compile(r"speculation:\n(  .*\n)+"), ""),
    "path for a model": ("{model: ./target}", "{path: ./target}"),
    "drafter for a model": ("  model: ./drafter", "  drafter: ./drafter"),
    "method in capitals": ("method: p-eagle", "method: P-EAGLE"),
    "engine in capitals": ("name: vllm", "name: vLLM"),
    "speculation off": (re.compile(r"speculation:\n(  .*\n)+"), "speculation: false\n"),
    "no draft tokens": ("num_speculative_tokens: 7", "num_speculative_tokens: 0"),
    "draft tokens from to": ("num_speculative_tokens: 7", "num_speculative_tokens: 1-7"),
    "no limit as -1": ("max_model_len: 1024", "max_model_len: -1"),
    "type for a name": ("{name: local}", "{type: local}"),
    "instance type in the singular": ("{name: local}", "{name: local, instance_type: [ml.m7i.large]}"),
    "region without its dash": ("{name: local}", "{name: local, region: us-west2}"),
    "engine without a value": (re.compile(r"engine:\n(  .*\n)+"), "engine:\n"),
    "limit at the top": ("name: tiny\n", "name: tiny\nmax_model_len: 512\n"),
    "region of the engine": ("name: vllm", "name: vllm\n  region: us-west-2"),
    "flags as a list": (re.compile(r"  args:\n(    .*\n)+"), "  args: [--enforce-eager, --seed=1, --dtype float32]\n"),
    "flags as on a command line": (re.compile(r"  args:\n(    .*\n)+"), "  args: --enforce-eager --dtype float32\n"),
    "flag beside args": ("name: vllm", "name: vllm\n  seed: 1"),
    "key written twice": ("name: tiny\n", "name: tiny\nname: tiny\n"),
}
BROKEN = {
    "tab": ("  method: p-eagle", "\tmethod: p-eagle"),
    "no space after the colon": ("name: tiny", "name:tiny"),
    "mapping in one line": ("target: {model: ./target}", "target: model: ./target"),
    "colon in a text": ("a pair of a few kB", "a pair: small"),
    "open brace": ("{model: ./target}", "{model: ./target"),
    "too many spaces": ("description:", "  description:"),
    "two documents": ("{name: local}", "{name: local}\n---\nname: other"),
    "sign of YAML": ("a pair of a few kB", "@home"),
}
SYNTAX = {
    r"replace the tab in line (\d+) with two spaces": lambda lines, n: lines[n].replace("\t", "  "),
    r"Close the `{` of line (\d+) with `}`": lambda lines, n: lines[n] + "}",
    r"Remove 2 of the spaces that line (\d+) begins with": lambda lines, n: lines[n][2:],
}


def broken_recipe(folder: Path, old: str | re.Pattern[str], new: str) -> Path:
    path = write_pair(folder)
    text = path.read_text()
    wrong = old.sub(new, text) if isinstance(old, re.Pattern) else text.replace(old, new, 1)
    assert wrong != text
    path.write_text(wrong)
    return path


def follow(path: Path, key: str, hint: str) -> None:
    """Make the edit that the hint gives for a key, and nothing else."""
    yaml = YAML()
    yaml.allow_duplicate_keys = True
    recipe = yaml.load(path.read_text())
    *above, last = key.split(".") if key else [""]
    section = recipe
    for part in above:
        section = section[part]
    if written := re.match(r"(?:Write|For the folder, write) `([\w-]+): (.*?)`", hint):
        assert written[1] == last
        section[last] = YAML(typ="safe").load(written[2])
    elif added := re.match(r"Add `([\w-]+): (.*?)`(?: to `(\w+)`)?\.", hint):
        (recipe.get(added[3]) if added[3] else section)[added[1]] = YAML(typ="safe").load(added[2])
    elif meant := re.match(r"(?:Did you mean|Write) `([\w-]+)`", hint):
        _rename(section, last, meant[1])
    elif other := re.match(r"It belongs to `(\w+)`: write it below that", hint):
        recipe[other[1]][last] = section.pop(last)
    elif flag := re.match(r"If it is a flag of the engine, write `(\w+): (.*?)` below `args`", hint):
        section["args"][flag[1]] = YAML(typ="safe").load(flag[2])
        del section[last]
    elif hint.startswith("Remove it, or write a whole number above 0."):
        del section[last]
    else:
        assert hint == "Keep one of the two."  # as a YAML reader does
    with path.open("w") as file:
        yaml.dump(recipe, file)


def _rename(section: Any, name: str, meant: str) -> None:
    """What was meant is the value where the key is known, else the key itself."""
    if name in ("method", "name"):
        section[name] = meant
    else:
        section[meant] = section.pop(name)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_hint_mends_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = broken_recipe(tmp_path, *MISTAKES[mistake])
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "target").symlink_to(tmp_path / "target")
    (finding,) = check(path).errors
    follow(path, finding.path, finding.hint)
    assert check(path).ok, (finding, check(path), path.read_text())


@pytest.mark.parametrize("mistake", BROKEN)
def test_the_hint_makes_it_yaml(tmp_path: Path, mistake: str) -> None:
    path = broken_recipe(tmp_path, *BROKEN[mistake])
    with pytest.raises(UnreadableRecipe) as caught:
        check(path)
    hint, lines = caught.value.hint, path.read_text().splitlines()
    if written := re.search(r"write `([\w-]+): (.*)`\.", hint):
        named = re.search(r"Line (\d+)", hint) or re.search(r"yaml:(\d+)", caught.value.message)
        assert named
        lines[int(named[1]) - 1] = f"{written[1]}: {written[2]}"
    elif quoted := re.search(r'write `("(.*)")`', hint):
        lines = [line.replace(quoted[2], quoted[1]) for line in lines]
    elif end := re.search(r"remove line (\d+) and all below it", hint):
        del lines[int(end[1]) - 1 :]
    else:
        (edit,) = [(found, make) for said, make in SYNTAX.items() if (found := re.search(said, hint))]
        number = int(edit[0][1]) - 1
        lines[number] = edit[1](lines, number)
    path.write_text("\n".join(lines) + "\n")
    assert check(path).ok, hint


def test_a_folder_that_looks_like_a_hub_id_is_named_as_such(tmp_path: Path) -> None:
    path = broken_recipe(tmp_path, "./target", "models/target")
    (tmp_path / "models" / "target").mkdir(parents=True)
    assert [finding.code for finding in check(path).errors] == ["model.folder-or-hub"]


def test_a_path_begins_at_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pair(tmp_path)
    below = tmp_path / "recipes"
    below.mkdir()
    moved = path.rename(below / path.name)
    moved.write_text(moved.read_text().replace("./drafter", "../drafter"))
    monkeypatch.chdir(tmp_path)
    (finding,) = check(moved).errors
    follow(moved, finding.path, finding.hint)
    assert check(moved).ok
