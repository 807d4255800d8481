"""The results of a measurement of any length, in bounded memory: of some the whole answer, of others times and counts.

Answers are for comparing arms, of which a few dozen are judged, and gaps between tokens for percentiles. Whole they
are most of the memory of many results. So those to a share of the requests are kept whole, the same of every arm
and from the first to the last; the share halves whenever they are too many.

When the results themselves are too many, a share of the blocks is kept, as hashes of their numbers choose: with all
arms, all requests that ran together, and from the first to the last. So every figure and interval of them is reckoned
as of a shorter measurement, and is right for one. Of the others answers are only counted; failures are all kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b

from toolkit.measure.result import RequestResult

_MOST_WHOLE, _MOST = 20_000, 200_000
_ALL = 2**64
# A cell of very many, in which intervals are to be told from noise all the same.
_FEWEST = 2_000


class Thinned:
    """Results in their order, at most `most` of them. `left_out` counts by arm the answers that are not held."""

    def __init__(self, most_whole: int = _MOST_WHOLE, most: int = _MOST) -> None:
        self.results: list[RequestResult] = []
        self.left_out: Counter[str] = Counter()
        self._most_whole, self._below, self._whole = most_whole, _ALL, 0
        self._most, self._blocks_below = most, _ALL

    @classmethod
    def of_cells(cls, cells: int) -> Thinned:
        """For one of so many cells, that together hold no more than one would."""
        return cls(most=max(_FEWEST, _MOST // cells))

    def add(self, results: Iterable[RequestResult]) -> None:
        """Add these, and thin what is too much."""
        for result in results:
            if not self._is_held(result):
                self.left_out[result.arm] += 1
                continue
            kept = self._thinned(result)
            self.results.append(kept)
            self._whole += not kept.digest
        while len(self.results) > self._most and self._blocks_below > 1:
            self._blocks_below //= 2
            self.left_out.update(item.arm for item in self.results if not self._is_held(item))
            self.keep(self._is_held)
        while self._whole > self._most_whole and self._below > 1:
            self._below //= 2
            self.results[:] = map(self._thinned, self.results)
            self._whole = sum(not item.digest for item in self.results)

    def keep(self, is_wanted: Callable[[RequestResult], bool]) -> None:
        """Forget all others, as if they had never been."""
        self.results[:] = filter(is_wanted, self.results)
        self._whole = sum(not item.digest for item in self.results)

    def _is_held(self, result: RequestResult) -> bool:
        if self._blocks_below == _ALL or result.outcome != "successful":
            return True
        together = result.request if result.block is None else (result.workload, result.load, result.block)
        return _number(together) < self._blocks_below

    def _thinned(self, result: RequestResult) -> RequestResult:
        if self._below == _ALL or result.digest:
            return result
        return result if _number(result.place) < self._below else result.thinned()


def _number(of: tuple[object, ...]) -> int:
    """The same number below 2**64 for what is equal, in every process."""
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=8).digest())
