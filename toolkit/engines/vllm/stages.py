"""How pipeline parallelism divides a model: which layers and other tensors each stage holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# `layers.3.`, or `layers.{0-2,5}.` of tensors that are alike.
_LAYER = re.compile(r"(?:^|\.)layers\.(?:(\d+)|\{([\d,-]+)\})\.")


@dataclass(frozen=True)
class Stage:
    """Layers from `first` to before `end`, of `layers` in all."""

    first: int
    end: int
    layers: int

    @property
    def is_last(self) -> bool:
        """Whether it has the output layer, and with it the drafter."""
        return self.end == self.layers

    def share(self, name: str, *, tied: bool) -> float:
        """How much it holds of a tensor, or of all that such a name with ranges stands for."""
        if found := _LAYER.search(name):
            indices = list(_indices(found[1] or found[2]))
            return sum(self._has(index) for index in indices) / len(indices)
        if "embed_tokens" in name:
            return float(self.first == 0 or (self.is_last and tied))
        return float(self.is_last)

    def _has(self, layer: int) -> bool:
        """Layers behind the model's own draft for it, on the last stage."""
        return self.first <= layer < self.end or (self.is_last and layer >= self.layers)


def stages(layers: int, count: int, written: Sequence[int] = ()) -> list[Stage]:
    """As vLLM 0.32 divides layers (distributed/utils.py, get_pp_indices): as is `written`, else what is left over goes
    to those before the last, which has the output layer.
    """
    sizes = [*written] or [layers // count] * count
    for index in range(layers - sum(sizes)):
        sizes[-index - 2] += 1
    ends = [sum(sizes[: index + 1]) for index in range(count)]
    return [Stage(end - size, end, layers) for size, end in zip(sizes, ends, strict=True)]


def _indices(text: str) -> Iterator[int]:
    for part in text.split(","):
        low, _, high = part.partition("-")
        yield from range(int(low), int(high or low) + 1)
