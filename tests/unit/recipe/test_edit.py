"""Values of a recipe are changed where they stand, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from toolkit.loading import load
from toolkit.recipe.edit import with_evidence, with_speculation
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
