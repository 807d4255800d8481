"""A trace as a workload: its requests at the moments at which they came, or faster.

A block is what came in some seconds of the trace, from the next request on, and each arm is asked it at the same
moments: pauses between blocks are left out, and every block begins with an idle engine. Requests share what a prefix
cache has as far as they did when they were recorded: those of one pass over the trace have one salt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import takewhile
from statistics import fmean, median

from toolkit.errors import UsageError
from toolkit.measure.arm import Arm, Workload
from toolkit.measure.made_prompts import Pieces
from toolkit.measure.result import RequestResult
from toolkit.measure.trace import BLOCK, Trace, Traced
from toolkit.recipe.prompts import Prompt

_FELL_BEHIND = 2.0


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
            texts.setdefault(block, pieces.text(f"Part {block}", BLOCK))
        names = [*(f"Part {block}" for block in one.blocks), f"Request {number + 1}"]
        end = [pieces.text(names[whole], rest)] if rest else []
        text = "\n".join([*(texts[block] for block in one.blocks[:whole]), *end])
    return Prompt(({"role": "user", "content": text},), one.answer_tokens)


def replay_notes(
    trace: Trace, speed: float, workload: Workload, arms: Sequence[Arm], results: Sequence[RequestResult]
) -> Iterator[str]:
    """What was asked of a trace, and which arm could not keep up with it."""
    asked = {item.prompt for item in results if item.workload == workload.name}
    if not asked:
        return
    requests, last = trace.requests, trace.requests[max(asked)].at
    fast = f" at {speed:g} times its speed" if speed != 1 else ""
    part = f"the first {last:.0f} of {requests[-1].at:.0f} s{fast}"
    yield f"{trace.name}: {len(asked):,} of {len(requests):,} requests were asked, {part}"
    sent = [item.prompt_tokens for item in results if item.workload == workload.name and item.prompt_tokens]
    if workload.fixed_length and sent:
        planned = fmean(requests[number].prompt_tokens or 0 for number in asked)
        yield (
            f"its prompts were made of the workloads' texts, {fmean(sent):.0f} tokens on average where the trace has "
            f"{planned:.0f}, and answers went on to its lengths, beyond their own ends: drafts of those tell less"
        )
    yield from trace.notes
    for arm in arms:
        mine = [item for item in results if (item.arm, item.workload) == (arm.name, workload.name)]
        if (times := _slowing(mine)) > _FELL_BEHIND:
            yield (
                f"{arm.name} did not keep up: a token took {times:.1f} times as long at the end of a block as at its "
                "beginning, and would take longer still without the pauses between blocks"
            )


def _slowing(results: Sequence[RequestResult]) -> float:
    """How many times as long the last third of a block's requests takes for a token as the first."""
    blocks: dict[int | None, list[RequestResult]] = defaultdict(list)
    for item in results:
        if item.output_tokens:
            blocks[item.block].append(item)
    first: list[float] = []
    last: list[float] = []
    for block in blocks.values():
        seconds = [item.seconds / item.output_tokens for item in sorted(block, key=lambda item: item.started)]
        third = len(seconds) // 3
        first += seconds[:third]
        last += seconds[len(seconds) - third :]
    return median(last) / median(first) if first else 1.0
