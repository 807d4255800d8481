"""Which head is best: by the conversations that all were measured on, and by what a step of each reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from toolkit.api.head_comparison import COLUMNS, HeadComparison, compare_heads, drafting_bytes
from toolkit.errors import ToolkitError
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.model_files import read_folder
from toolkit.sizing.weights import read_bytes
from toolkit.student import student

MODELS = catalogue_dir() / "tiny" / "models"


def report(conversations: Sequence[tuple[int, int]], k: int = 7) -> Mapping[str, Any]:
    """Of a head with these tokens and steps."""
    tokens, steps = (sum(column) for column in zip(*conversations, strict=True))
    return {
        "acceptance_length": tokens / steps,
        "acceptance_length_low": tokens / steps * 0.9,
        "acceptance_length_high": tokens / steps * 1.1,
        "held_out_conversations": len(conversations),
        "by_source": [],
        "by_conversation": [[number, *one] for number, one in enumerate(conversations)],
        "num_speculative_tokens": k,
        "seconds": 12,
        "steps": 40,
        "ended": "",
        "method": "is not read",
    }


def compared(reports: Mapping[str, Mapping[str, Any]], size_known: bool = True) -> HeadComparison:
    return compare_heads(MODELS, reports, read_folder(MODELS / "target") if size_known else None)


SHORT, LONG = [(20, 10), (22, 11)], [(60, 10), (66, 11)]
UNEVEN = [(40, 20), (90, 15), (60, 30), (75, 15)]
"""Two texts are twice as easy as the others."""


def test_texts_that_differ_widely_hide_no_difference_that_every_one_of_them_shows() -> None:
    """The heads' own intervals overlap; of each conversation the one has 10 % fewer steps."""
    better = [(tokens, steps * 0.9) for tokens, steps in UNEVEN]
    found = compared({"eagle3": report(UNEVEN), "p-eagle": {**report(UNEVEN), **_scaled(better)}}, size_known=False)

    assert found.best == "p-eagle"
    ratio = found.ratios["eagle3"]
    assert ratio is not None
    assert (ratio.low, ratio.ratio, ratio.high) == pytest.approx((1 / 0.9,) * 3)
    assert found.verdict.startswith("p-eagle is accepted most: 1.11 times (1.11-1.11) the acceptance length of eagle3.")


def _scaled(conversations: Sequence[tuple[int, float]]) -> Mapping[str, Any]:
    return report([(10 * tokens, round(10 * steps)) for tokens, steps in conversations])


def test_a_difference_that_only_some_texts_show_is_not_sure() -> None:
    other = [(40, 10), (90, 22), (60, 20), (75, 21)]
    found = compared({"eagle3": report(UNEVEN, k=1), "p-eagle": report(other)})

    assert not found.is_sure
    assert found.verdict.startswith(f"Take {found.best}, but that it is best is not shown: 1.")
    assert found.verdict.endswith("More held-out conversations (`training.held_out`) would tell.")


def test_a_head_that_is_read_for_each_token_pays_for_it() -> None:
    """EAGLE-3 is accepted more, and passes seven times through its head for that."""
    reports = {"eagle3": report([(40, 10), (44, 11)]), "p-eagle": report([(38, 10), (42, 11)])}
    by_length, by_speed = compared(reports, size_known=False), compared(reports)

    assert (by_length.best, by_speed.best) == ("eagle3", "p-eagle")
    parallel, serial = by_speed.heads
    assert serial.read_share is not None
    assert parallel.read_share is not None
    assert parallel.expected_speed == pytest.approx(80 / 21 / (1 + parallel.read_share))
    ratio, lengths = by_speed.ratios["eagle3"], by_length.ratios["p-eagle"]
    assert ratio is not None
    assert lengths is not None
    assert ratio.ratio == pytest.approx((1 + serial.read_share) / (1 + parallel.read_share) / lengths.ratio)


def test_what_is_read_for_a_token_are_all_matrices_but_an_embedding_that_is_looked_up() -> None:
    """By the shapes of the shipped head's own tensors, seven times, against the target's, whose embedding is tied."""
    found = compared({"eagle3": report([(4, 1), (4, 1)]), "p-eagle": report([(4, 1), (4, 1)])})
    (head,) = (one for one in found.heads if one.method == "eagle3")
    assert head.read_share == pytest.approx(7 * matrices("eagle3") / matrices("target"), rel=1e-3)


def test_a_dspark_head_reads_its_block_once_and_what_corrects_a_draft_for_each() -> None:
    """The same weights as another head that drafts in parallel, and a rank of 64 for 1,440 tokens."""
    head = read_folder(MODELS / "p-eagle")
    corrected = replace(head, config={**head.config, "markov_rank": 64})
    assert drafting_bytes("p-eagle", head, 7) == read_bytes(head)
    assert drafting_bytes("dspark", corrected, 7) == read_bytes(head) + 7 * 64 * 1440 * 2


def matrices(model: str) -> int:
    facts = read_folder(MODELS / model)
    assert facts.tensors
    tied = not any(name.endswith("lm_head.weight") for name in facts.tensors)
    read = [tensor for name, tensor in facts.tensors.items() if tied or not name.endswith("embed_tokens.weight")]
    return sum(tensor.numel * tensor.count for tensor in read if len(tensor.shape) == 2)


def test_a_difference_that_every_text_shows_is_sure_where_the_best_pays() -> None:
    found = compared({"eagle3": report(SHORT), "p-eagle": report(LONG)})
    assert (found.best, found.pays, found.is_sure) == ("p-eagle", True, True)
    assert found.verdict.startswith("Take p-eagle: ")


def test_without_the_size_of_the_target_acceptance_alone_is_not_sure_and_takes_none() -> None:
    found = compared({"eagle3": report(SHORT), "p-eagle": report(LONG)}, size_known=False)
    assert (found.best, found.pays, found.is_sure) == ("p-eagle", None, False)
    assert "Take" not in found.verdict
    assert "Which is fastest, or whether any pays, is not known" in found.verdict


def test_a_head_that_the_time_cut_off_might_have_been_the_best() -> None:
    found = compared({"eagle3": {**report(SHORT), "ended": "time", "steps": 7}, "p-eagle": report(LONG)})
    assert not found.is_sure
    assert found.verdict.endswith("The time ended the training of eagle3 early: more `training.max_hours` would tell.")
    assert [head.cells()[COLUMNS.index("steps")] for head in found.heads] == ["40", "7, ended: time"]


def test_a_head_that_no_longer_got_better_is_compared_as_one_that_was_trained_to_the_end() -> None:
    assert compared({"eagle3": {**report(SHORT), "ended": "flat"}, "p-eagle": report(LONG)}).is_sure


def test_one_conversation_shows_nothing() -> None:
    found = compared({"eagle3": report([(40, 10)]), "p-eagle": report([(10, 10)])})
    assert not found.is_sure
    assert found.ratios[found.heads[1].method] is None


def test_heads_that_are_expected_to_slow_the_target_down_are_not_taken() -> None:
    found = compared({"eagle3": report([(5, 10), (6, 11)]), "p-eagle": report([(10, 10), (11, 11)])})
    assert found.heads[0].expected_speed is not None
    assert found.heads[0].expected_speed < 1
    assert not found.is_sure
    assert found.verdict.startswith("None is expected to be faster than the target alone. p-eagle comes nearest: ")


def test_with_more_heads_each_interval_is_wider_since_any_might_have_been_the_best() -> None:
    texts = [(40, 10), (90, 22), (60, 20), (75, 21)]
    two = compared({"eagle3": report(UNEVEN), "p-eagle": report(texts)}, size_known=False)
    three = compared(
        {"eagle3": report(UNEVEN), "p-eagle": report(texts), "draft-model": report([(1, 1)] * 4)}, size_known=False
    )
    narrow, wide = two.ratios[two.heads[1].method], three.ratios[two.heads[1].method]
    assert narrow is not None
    assert wide is not None
    level = 1 - 0.05 / 3
    expected = math.log(narrow.high / narrow.ratio) * student(3, level) / student(3, 0.95)
    assert math.log(wide.high / wide.ratio) == pytest.approx(expected, rel=0.1)


def test_the_document_has_what_the_table_says() -> None:
    document = compared({"eagle3": report(UNEVEN), "p-eagle": report(UNEVEN)}).to_dict()
    assert set(document) == {"heads", "best", "is_sure", "pays", "ratios", "verdict"}
    assert {"method", "acceptance_length", "bytes", "train_seconds", "expected_speed"} <= set(document["heads"][0])


def test_a_report_that_lacks_its_conversations_is_said_to_be_none() -> None:
    reports = {"eagle3": report(UNEVEN), "p-eagle": {**report(UNEVEN), "by_conversation": "none"}}
    with pytest.raises(ToolkitError, match=r"report\.json of the p-eagle head is not a report: "):
        compared(reports)
