"""From the words of AWS and the lines of a container to the cause, and the edit that mends it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolkit.apply.causes import LOG, PING, REASONS, Known
from toolkit.apply.stages import ANSWERING, STARTS, stage_of
from toolkit.errors import Cause

_MOST_EVIDENCE = 5
_LONGEST_LINE = 300
_SAGEMAKER_PORT = "8080"

_PREFIX = re.compile(r"^\(\w[^)]*\) (ERROR [\d-]+ [\d:]+ \[[^\]]*\] ?)?")
_ERROR_LINE = re.compile(r"(\b[A-Z]\w*(Error|Exception)(: .+|$)|(?<!original )\berror: .+|\bValue error, .+)")
# Every start warns of a low ulimit and quotes an OSError, and logs as an error what it then tries again. The lines of
# code in a traceback name errors too.
_NOISE = re.compile(
    r"\b(INFO|WARNING|DEBUG) \d|^(INFO|WARNING|DEBUG)\b|retrying \d+ of \d+|Error retrieving file list|"
    r"^(\(\w[^)]*\) ERROR .*\] )?\s+raise "
)
# The last process to die only says that another one knows the cause.
_ECHO = re.compile(r"See (root cause above|stack trace for root cause)")
_LISTENS = re.compile(r"(?:Starting vLLM (?:API )?server(?: \d+)? on|Uvicorn running on) https?://([\w.:\[\]]+):(\d+)")
_PING_REFUSED = re.compile(r'"(?:GET|POST) /ping HTTP/[\d.]+" [345]\d\d')


@dataclass(frozen=True)
class _Hit:
    """A known cause and the line of a log that names it."""

    known: Known
    lines: Sequence[str]
    at: int


def diagnose(lines: Sequence[str], failure_reason: str = "") -> Cause | None:
    """The cause that AWS's words name, else the one that the container's lines show; None when neither is known.

    `failure_reason` is DescribeEndpoint's FailureReason or the message of a refused API call.
    """
    refused = _find(REASONS, failure_reason.splitlines())
    if refused:
        return _cause(refused, fatal=refused.known.certain > 0)
    hits = [hit for start in _starts(lines) if (hit := _find(LOG, _after_answering(start)))]
    if hits:
        newest = hits[-1]
        times = sum(hit.known.code == newest.known.code for hit in hits)
        return _cause(newest, fatal=0 < newest.known.certain <= times)
    return _unhealthy(lines, failure_reason) if PING.search(failure_reason) else None


def last_error(lines: Sequence[str]) -> str:
    """The last line that looks like an error of its own; empty when there is none."""
    at = _last_error_at(lines)
    return "" if at is None else _message(lines[at])


def _last_error_at(lines: Sequence[str]) -> int | None:
    def is_one(line: str) -> bool:
        return bool(_ERROR_LINE.search(line)) and not _NOISE.search(line) and not _ECHO.search(line)

    return next((at for at in reversed(range(len(lines))) if is_one(lines[at])), None)


def _starts(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """The log cut where vLLM begins again."""
    begins = [at for at, line in enumerate(lines) if STARTS.search(line)][1:]
    for first, end in zip([0, *begins], [*begins, len(lines)], strict=True):
        yield lines[first:end]


def _after_answering(lines: Sequence[str]) -> Sequence[str]:
    """What may have ended a start: nothing that was written before it succeeded."""
    up = next((at for at, line in enumerate(lines) if "Application startup complete" in line), 0)
    return lines[up:]


def _find(table: Sequence[Known], lines: Sequence[str]) -> _Hit | None:
    """The first entry of the table whose words the lines have, at the first of them that looks like an error."""
    candidates = [(at, line) for at, line in enumerate(lines) if not _NOISE.search(line)]
    for known in table:
        found = [at for at, line in candidates if known.words.search(line)]
        if found and _somewhere(known.beside, lines, True) and not _somewhere(known.without, lines, False):
            return _Hit(known, lines, next((at for at in found if _ERROR_LINE.search(lines[at])), found[0]))
    return None


def _somewhere(words: re.Pattern[str] | None, lines: Sequence[str], default: bool) -> bool:
    return default if words is None else any(words.search(line) for line in lines)


def _cause(hit: _Hit, fatal: bool) -> Cause:
    at = hit.at
    if hit.known.code == "engine-died" and (error := _last_error_at(hit.lines)) is not None:
        at = error
    return Cause(hit.known.code, _message(hit.lines[at]), hit.known.hint, _evidence(hit, at), fatal)


def _evidence(hit: _Hit, at: int) -> tuple[str, ...]:
    """The lines that show it: what must stand beside it, what the line continues, the line itself, more like it."""
    known, lines = hit.known, hit.lines
    beside = [line for line in lines if known.beside and known.beside.search(line)][:1]
    is_continuation = _PREFIX.sub("", lines[at])[:1].isspace()
    before = lines[max(0, at - is_continuation) : at] if at == hit.at else lines[max(0, at - 2) : at]
    alike = [line for line in lines[at + 1 :] if known.words.search(line) and not _NOISE.search(line)]
    chosen = dict.fromkeys(_without_prefix(line) for line in [*beside, *before, lines[at], *alike])
    return tuple(chosen)[:_MOST_EVIDENCE]


def _unhealthy(lines: Sequence[str], failure_reason: str) -> Cause | None:
    """What a failed health check says about a container that left no known cause."""
    *_, newest = _starts(lines)
    if not newest:
        hint = (
            "The container left no log. Most often its image does not start on that instance type (its CUDA is newer "
            "than the driver: take another engine.version or platform.instance_types); else platform.role may not "
            "write logs (logs:CreateLogGroup, logs:CreateLogStream, logs:PutLogEvents), or network.subnets have no "
            "way to them."
        )
        return Cause("no-log", _cut(failure_reason), hint, fatal=True)
    if "ended with exit code" in failure_reason or last_error(newest):
        return None
    last = tuple(_without_prefix(line) for line in newest[-_MOST_EVIDENCE:])
    if (stage := stage_of(newest)) != ANSWERING:
        line = f"it was still {stage} when the time for the health check was up"
        hint = (
            "Raise platform.health_check_timeout (SageMaker allows 3600 s), or take smaller weights or a faster disk."
        )
        return Cause("health-check-too-slow", line, hint, last, fatal=True)
    return _not_reached(newest, last)


def _not_reached(lines: Sequence[str], last: tuple[str, ...]) -> Cause:
    """Why nobody hears a server that is up."""
    listening = [(match, line) for line in lines if (match := _LISTENS.search(line))]
    host, port = (listening[-1][0][1], listening[-1][0][2]) if listening else ("", _SAGEMAKER_PORT)
    shown = (_without_prefix(listening[-1][1]),) if listening else last
    if port != _SAGEMAKER_PORT or host in ("127.0.0.1", "localhost"):
        hint = "Remove `port` and `host` from engine.args: the container sets what SageMaker wants."
        return Cause("wrong-port", f"it listens on {host}:{port}, SageMaker asks port 8080", hint, shown, fatal=True)
    refused = tuple(match[0] for line in lines if (match := _PING_REFUSED.search(line)))
    line = f"it answers with an error: {refused[-1]}" if refused else "it is up, and no answer to GET /ping got through"
    hint = (
        "SageMaker asks GET /ping on port 8080 and wants 200: take an image that `toolkit check RECIPE` knows, remove "
        "`root-path` and `middleware` from engine.args, and let network.security_groups pass what the instance says."
    )
    return Cause("ping-unanswered", line, hint, refused[-_MOST_EVIDENCE:] or last, fatal=True)


def _message(line: str) -> str:
    """The error without the logger's prefix, or the whole line where it does not look like an error."""
    match = _ERROR_LINE.search(line)
    return _cut(match[0]) if match else _without_prefix(line)


def _without_prefix(line: str) -> str:
    return _cut(_PREFIX.sub("", line).strip())


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} …"
