"""A trace as a workload: its requests at the moments at which they came, or faster.

A block is what came in some seconds of the trace, from the next request on, and each arm is asked it at the same
moments: pauses between blocks are left out, and every block begins with an idle engine. Requests share what a prefix
cache has as far as they did when they were recorded: those of one pass over the trace have one salt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import fmean, median

from toolkit.errors import UsageError
from toolkit.measure.arm import Workload
from toolkit.measure.design import Design
from toolkit.measure.made_prompts import Pieces
from toolkit.measure.result import RequestResult
from toolkit.measure.slo_search import NOT_COUNTED
from toolkit.measure.trace import BLOCK, Trace, Traced
from toolkit.recipe.prompts import Prompt

# Shares of a block: a request must be so short to tell, and so long may the last ones take.
_SHORT, _BUSY = 1 / 4, 1 / 2


def replayed(trace: Trace, speed: float, seconds: float, pieces: Pieces | None, longest: int | None) -> Workload:
    """What can be asked of a trace in so many seconds. Raises UsageError for a request that is too long for the model.

    `pieces` are for requests without a prompt. `longest` is the most tokens of a request with its answer, None if
    unknown.
    """
    chosen = list(takewhile(lambda one: one.at <= seconds * speed, trace.requests))
    for one in chosen:
        _require_room(one, longest)
    texts: dict[int | str, str] = {}
    prompts = tuple(one.prompt or _made(number, one, pieces, texts) for number, one in enumerate(chosen))
    made = any(one.prompt is None for one in chosen)
    return Workload(trace.name, prompts, fixed_length=made, arrivals=tuple(one.at / speed for one in chosen))


def _require_room(one: Traced, longest: int | None) -> None:
    tokens = (one.prompt_tokens or 0) + (one.answer_tokens or 0)
    if longest and tokens > longest:
        message = f"{one.where}: {one.prompt_tokens} + {one.answer_tokens} tokens, and the model takes {longest}"
        raise UsageError(message, hint="Raise engine.max_model_len, or leave such requests out of the trace.")


def _made(number: int, one: Traced, pieces: Pieces | None, texts: dict[int | str, str]) -> Prompt:
    """A prompt of the request's length; of the same blocks as others as far as the trace says so."""
    assert pieces, "a request without a prompt"
    tokens = one.prompt_tokens or 0
    if not one.blocks:
        last = pieces.texts[number % len(pieces.texts)]
        text = pieces.prompt(f"Request {number + 1}", tokens, last)
    else:
        whole, rest = divmod(max(1, tokens - pieces.around), BLOCK)
        for block in one.blocks[:whole]:
            if block not in texts:
                texts[block] = pieces.text(f"Part {block}", BLOCK)
        names = [*(f"Part {block}" for block in one.blocks), f"Request {number + 1}"]
        end = [pieces.text(names[whole], rest)] if rest else []
        text = "\n".join([*(texts[block] for block in one.blocks[:whole]), *end])
    return Prompt(({"role": "user", "content": text},), one.answer_tokens)


def stretches_of(design: Design, results: Sequence[RequestResult], seconds: float) -> dict[int | None, float]:
    """How long the requests of each block came: `seconds`, less where the trace ended, more in an earlier run."""
    assert design.trace
    arrivals = [one.at / design.speed for one in design.trace.requests]
    end, found = min(arrivals[-1], design.seconds), {}
    for block, members in by_block(results).items():
        came = [arrivals[item.prompt] for item in members]
        found[block] = max(max(came) - min(came), min(seconds, end - min(came)))
    return found


def asked_rate(results: Sequence[RequestResult], stretches: Mapping[int | None, float]) -> float:
    """Requests per second of what was asked."""
    asked = {(item.block, item.prompt) for item in results}
    return float(f"{len(asked) / max(1.0, sum(stretches.values())):.3g}")


def by_block(results: Iterable[RequestResult]) -> dict[int | None, list[RequestResult]]:
    """Each block's results, in the order in which they were sent."""
    blocks: dict[int | None, list[RequestResult]] = defaultdict(list)
    for item in sorted(results, key=lambda item: item.started):
        blocks[item.block].append(item)
    return blocks


def seconds_of(members: Sequence[RequestResult]) -> float:
    """From the first request of a block to its last answer."""
    return max(item.started + item.seconds for item in members) - members[0].started


def without_beginnings(results: Iterable[RequestResult]) -> list[RequestResult]:
    """Without the first fifth of each block, in which a queue only begins."""
    return [item for members in by_block(results).values() for item in members[int(NOT_COUNTED * len(members)) :]]


def replay_notes(
    design: Design, results: Sequence[RequestResult], stretches: Mapping[int | None, float]
) -> Iterator[str]:
    """What was asked of a trace, and which arm could not keep up with it."""
    trace, (workload,) = design.trace, design.workloads
    asked = {item.prompt for item in results}
    if not trace or not asked:
        return
    requests, last = trace.requests, trace.requests[max(asked)].at
    fast = f" at {design.speed:g} times its speed" if design.speed != 1 else ""
    part = f"the first {last:.0f} of {requests[-1].at:.0f} s{fast}"
    yield f"{trace.name}: {len(asked):,} of {len(requests):,} requests were asked, {part}"
    sent = [item.prompt_tokens for item in results if item.prompt_tokens]
    if workload.fixed_length and sent:
        planned = fmean(requests[number].prompt_tokens or 0 for number in asked)
        yield (
            f"its prompts were made of the workloads' texts, {fmean(sent):.0f} tokens on average where the trace has "
            f"{planned:.0f}, and answers went on to its lengths, beyond their own ends: drafts of those tell less"
        )
    yield from trace.notes
    yield (
        f"each block of {median(stretches.values()):.0f} s began with an idle engine: without pauses requests may take "
        "longer, and fewer be in an SLO, of which a block's first fifth is left out"
    )
    for arm in design.all_arms:
        if mine := by_block(item for item in results if item.arm == arm.name):
            yield from _keeping_up(arm.name, [(stretches[block], members) for block, members in mine.items()])


def _keeping_up(arm: str, blocks: Sequence[tuple[float, Sequence[RequestResult]]]) -> Iterator[str]:
    """Whether an arm is still busy long after a block's last request, if its requests are shorter than blocks."""
    stretch = median(seconds for seconds, _ in blocks)
    early = median(members[0].seconds for _, members in blocks)
    late = median(seconds_of(members) - (members[-1].started - members[0].started) for _, members in blocks)
    if early > _SHORT * stretch:
        yield (
            f"whether {arm} keeps up is not shown: the first request of a block took {early:.1f} s, and "
            f"a block has {stretch:.0f} s; with a longer --time blocks are longer, up to a minute"
        )
    elif late > _BUSY * stretch:
        yield (
            f"{arm} did not keep up: it was busy for {late:.1f} s after the last request of a block of {stretch:.0f} "
            "s, and would be for longer without the pauses between blocks"
        )
