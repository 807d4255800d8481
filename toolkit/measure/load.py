"""Requests, each sent and timed: a closed loop keeps a number of them running, an open loop sends them at a rate.

The chunks of a streamed answer become a RequestResult. The acceptance of its drafts is counted by the engine where
it does not report it with each answer.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import accumulate, islice, pairwise
from secrets import token_hex
from typing import Any

from toolkit.endpoint.generation import Acceptance, Answer
from toolkit.endpoint.request import chat_body
from toolkit.errors import PlatformError
from toolkit.measure.arm import FIXED_LENGTH, NO_PENALTIES, Arm, Connection, Workload
from toolkit.measure.result import Outcome, RequestResult
from toolkit.recipe.captured import MEASURED
from toolkit.recipe.prompts import Message


@dataclass(frozen=True)
class Ask:
    """One request to send: a workload's prompt, by its index, for the `round`-th time.

    `at` is when an open loop sends it, in seconds after its beginning; None: by chance. With a cold cache, requests of
    the same `cache` find each other's prompts in it; None: those of no other. `messages` are those of a chat so far;
    none: the prompt's. `turns` are how many of a chat are asked; None: all.
    """

    workload: Workload
    prompt: int
    round: int = 0
    at: float | None = None
    cache: str | None = None
    messages: tuple[Message, ...] = ()
    turns: int | None = None


@dataclass(frozen=True)
class Timing:
    """What all requests of a measurement share.

    `began` is when it began on `clock`; `max_tokens` limits the answers of prompts without their own limit. With
    `cold_cache` no request finds its prompt in the engine's cache. Setting `stop` ends the measurement: requests that
    are still running are cut. `salt` tells this measurement from others in an engine's cache.
    """

    began: float
    max_tokens: int = 256
    cold_cache: bool = False
    stop: asyncio.Event | None = None
    clock: Callable[[], float] = time.perf_counter
    salt: str = field(default_factory=lambda: token_hex(16))

    @property
    def stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()


async def time_request(arm: Arm, ask: Ask, timing: Timing, load: float = 1, open_loop: bool = False) -> RequestResult:
    """Send a request. A failure is a result too; so is a request cut by `stop`, which is incomplete."""
    answer, sent = Answer(), timing.clock()
    outcome: Outcome = "successful"
    error = None
    try:
        async for chunks in arm.connection.stream(body(arm, ask, timing)):
            for chunk in chunks:
                answer.take(*chunk)
        answer.require_complete()
    except PlatformError as failure:
        outcome, error = "failed", failure.message
    except asyncio.CancelledError:
        if not timing.stopped:
            raise
        outcome = "incomplete"
    generation = answer.so_far()
    return RequestResult(
        arm=arm.name,
        workload=ask.workload.name,
        prompt=ask.prompt,
        round=ask.round,
        load=load,
        started=sent - timing.began,
        seconds=generation.latency if outcome == "successful" else timing.clock() - sent,
        outcome=outcome,
        arrivals=generation.arrivals,
        prompt_tokens=generation.prompt_tokens,
        cached_tokens=generation.cached_tokens,
        counts_chunks=generation.counts_chunks,
        output_tokens=generation.completion_tokens,
        reasoning_tokens=generation.reasoning_tokens,
        finish_reason=generation.finish_reason or None,
        acceptance=generation.acceptance,
        error=error,
        open_loop=open_loop,
        prompt_token_ids=generation.prompt_token_ids,
        token_ids=generation.token_ids,
        text=generation.text,
        reasoning=generation.reasoning,
    )


def body(arm: Arm, ask: Ask, timing: Timing) -> Mapping[str, Any]:
    """The request: greedy and without penalties, whatever the model's own defaults are, unless the options differ.

    An endpoint may capture it: `user` says that it is no traffic, which a head would be trained on.
    """
    prompt = ask.workload.prompts[ask.prompt]
    length = {"max_tokens": prompt.max_tokens or timing.max_tokens}
    fixed = {FIXED_LENGTH: True} if ask.workload.fixed_length else {}
    cache = token_hex(16) if ask.cache is None else f"{timing.salt} {ask.cache}"
    salt = {"extra_body": {arm.cache_salt: cache}} if timing.cold_cache and arm.cache_salt else {}
    return chat_body(
        ask.messages or prompt.messages, {**NO_PENALTIES, "user": MEASURED, **length, **fixed, **salt, **arm.options}
    )


async def _time_chat(arm: Arm, ask: Ask, timing: Timing, concurrency: int) -> list[RequestResult]:
    """A request for each turn of a chat, the next one when the answer has come, with all that was said before.

    The chat's own beginning is in the engine's cache, as your users' is. A turn that fails is the last.
    """
    results: list[RequestResult] = []
    said: tuple[Message, ...] = ()
    cache = token_hex(16)
    turns = zip(ask.workload.names, ask.workload.chat(ask.prompt), strict=False)
    for name, messages in islice(turns, ask.turns):
        before = blake2b(json.dumps(said).encode(), digest_size=8).hexdigest() if said else ""
        said = (*said, *messages)
        result = await time_request(arm, replace(ask, messages=said, cache=cache), timing, concurrency)
        results.append(replace(result, workload=name, said=before))
        if result.outcome != "successful":
            break
        said = (*said, {"role": "assistant", "content": result.text})
    return results


async def closed_loop(arm: Arm, asks: Iterable[Ask], concurrency: int, timing: Timing) -> list[RequestResult]:
    """Send the requests with `concurrency` of them running at any time. Results come in the order of their ends.

    `asks` may be without an end: it is read no further once the measurement is stopped. A request that was never sent
    has no result.
    """
    results: list[RequestResult] = []
    waiting = iter(asks)

    async def keep_asking() -> None:
        for ask in _until_stopped(waiting, timing):
            results.extend(await _time_chat(arm, ask, timing, concurrency))

    async with _stoppable(timing) as start:
        for _ in range(concurrency):
            start(keep_asking())
    return results


async def open_loop(
    arm: Arm, asks: Iterable[Ask], rate: float, timing: Timing, seed: int | str = 0
) -> list[RequestResult]:
    """Send `rate` requests per second on average, whether earlier ones have ended or not (a Poisson process).

    Those that have a moment of their own are sent at it.
    """
    results: list[RequestResult] = []
    pauses = random.Random(seed)  # noqa: S311
    loop = asyncio.get_running_loop()

    async def ask_once(ask: Ask) -> None:
        results.append(await time_request(arm, ask, timing, rate, open_loop=True))

    async def send_all() -> None:
        began = due = loop.time()
        for ask in _until_stopped(iter(asks), timing):
            due = due + pauses.expovariate(rate) if ask.at is None else began + ask.at
            await asyncio.sleep(due - loop.time())
            start(ask_once(ask))

    async with _stoppable(timing) as start:
        start(send_all())
    return results


def _until_stopped(asks: Iterator[Ask], timing: Timing) -> Iterator[Ask]:
    while not timing.stopped:
        try:
            yield next(asks)
        except StopIteration:
            return


@asynccontextmanager
async def _stoppable(timing: Timing) -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], None]]:
    """Tasks to wait for, cancelled once the measurement is stopped."""
    tasks: list[asyncio.Task[None]] = []

    async def cancel_when_stopped(stop: asyncio.Event) -> None:
        await stop.wait()
        for task in tasks:
            task.cancel()

    with _no_garbage_collection():
        async with asyncio.TaskGroup() as group:
            yield lambda work: tasks.append(group.create_task(work))
            watch = group.create_task(cancel_when_stopped(timing.stop)) if timing.stop else None
            while pending := [task for task in tasks if not task.done()]:
                await asyncio.wait(pending)
            if watch:
                watch.cancel()


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A collection would hold up all streams for milliseconds."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def count_drafts(
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
    return _share(growth, results)


def _share(acceptance: Acceptance, results: Sequence[RequestResult]) -> list[RequestResult]:
    tokens = [0, *accumulate(result.output_tokens for result in results)]
    if not tokens[-1]:
        return list(results)
    shares = [[round(count * part / tokens[-1]) for part in tokens] for count in acceptance.histogram]
    histograms = zip(*([later - earlier for earlier, later in pairwise(share)] for share in shares), strict=True)
    return [
        replace(result, acceptance=Acceptance(histogram)) for result, histogram in zip(results, histograms, strict=True)
    ]
