"""Tensors of the same type and shape in many layers, as one entry: a large mixture of experts has 37,000."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from toolkit.recipe.facts import Tensor

_INDEX = re.compile(r"(?<=\.)\d+(?=\.)")


def merge(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that differ in their layer's or expert's index only, merged; sorted by name.

    `layers.0.w` to `layers.23.w` become `layers.{0-23}.w`. What forms no full grid of indices stays as it is.
    """
    alike: dict[tuple[str, Tensor], list[tuple[int, ...]]] = defaultdict(list)
    for name, tensor in tensors.items():
        indices = tuple(int(index) for index in _INDEX.findall(name))
        alike[_INDEX.sub("{}", name), tensor].append(indices)
    entries: dict[str, Tensor] = {}
    for (pattern, tensor), found in alike.items():
        axes = [sorted(set(axis)) for axis in zip(*found, strict=True)]
        if len(found) > 1 and len(found) == math.prod(map(len, axes)):
            entries[_fill(pattern, [_ranges(axis) for axis in axes])] = replace(tensor, count=len(found))
        else:
            entries |= {_fill(pattern, [str(index) for index in indices]): tensor for indices in found}
    return dict(sorted(entries.items()))


def _fill(pattern: str, texts: Iterable[str]) -> str:
    parts = pattern.split("{}")
    return "".join(part + text for part, text in zip(parts, [*texts, ""], strict=True))


def _ranges(indices: Sequence[int]) -> str:
    """`[0, 1, 2, 5]` as `{0-2,5}`, one index as itself."""
    if len(indices) == 1:
        return str(indices[0])
    runs = [[index for _, index in run] for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0])]
    return "{" + ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) + "}"
