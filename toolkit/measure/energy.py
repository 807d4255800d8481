"""The energy of an arm's answers, where its platform tells what the machine has used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from toolkit.measure.result import RequestResult


@runtime_checkable
class Metered(Protocol):
    """A platform whose endpoints run on a machine with a meter."""

    def energy(self) -> Callable[[], float | None] | None:
        """What reads the joules used so far; None where nothing tells."""


async def count_energy(read: Callable[[], float | None], block: Awaitable[list[RequestResult]]) -> list[RequestResult]:
    """The results of a block of requests, each with a share of the joules used meanwhile, by its output tokens.

    What idle GPUs use, and what other processes do, counts too.
    """
    before = read()
    results = await block
    tokens, after = sum(result.output_tokens for result in results), read()
    if not tokens or before is None or after is None:
        return results
    return [replace(item, joules=(after - before) * item.output_tokens / tokens) for item in results]
