"""Prompts of given lengths, made of the text of real ones, so that a drafter has something real to draft.

Only a server knows how many tokens a text has. So each piece of text is sent once, alone and twice in a row, and the
usage of the answers tells what it adds to a longer one. A made prompt has such pieces, one a line, and is off by a few
tokens. It begins with a line of its own: no other prompt begins alike by chance.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from toolkit.errors import UsageError
from toolkit.measure.arm import Connection, Workload
from toolkit.recipe.captured import MEASURED
from toolkit.recipe.prompts import Prompt

_MOST_PIECES = 32


@dataclass(frozen=True)
class Pieces:
    """Texts with the tokens that each adds. `around` are those of a chat without text, `mark` those of a first line."""

    texts: tuple[tuple[str, int], ...]
    around: int
    mark: int

    def prompt(self, name: str, tokens: int, last: tuple[str, int] | None = None) -> str:
        """A text that makes a chat of so many tokens, always the same for a name. It ends with `last`, if it fits."""
        room = tokens - self.around
        if last and last[1] + self.mark <= room:
            return f"{self.text(name, room - last[1])}\n{last[0]}"
        return self.text(name, room)

    def text(self, name: str, tokens: int) -> str:
        """A text of so many tokens that begins with the name."""
        chosen = random.Random(name)  # noqa: S311
        lines, left = [f"{name}."], tokens - self.mark
        while left > 0:
            piece, size = chosen.choice(self.texts)
            if size > left:
                piece = piece[: max(1, round(len(piece) * left / size))]  # not every language has spaces
            lines.append(piece)
            left -= size
        return "\n".join(lines)


async def lengthened(
    connection: Connection, workload: Workload, lengths: Sequence[int], longest: int | None, answer: int
) -> tuple[Workload, ...]:
    """A workload for each length: its prompts, at most 32, after as much of its other texts as makes them so long.

    `longest` is the most tokens of a request, None if unknown, and `answer` those of answers without a limit of their
    own. Raises UsageError or InvocationError.
    """
    limits = {prompt.text: prompt.max_tokens for prompt in workload.prompts}
    wanted = max(lengths) + max(limit or answer for limit in limits.values())
    if longest and wanted > longest:
        message = (
            f"prompts of {max(lengths):,} tokens with their answers are {wanted:,}, and the model takes {longest:,}"
        )
        raise UsageError(message, hint="Give shorter --prompt-tokens or --max-tokens, or raise engine.max_model_len.")
    pieces = await count_pieces(connection, limits)
    return tuple(
        replace(
            workload,
            name=f"{workload.name}, {tokens_in_words(tokens)}",
            prompts=tuple(
                Prompt(
                    ({"role": "user", "content": pieces.prompt(f"Part {number + 1}", tokens, piece)},), limits[piece[0]]
                )
                for number, piece in enumerate(pieces.texts)
            ),
        )
        for tokens in lengths
    )


def tokens_in_words(tokens: int) -> str:
    """`8k`, or `500 tokens`."""
    return f"{tokens:,} tokens" if tokens % 1000 else f"{tokens // 1000}k"


async def count_pieces(connection: Connection, texts: Iterable[str]) -> Pieces:
    """Texts of prompts with their tokens, as the server counts them. Raises UsageError or InvocationError."""
    chosen = list(dict.fromkeys(texts))[:_MOST_PIECES]
    alone = [await _tokens(connection, [text]) for text in chosen]
    added = [await _tokens(connection, [text, text]) - tokens for text, tokens in zip(chosen, alone, strict=True)]
    mark = await _tokens(connection, ["Part 1234.", chosen[0]]) - alone[0]
    return Pieces(tuple(zip(chosen, (max(1, size) for size in added), strict=True)), alone[0] - added[0], mark)


async def _tokens(connection: Connection, lines: Sequence[str]) -> int:
    body = {"messages": [{"role": "user", "content": "\n".join(lines)}], "max_tokens": 1, "user": MEASURED}
    usage = (await connection.invoke(body)).get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(counted, int):
        hint = "Give prompts of your own with --prompts, or a trace of captured traffic."
        raise UsageError("the server does not tell how many tokens a prompt has, so none can be made", hint=hint)
    return counted
