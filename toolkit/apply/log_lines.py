"""The lines that a program wrote, out of what other programs put around them, and those that matter for a cause.

Around them are times, names, colours and JSON. A log of any size is read once, in bounded memory: of each kind of line
(each known cause, each mark of a start or a stage, errors, lines that sound like a failure) the first and the last are
kept, so that nothing that is repeated, however often, displaces what is said once. A kind's lines keep the three before
them: what they continue, or the frame of a traceback.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Any

from toolkit.apply.causes import Words
from toolkit.apply.literals import Pattern

LONGEST_WRAPPED = 65_536
"""Characters of a line that are read, with what is around it."""
_MOST_PREFIXES = 6
# Colours, also as CloudWatch's agent writes them, and its end of line.
_NOISE = re.compile(r"(?:\x1b|#033)\[[0-9;?]*[ -/]*[@-~]|#015\"?$")
_PREFIX = re.compile(
    "|".join(
        [
            r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| ?[+-]\d\d:?\d\d)?\]?(?:[\s|]+|$)",  # of CloudWatch
            r"\d{13},\"?",  # CloudWatch's export as CSV
            r"[\w.-]+/i-[0-9a-f]{8,17}\S*[\s|]+",  # aws logs tail: the stream of a variant's instance
            r"(?:stdout|stderr) [FP] ",  # containerd's files
            r"\[(?:pod|container)/[^\]]+\] ",  # kubectl logs --prefix
            r"[\w.-]+ +\| ",  # docker compose
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]+ [\w.@-]+(?:\[\d+\])?: ",  # journald
            r"\[(?:rank|default)\d+\]: ?",  # PyTorch
            r"(?:\[?\w+ *\]? +)?(?:PyProcess )?W-\d+-\S+-std(?:out|err):? ",  # DJL Serving, TorchServe
            r"(?:MODEL_LOG|[\w.]+WorkerLifeCycle) - ",
            r"\[\d+,\d+\]<std(?:out|err)>: ?",  # MPI
        ]
    )
)
_MESSAGES = ("FailureReason", "message", "Message", "msg", "log", "event")
_LEVELS = ("level", "levelname", "severity")
_ORDINARY = ("debug", "info", "warn", "warning")


def log_lines(log: str | Iterable[str]) -> Iterator[str]:
    """The lines of a log, of an answer of `aws` or `kubectl` as JSON, or of lines of JSON, as they were written."""
    if isinstance(log, str):
        log = (line for part in list(_messages(_json(log))) or [log] for line in part.splitlines())
    for wrapped in log:
        yield from _unwrap(wrapped[:LONGEST_WRAPPED])


def _unwrap(raw: str) -> Iterator[str]:
    line = (_NOISE.sub("", raw) if "\x1b" in raw or "#0" in raw else raw).rstrip()
    for _ in range(_MOST_PREFIXES):
        prefix = _PREFIX.match(line)
        if not prefix:
            break
        line = line[prefix.end() :]
    for part in list(_messages(_json(line))) or [_logged_error(line) or line]:
        yield from part.splitlines() or [""]


def _logged_error(line: str) -> str:
    """Message and error of a line with fields, as controllers in Go write: time, level, message and JSON, with tabs."""
    if "\t" not in line:
        return ""
    *before, fields = line.split("\t")
    document = _json(fields)
    error = document.get("error") if isinstance(document, dict) else None
    return f"{before[-1]}: {error}" if isinstance(error, str) else ""


def _json(text: str) -> Any:
    """The JSON object or list that the text is; None for anything else."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refusal(document: dict[str, Any]) -> Any:
    """The kind of error with which an OpenAI server refuses a request; None for anything else."""
    return document.get("type") if str(document.get("code")).startswith("4") else None


def _messages(document: Any) -> Iterator[str]:
    """Every message in a document, after its reason or the kind of refusal, or after its level if not an error's."""
    if isinstance(document, list):
        for item in document:
            yield from _messages(item)
    if not isinstance(document, dict):
        return
    message = next((document[key] for key in _MESSAGES if isinstance(document.get(key), str)), "")
    reason = document.get("reason") or document.get("Reason") or _refusal(document)
    level = next((str(document[key]).lower() for key in _LEVELS if key in document), "")
    before = "INFO " if level in _ORDINARY else f"{reason}: " if isinstance(reason, str) else ""
    error = document.get("error")  # beside the message, as Go's programs write it (Karpenter)
    after = f": {error}" if message and isinstance(error, str) else ""
    if message or before:
        yield f"{before}{message}{after}"
    for value in document.values():
        yield from _messages(value)


LONGEST_LINE = 2_000
"""Characters of a line that are read: patterns are tried at each of them."""

_SOUNDS_BAD = Pattern(
    r"\b(error|fatal|failed|failure|exception|denied|refused|cannot|killed|died|crashed|aborted|panic)\b"
)
ERROR_LINE = Pattern(
    r"(\b[A-Z]\w*(Error|Exception)(: .+|\((['\"].*)?\)$|$)|(?<!original )\berror: .+|\bValue error, .+)"
)

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
