"""A log of any size, read once: the lines that matter for its cause, and its end, in bounded memory.

Of each kind of line (each known cause, each mark of a start or a stage, errors, lines that sound like a failure) the
first and the last are kept, so that nothing that is repeated, however often, displaces what is said once. A kind's
lines keep the three before them: what they continue, or the frame of a traceback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain

from toolkit.apply.causes import Words
from toolkit.apply.literals import Pattern

LONGEST_LINE = 2_000
"""Characters of a line that are read: patterns are tried at each of them."""

_SOUNDS_BAD = Pattern(r"\b(error|fatal|failed|failure|exception|denied|refused|cannot|killed|aborted|panic)\b")
ERROR_LINE = Pattern(r"(\b[A-Z]\w*(Error|Exception)(: .+|$)|(?<!original )\berror: .+|\bValue error, .+)")

# The end is kept as it is: a shorter log is read whole.
_END_LINES, _END_CHARACTERS = 20_000, 2_000_000
_AT_ONCE = 500
_FIRST = _LAST = 20
_BEFORE = 3
_Numbered = tuple[int, str]


class _Kind:
    """The first and the last lines of a kind, each with the lines before it."""

    def __init__(self) -> None:
        self.first: list[list[_Numbered]] = []
        self.last: deque[list[_Numbered]] = deque(maxlen=_LAST)

    def add(self, lines: list[_Numbered]) -> None:
        """The lines before, and the line itself."""
        (self.first if len(self.first) < _FIRST else self.last).append(lines)


def condense(lines: Iterable[str], known: Words) -> list[str]:
    """The lines that tell most, in their order; all of a log of up to 20,000 lines."""
    kinds: dict[Hashable, _Kind] = {}
    end: deque[_Numbered] = deque()
    size = 0
    before: deque[_Numbered] = deque(maxlen=_BEFORE)
    for number, text in enumerate(lines):
        line = text[:LONGEST_LINE]
        end.append((number, line))
        size += len(line)
        if len(end) < _END_LINES + _AT_ONCE and size < _END_CHARACTERS + _AT_ONCE * LONGEST_LINE:
            continue
        for left, of_kinds in _sorted_out(end, known):
            size -= len(left[1])
            for kind in of_kinds:
                kinds.setdefault(kind, _Kind()).add([*before, left])
            before.append(left)
    kept = {item for kind in kinds.values() for item in chain(*kind.first, *kind.last)}
    return [line for _, line in (*sorted(kept), *end)]


def _sorted_out(end: deque[_Numbered], known: Words) -> Iterator[tuple[_Numbered, list[Hashable]]]:
    """The oldest lines, which are taken out, with their kinds."""
    oldest = [end.popleft() for _ in range(_AT_ONCE)]
    marks = known.marks.among(line for _, line in oldest)
    said = {number for number, line in oldest if not known.noise.search(line)}
    causes = known.causes.among(line for number, line in oldest if number in said)
    for number, line in oldest:
        kinds: list[Hashable] = [*marks.matching(line)]
        if number in said:
            kinds += causes.matching(line)
            is_error = ERROR_LINE.search(line) is not None
            if is_error or sounds_bad(line):
                kinds.append((is_error, known.echo.search(line) is not None))
        yield (number, line), kinds


def sounds_bad(line: str) -> bool:
    """Whether it has a word that is written when something fails."""
    return _SOUNDS_BAD.search(line.lower()) is not None
