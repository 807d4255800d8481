"""The acceptance of drafts by the engine's own counters, for engines that do not report it with each answer."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from toolkit.endpoint.generation import Acceptance
from toolkit.measure.arm import Connection
from toolkit.measure.result import RequestResult


async def counted(
    connection: Connection, block: Awaitable[list[RequestResult]], needless: list[Connection]
) -> list[RequestResult]:
    """The results of a block of requests, with what the engine's counters grew by meanwhile as their acceptance.

    Results that have their own acceptance stay as they are. Connections where that is so, and those without counters,
    join `needless`, and are not asked again: a page of counters costs the engine time. The counters know no single
    requests: each result gets a share of the growth by its output tokens, so only sums over whole blocks are exact,
    and other traffic counts too.
    """
    if connection in needless:
        return await block
    before = await connection.acceptance()
    results = await block
    if before is None or any(result.acceptance for result in results):
        needless.append(connection)
        return results
    after = await connection.acceptance()
    growth = after - before if after else None
    if growth is None or min(growth.histogram, default=0) < 0:  # the engine was started anew
        return results
    return _shared(growth, results)


def _shared(acceptance: Acceptance, results: Sequence[RequestResult]) -> list[RequestResult]:
    tokens = [0, *accumulate(result.output_tokens for result in results)]
    if not tokens[-1]:
        return list(results)
    shares = [[round(count * part / tokens[-1]) for part in tokens] for count in acceptance.histogram]
    histograms = zip(*([later - earlier for earlier, later in pairwise(share)] for share in shares), strict=True)
    return [
        replace(result, acceptance=Acceptance(histogram)) for result, histogram in zip(results, histograms, strict=True)
    ]
