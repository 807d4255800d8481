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
    recipes = {name: toolkit.load(name) for name in RECIPES}
    first = recipes[RECIPES[0]]
    engines = {
        "baseline": arguments(first.baseline()),
        **{name: arguments(recipe) for name, recipe in recipes.items()},
        "8-bit weights": arguments(first, model=changed(first, tmp_path / "8-bit", in_8_bits)),
        "float32": arguments(first, dtype="float32"),
    }
    trials = {
        "right": [_trial(RECIPES[seed % len(RECIPES)], seed) for seed in range(TIMES)],
        "one wrong token in 200": [_trial(RECIPES[0], seed, batch=16, wrong_every=200) for seed in range(TIMES)],
        **{name: [_trial(name, seed, batch=16) for seed in range(4)] for name in ("8-bit weights", "float32")},
    }
    every = iter(vllm.run("judged", engines=engines, trials=[one for some in trials.values() for one in some]))
    found = {name: [next(every) for _ in some] for name, some in trials.items()}
    with capsys.disabled():
        for name, some in found.items():
            print(f"{name:24} lossless {_share(some, 0)}, same target {_share(some, 1)}; {_figures(some)}")
    assert (_share(found["right"], 0), _share(found["right"], 1)) == (f"{TIMES}/{TIMES}", f"{TIMES}/{TIMES}")
    assert _share(found["one wrong token in 200"], 0) == f"0/{TIMES}"
    assert {_share(found[name], 1) for name in ("8-bit weights", "float32")} == {"0/4"}


def _trial(arm: str, seed: int, batch: int | None = None, **more: Any) -> dict[str, Any]:
    asked = {"prompts": prompts(seed), "batch": batch or BATCHES[seed % 4], "tokens": TOKENS, "seed": seed, **more}
    return {"baseline": "baseline", "arm": arm, "asked": asked}


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
