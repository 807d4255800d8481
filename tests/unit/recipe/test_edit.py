"""Values of a recipe are changed where they stand, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from toolkit.loading import load
from toolkit.recipe.edit import with_evidence, with_section, with_speculation, without_key
from toolkit.recipe.known import catalogue
from toolkit.recipe.load import find
from toolkit.recipe.schema import Evidence

NEW = Evidence(
    workload='a "chat"',
    num_speculative_tokens=4,
    speedup=1.5,
    hardware="2 CPU cores",
    engine="vLLM 0.32.0",
    date="2026-11-22",
    source="toolkit tune",
)


def test_a_value_is_replaced_where_it_stands() -> None:
    text = "speculation:\n  method: p-eagle   # the paper's\n  num_speculative_tokens: 7  # K\nname: a\n"

    assert with_speculation(text, {"num_speculative_tokens": 4}) == text.replace("7", "4")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("speculation: {method: ngram}\n", "speculation: {num_speculative_tokens: 4, method: ngram}\n"),
        ("speculation:\n    method: ngram\n", "speculation:\n    num_speculative_tokens: 4\n    method: ngram\n"),
    ],
)
def test_a_key_that_is_not_there_comes_first(text: str, expected: str) -> None:
    assert with_speculation(text, {"num_speculative_tokens": 4}) == expected


def test_no_value_changes_nothing() -> None:
    assert with_speculation("speculation: {method: ngram}\n", {"num_speculative_tokens": None}).endswith("ngram}\n")


@pytest.mark.parametrize("name", [name for name in catalogue() if name != "tiny/none"])
def test_every_shipped_recipe_can_be_edited(name: str, tmp_path: Path) -> None:
    text = find(name).read_text()
    schedule = [[1, 8, 2], [9, 16, 1]]

    edited = with_evidence(with_speculation(text, {"num_speculative_tokens": 2}), [NEW])

    path = tmp_path / "recipe.yaml"
    path.write_text(edited)
    recipe, before = load(path), load(name)
    assert recipe.speculation
    assert recipe.speculation.num_speculative_tokens == 2
    assert recipe.evidence == [NEW, *before.evidence]
    assert [line for line in text.splitlines() if "#" in line and "num_spec" not in line] == [
        line for line in edited.splitlines() if "#" in line and "num_spec" not in line
    ]
    assert with_speculation(text, {"num_speculative_tokens_per_batch_size": schedule}).count("[[1, 8, 2], [9, 16, 1]]")


@pytest.mark.parametrize("text", ["name: a\n", "name: a\nevidence: []\n", "name: a\nevidence:\n- {a: 1}\n"])
def test_evidence_may_be_missing_or_written_otherwise(text: str) -> None:
    found = YAML(typ="safe").load(with_evidence(text, [NEW]))

    assert found["evidence"][0]["workload"] == 'a "chat"'
    assert found["name"] == "a"


ROAD = """\
name: a
speculation:
  # drafts what came before
  method: ngram  # no model
  prompt_lookup_max: 3  # n

# what it learns from
training:
  data: [./chats.jsonl]  # yours
  # where
  head: ./head  # later
engine: {version: 0.32.0}
"""


def test_a_section_is_replaced_with_what_was_said_of_its_keys_and_nothing_else() -> None:
    edited = with_section(ROAD, "speculation", {"method": "p-eagle", "num_speculative_tokens": 7})
    wanted = '  method: "p-eagle"\n  num_speculative_tokens: 7\n'
    assert edited == "name: a\nspeculation:\n" + wanted + ROAD[ROAD.index("\n# what") :]


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("speculation: {method: ngram}  # why\nname: a\n", 'speculation:\n  method: "eagle3"\nname: a\n'),
        ("name: a\nspeculation: {method: ngram}", 'name: a\nspeculation:\n  method: "eagle3"'),
    ],
)
def test_a_section_on_one_line_is_replaced(text: str, edited: str) -> None:
    assert with_section(text, "speculation", {"method": "eagle3"}) == edited


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        (ROAD, ROAD.replace("  # where\n  head: ./head  # later\n", "")),
        ("training: {data: [a], head: ./b}\n", "training: {data: [a]}\n"),
        ("training: {head: ./b, data: [a]}  # x\n", "training: {data: [a]}  # x\n"),
        ("training: {data: [a]}\n", "training: {data: [a]}\n"),
    ],
)
def test_a_key_is_taken_out(text: str, edited: str) -> None:
    assert without_key(text, "training", "head") == edited
