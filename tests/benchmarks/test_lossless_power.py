"""How often the verdict on real engines is right: the tiny pair in bfloat16, each time with other prompts.

ROUNDS is how often (8), TOKENS how long answers are (192: of 96 tokens, 16 answers have no wrong token once in 100 to
200 times).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm
from test_lossless_on_vllm import arguments, changed, in_8_bits, prompts

import toolkit

TIMES = int(os.environ.get("ROUNDS", "8"))
TOKENS = int(os.environ.get("TOKENS", "192"))
BATCHES = (1, 4, 16, 32)
RECIPES = ("tiny/p-eagle", "tiny/eagle3", "tiny/draft-model", "tiny/ngram")


@pytest.fixture
def vllm(tmp_path: Path) -> Iterator[ForkedVllm]:
    with ForkedVllm(tmp_path) as forked:
        yield forked


@pytest.mark.timeout(3600)
def test_right_arms_pass_and_one_wrong_token_in_200_is_caught(
    vllm: ForkedVllm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes = [toolkit.load(name) for name in RECIPES]
    baseline = arguments(recipes[0].baseline())

    def judged(arm: dict[str, Any], trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """In a process of its own: vLLM's CPU build starts no second kind of drafter in one."""
        asked = [{"baseline": "baseline", "arm": "arm", "asked": trial} for trial in trials]
        found: list[dict[str, Any]] = vllm.run("judged", engines={"baseline": baseline, "arm": arm}, trials=asked)
        return found

    def shown(name: str, found: Sequence[dict[str, Any]]) -> tuple[str, str]:
        with capsys.disabled():
            print(
                f"{name:24} lossless {_share(found, 0)}, same target {_share(found, 1)}; {_figures(found)}", flush=True
            )
        return _share(found, 0), _share(found, 1)

    trials = _trials(TIMES)
    right = [
        one
        for index, recipe in enumerate(recipes)
        if (own := trials[index :: len(recipes)])
        for one in judged(arguments(recipe), own)
    ]
    assert shown("right", right) == (f"{TIMES}/{TIMES}", f"{TIMES}/{TIMES}")
    wrong = judged(arguments(recipes[0]), _trials(TIMES, wrong_every=200, batch=16))
    assert shown("one wrong token in 200", wrong)[0] == f"0/{TIMES}"
    eight_bits = changed(recipes[0], tmp_path / "8-bit", in_8_bits)
    for name, others in (("8-bit weights", {"model": eight_bits}), ("float32", {"dtype": "float32"})):
        found = judged(arguments(recipes[0], **others), _trials(4, batch=16))
        assert shown(name, found)[1] == "0/4"


def _trials(times: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"prompts": prompts(seed), "batch": BATCHES[seed % 4], "tokens": TOKENS, "seed": seed, **more}
        for seed in range(times)
    ]


def _share(found: Sequence[dict[str, Any]], verdict: int) -> str:
    return f"{sum(one['holds'][verdict] is True for one in found)}/{len(found)}"


def _figures(found: Sequence[dict[str, Any]]) -> str:
    lossless, targets = [one["lossless"] for one in found], [one["target"] for one in found]
    identical, pairs = (sum(one[key] for one in lossless) for key in ("identical", "pairs"))
    tokens, below, beyond = (sum(one[key] for one in lossless) for key in ("tokens", "below_first", "beyond"))
    limits = sorted(2 * _noise(one["floor"]) for one in lossless)
    own, below_own = (sum(one["floor"][key] for one in lossless) for key in ("tokens", "below_first"))
    change = max(one["mean_change"] for one in targets), min(one["mean_change"] for one in targets)
    return (
        f"{identical}/{pairs} identical, {tokens} tokens, {below} below first, {beyond} beyond, limit {limits[0]:.3f} "
        f"to {limits[-1]:.3f}; baseline {below_own}/{own}; change {change[1]:.4f} to {change[0]:.4f}, noise up to "
        f"{max(one['noise'] for one in targets):.4f}"
    )


def _noise(floor: dict[str, Any]) -> float:
    return max(floor["largest_gap"], floor["step"], floor["largest_change"])
