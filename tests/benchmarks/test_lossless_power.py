"""How often the verdict on real engines is right: the tiny pair in bfloat16, 20 times each with other prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm
from test_lossless_on_vllm import arguments, in_8_bits, judged, prompts

import toolkit

TIMES = 20
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
    def trials(**more: Any) -> list[dict[str, Any]]:
        return [
            {"prompts": prompts(seed), "batch": BATCHES[seed % 4], "tokens": 256, "seed": seed, **more}
            for seed in range(TIMES)
        ]

    right = [
        one
        for index, recipe in enumerate(RECIPES)
        for one in judged(vllm, *trials()[index::4], arm=arguments(toolkit.load(recipe)))
    ]
    wrong = judged(vllm, *trials(wrong_every=200))
    target = Path(str(toolkit.load(RECIPES[0]).target.folder))
    quantized = arguments(toolkit.load(RECIPES[0]), model=str(in_8_bits(target, tmp_path / "8-bit")))
    other_weights = judged(vllm, *trials()[:4], arm=quantized)
    float32 = judged(vllm, *trials()[:4], arm=arguments(toolkit.load(RECIPES[0]), dtype="float32"))
    with capsys.disabled():
        print(f"\n{'arm':28} {'lossless':>9} {'same target':>11}")
        for name, found in (
            ("right", right),
            ("one wrong token in 200", wrong),
            ("8-bit weights", other_weights),
            ("float32", float32),
        ):
            print(f"{name:28} {_share(found, 0):>9} {_share(found, 1):>11}  {_figures(found)}")
    assert _share(right, 0) == _share(right, 1) == f"{TIMES}/{TIMES}"
    assert _share(wrong, 0) == f"0/{TIMES}"
    assert _share(other_weights, 1) == _share(float32, 1) == "0/4"


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
