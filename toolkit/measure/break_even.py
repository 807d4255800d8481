"""Where speculation stops paying as more requests share a step, and the K per batch size that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from toolkit.measure.measurement import Speedup

BatchSizes = tuple[int, int, int]
"""First and last batch size, both included, and the K for them: an entry of `num_speculative_tokens_per_batch_size`."""


def break_even_in_words(speedups: Sequence[Speedup]) -> list[str]:
    """Where each arm's speedup first falls to 1: a sentence for each workload with several concurrencies."""
    measured: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for item in speedups:
        if item.concurrency:
            measured.setdefault((item.arm, item.workload), []).append((item.concurrency, item.ratio))
    return [
        f"{arm} on {workload} {_in_words(sorted(points))}"
        for (arm, workload), points in sorted(measured.items())
        if len(points) > 1
    ]


def _in_words(points: Sequence[tuple[int, float]]) -> str:
    concurrency = _crossing(points)
    if concurrency is None:
        most = points[-1][0]
        return f"does not break even up to {most} concurrent requests, the most that was measured: it is faster."
    if concurrency == 0:
        return "is slower at the lowest concurrency already."
    return f"breaks even at about {concurrency:.0f} concurrent requests."


def _crossing(points: Sequence[tuple[int, float]]) -> float | None:
    """Where the speedup is 1, interpolated on a logarithmic scale; 0: slower from the first on, None: always faster."""
    if points[0][1] < 1:
        return 0.0
    for (few, faster), (many, slower) in pairwise(points):
        if slower < 1:
            share = math.log(faster) / (math.log(faster) - math.log(slower))
            return few * math.pow(many / few, share)
    return None


def schedule(speedups: Sequence[Speedup], k_of_arm: Mapping[str, int], most_requests: int) -> tuple[BatchSizes, ...]:
    """The K with the best speedup, over all workloads alike, for each batch size from 1 to `most_requests`.

    0 where every K costs. A measured concurrency speaks for the batch sizes that are nearest to it on a logarithmic
    scale. Empty if nothing was measured in a closed loop.
    """
    by_concurrency: dict[int, list[Speedup]] = {}
    for item in speedups:
        if item.concurrency and item.concurrency <= most_requests:
            by_concurrency.setdefault(item.concurrency, []).append(item)
    best = {concurrency: _best_k(items, k_of_arm) for concurrency, items in by_concurrency.items()}
    measured = sorted(best)
    ends = [*(math.isqrt(few * many) for few, many in pairwise(measured)), most_requests]
    merged: list[BatchSizes] = []
    for concurrency, end in zip(measured, ends, strict=False):
        k = best[concurrency]
        if merged and merged[-1][2] == k:
            merged[-1] = (merged[-1][0], end, k)
        else:
            merged.append((merged[-1][1] + 1 if merged else 1, end, k))
    return tuple(merged)


def _best_k(speedups: Sequence[Speedup], k_of_arm: Mapping[str, int]) -> int:
    """The K of the arm with the highest geometric mean of its speedups; 0 if that is at most 1."""
    logs: dict[int, list[float]] = {}
    for item in speedups:
        if item.arm in k_of_arm:
            logs.setdefault(k_of_arm[item.arm], []).append(math.log(item.ratio))
    means = {k: sum(values) / len(values) for k, values in logs.items()}
    best = max(means, key=lambda k: means[k], default=0)
    return best if means.get(best, 0.0) > 0 else 0
