"""The results of a measurement of any length: of each the times and counts, of some the whole answer.

Answers are for comparing arms, of which a few dozen are judged, and gaps between tokens for percentiles. Whole they
are most of the memory of a million results. So those to a share of the requests are kept whole, the same of every arm
and from the first to the last; the share halves whenever they are too many.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from toolkit.measure.result import RequestResult

_MOST_WHOLE = 20_000
_ALL = 2**64


class Thinned:
    """Results in their order."""

    def __init__(self, most: int = _MOST_WHOLE) -> None:
        self.results: list[RequestResult] = []
        self._most, self._below, self._whole = most, _ALL, 0

    def add(self, results: Iterable[RequestResult]) -> None:
        """Add these, and thin what is too much."""
        for result in results:
            kept = self._thinned(result)
            self.results.append(kept)
            self._whole += not kept.digest
        while self._whole > self._most and self._below > 1:
            self._below //= 2
            self.results[:] = map(self._thinned, self.results)
            self._whole = sum(not item.digest for item in self.results)

    def _thinned(self, result: RequestResult) -> RequestResult:
        if self._below == _ALL or result.digest:
            return result
        name = repr(result.request).encode()
        return result if int.from_bytes(blake2b(name, digest_size=8).digest()) < self._below else result.thinned()
