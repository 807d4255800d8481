"""Find the cause of a failure, and the edit to make, from a platform's failure reason and a container's log.

`explain` takes any log and any reason: also of endpoints that the toolkit did not create.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from toolkit.apply.causes import HealthCheck, Known, Listed, Words, words
from toolkit.apply.exceptions import about, exceptions, is_fault, last_chain, named_settings
from toolkit.apply.literals import Pattern, PatternSet
from toolkit.apply.log_lines import ERROR_LINE, condense, log_lines, sounds_bad
from toolkit.apply.stages import ANSWERING, stage_of
from toolkit.display import card, in_tone, prose, verbatim
from toolkit.errors import Cause
from toolkit.text import inert

_MOST_EVIDENCE = 5
# Ranks of causes above it tell less than what an exception is about: that something ended, or waits.
_TELLS_LITTLE = 2
_LONGEST_LINE = 300
_BARE = re.compile(r"\w+(\(\))?")
# Between what a sentence counts: each begins with its number.
_ITEMS = re.compile(r", (?=\d)")


@dataclass(frozen=True)
class _Hit:
    """A known cause, and the log line that shows it."""

    known: Known
    lines: Sequence[str]
    at: int


def diagnose(lines: Sequence[str], failure_reason: str = "", platform: str | None = None) -> Cause | None:
    """The cause found in the platform's failure reason, or else in the container's log; None if unknown.

    `failure_reason` is the platform's reason for a failed endpoint, or the error message of a refused request. A vague
    reason (a rank above 0) yields to what the log shows.
    """
    known = words(platform)
    return _diagnose(condense(lines, known), condense(failure_reason.splitlines(), known), known)


def _diagnose(lines: Sequence[str], reason: Sequence[str], known: Words) -> Cause | None:
    refused = _find(known.reasons, reason, known)
    named = _cause(refused, known, fatal=refused.known.certain > 0) if refused else None
    if refused and refused.known.rank <= 0:
        return named
    if cause := _in_log(lines, known) or _in_log(reason, known) or named:
        return cause
    said = "\n".join(reason)
    check = next((check for check in known.health_checks if check.failed.search(said)), None)
    return _unhealthy(lines, said, known, check) if check else None


def _diagnose_text(lines: Sequence[str], known: Words) -> Cause | None:
    """The cause that lines of any origin show: a container's, or the platform's own among them."""
    said = _find(known.reasons, lines, known)
    return _in_log(lines, known) or (_cause(said, known, fatal=said.known.certain > 0) if said else None)


def _answered(lines: Sequence[str], known: Words) -> Cause | None:
    """Why a request was refused, if the answer that its client got is the last thing said."""
    last = next((line for line in reversed(lines) if line and not known.answered.search(line)), "")
    is_answer = known.answer.search(last) and not _tells_nothing(last, known)
    hit = _find(known.requests, [last], known) if is_answer else None
    return _cause(hit, known, fatal=False) if hit else None


def _likeliest(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines that may tell why, where no cause is known: exceptions first, then whatever sounds like a failure."""
    known = words()
    shown = [line for line in reversed(lines) if not _tells_nothing(line, known)]
    errors = [_message(line, known) for line in shown if _is_error(line, known)]
    sources = [_without_prefix(before, known) for before, line in pairwise(lines) if _is_bare(line, known)]
    others = [text for line in shown if sounds_bad(text := _without_prefix(line, known))]
    return tuple(dict.fromkeys([*errors[:1], *sources[-1:], *errors[1:], *others]))[:_MOST_EVIDENCE]


def _in_log(lines: Sequence[str], known: Words) -> Cause | None:
    """What the newest start that shows a known cause ended with."""
    hits = [hit for start in _starts(lines, known) if (hit := _ended_with(start, known))]
    if not hits:
        return None
    newest = hits[-1]
    times = sum(hit.known.code == newest.known.code for hit in hits)
    return _cause(newest, known, fatal=0 < newest.known.certain <= times)


def _is_bare(line: str, known: Words) -> bool:
    """Whether it is an error without a sentence: the line before it, of the source, tells more."""
    return _is_error(line, known) and _BARE.fullmatch(_message(line, known)) is not None


def last_error(lines: Sequence[str]) -> str:
    """The last line that looks like an error and not like the echo of another one; may be empty."""
    known = words()
    lines = condense(lines, known)
    at = _last_error_at(lines, known)
    return "" if at is None else _message(lines[at], known)


def _last_error_at(lines: Sequence[str], known: Words) -> int | None:
    return next((at for at in reversed(range(len(lines))) if _is_error(lines[at], known)), None)


def _is_error(line: str, known: Words) -> bool:
    return bool(ERROR_LINE.search(line)) and not _tells_nothing(line, known)


def _starts(lines: Sequence[str], known: Words) -> Iterator[Sequence[str]]:
    """The log, split at each start of the engine."""
    begins = [at for at, line in enumerate(lines) if known.starts.search(line)][1:]
    for first, end in zip([0, *begins], [*begins, len(lines)], strict=True):
        yield lines[first:end]


def _ended_with(lines: Sequence[str], known: Words) -> _Hit | None:
    """Why a start ended: where the server began to serve, the lines after that show it.

    A log whose beginning is not at hand shows by its requests that it did. What a server that answers raises is about
    its end only where it says that it dies.
    """
    table, raised = known.log, lines
    up = next((at for at, line in enumerate(lines) if known.answers.search(line)), None)
    if up is not None or _somewhere(known.answered, lines, False):
        table, lines = tuple(cause for cause in known.log if not cause.starting), lines[up or 0 :]
        raised = _dying(lines, known)
    hit = _find(table, lines, known)
    return hit if hit and hit.known.rank <= _TELLS_LITTLE else (_exception(raised, known) or hit)


def _dying(lines: Sequence[str], known: Words) -> Sequence[str]:
    """What the engine says in one breath with its death: lines with the same time, process and line of code."""
    at = next((at for at, line in enumerate(lines) if known.dies.search(line)), len(lines))
    said = [(line, found[0].rstrip() if (found := known.prefix.match(line)) else "") for line in lines[at:]]
    return [line for line, prefix in said if prefix == said[0][1]]


def _exception(lines: Sequence[str], known: Words) -> _Hit | None:
    """What the last exception is about, or one that led to it. Never certain: it may be caught, too."""
    raised = list(exceptions(lines, known.prefix))
    while raised and _tells_nothing(lines[raised[-1].at], known):
        raised.pop()
    for each in last_chain(raised, lines):
        line = lines[each.at]
        if not _tells_nothing(line, known) and (subject := about(each, known.subjects, known.settings)):
            guess = Known(subject.code, Pattern(re.escape(line)), subject.hint, certain=0, starting=True)
            return _Hit(guess, lines, each.at)
    return None


def _tells_nothing(line: str, known: Words) -> bool:
    return bool(known.noise.search(line) or known.echo.search(line))


def _find(table: Sequence[Known], lines: Sequence[str], all_words: Words) -> _Hit | None:
    """The first entry of the table that matches, with the matching line that looks most like an error."""
    said = [(at, _matched(all_words.causes, line)) for at, line in enumerate(lines) if not all_words.noise.search(line)]
    telling = [(at, patterns) for at, patterns in said if patterns]
    for known in table:
        places = [at for at, patterns in telling if known.words in patterns]
        if places and _somewhere(known.beside, lines, True) and not _somewhere(known.without, lines, False):
            at = next((at for at in places if ERROR_LINE.search(lines[at])), places[0])
            return _Hit(_counted(known, lines[at], all_words.listed), lines, at)
    return None


@lru_cache(maxsize=32_768)
def _matched(causes: PatternSet, line: str) -> frozenset[Pattern]:
    """The entries whose words a line has: several tables are looked up in the same lines."""
    return frozenset(causes.matching(line))


def _counted(known: Known, line: str, listed: Sequence[Listed]) -> Known:
    """What a sentence counts that has several causes: the first, with the edit for each."""
    for each in listed:
        if found := each.of.search(line):
            items = _ITEMS.split(found[1])
            told = {next((part for part in each.parts if part.words.search(item)), None) for item in items}
            parts = [part for part in each.parts if part in told]
            return replace(known, code=parts[0].code, hint=" ".join(part.hint for part in parts)) if parts else known
    return known


def _somewhere(words: Pattern | None, lines: Sequence[str], default: bool) -> bool:
    return default if words is None else any(words.search(line) for line in lines)


def _cause(hit: _Hit, all_words: Words, fatal: bool) -> Cause:
    at = hit.at
    if hit.known.code in all_words.unknown_deaths and (error := _last_error_at(hit.lines, all_words)) is not None:
        at = error
    line = _message(hit.lines[at], all_words)
    hint = f"{hit.known.meaning(hit.lines[hit.at])} {hit.known.hint}".strip()
    return Cause(hit.known.code, line, hint, _evidence(hit, at, all_words), fatal)


def _evidence(hit: _Hit, at: int, all_words: Words) -> tuple[str, ...]:
    """The log lines that show the cause: the one that `beside` matches, the line with its context, similar lines."""
    known, lines = hit.known, hit.lines
    said = [line for line in lines if not all_words.noise.search(line)]
    beside = [line for line in said if known.beside and known.beside.search(line)][:1]
    is_continuation = all_words.prefix.sub("", lines[at])[:1].isspace()
    before = lines[max(0, at - is_continuation) : at] if at == hit.at else lines[max(0, at - 2) : at]
    alike = [line for line in lines[at + 1 :] if known.words.search(line) and not all_words.noise.search(line)]
    chosen = dict.fromkeys(_without_prefix(line, all_words) for line in [*beside, *before, lines[at], *alike])
    return tuple(chosen)[:_MOST_EVIDENCE]


def _unhealthy(lines: Sequence[str], failure_reason: str, known: Words, check: HealthCheck) -> Cause | None:
    """The cause of a failed health check when the log shows no known cause."""
    *_, newest = _starts(lines, known)
    if not newest:
        return _unhealthy_cause("no-log", _shorten(failure_reason), check, ())
    if check.ended.search(failure_reason) or last_error(newest):
        return None
    last = tuple(_without_prefix(line, known) for line in newest[-_MOST_EVIDENCE:])
    stage, is_known = stage_of(newest), any(mark.search(line) for _, mark in known.stages for line in newest)
    if is_known and stage != ANSWERING:
        line = f"it was still {stage} when the health check timed out"
        return _unhealthy_cause("health-check-too-slow", line, check, last)
    return _not_reached(newest, last, known, check, stage == ANSWERING)


def _not_reached(
    lines: Sequence[str], last: tuple[str, ...], known: Words, check: HealthCheck, answers: bool
) -> Cause | None:
    """The cause if the server does not answer the health check; None if the log shows neither server nor request."""
    listening = [(found, line) for line in lines for listens in known.listens if (found := listens.search(line))]
    if listening:
        match, line = listening[-1]
        if match[2] != check.port or match[1] in ("127.0.0.1", "localhost"):
            listens_on = check.lines["wrong-port"].format(address=f"{match[1]}:{match[2]}")
            return _unhealthy_cause("wrong-port", listens_on, check, (_without_prefix(line, known),))
    refused = tuple(found[0] for line in lines if (found := check.refused.search(line)))
    if not answers and not refused:
        return None
    line = f"it answers with an error: {refused[-1]}" if refused else check.lines["ping-unanswered"]
    return _unhealthy_cause("ping-unanswered", line, check, refused[-_MOST_EVIDENCE:] or last)


def _unhealthy_cause(code: str, line: str, check: HealthCheck, evidence: tuple[str, ...]) -> Cause:
    return Cause(code, line, check.hints[code], evidence, fatal=True)


def _message(line: str, known: Words) -> str:
    """The error without the logger's prefix, or the whole line if it does not look like an error."""
    match = ERROR_LINE.search(line)
    return _shorten(match[0]) if match else _without_prefix(line, known)


def _without_prefix(line: str, known: Words) -> str:
    return _shorten(known.prefix.sub("", line).strip())


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]} …"


_NO_LOG = "no-log"
_NOTHING = "the cause is not known: no line looks like an error"
_UNKNOWN = "the cause is not known; the likeliest line: {line}"
_RAISED_IN = "It was raised in {module}."
_FAULT = (
    "It is a fault within the engine{version}, or settings that it does not expect together: another engine.version "
    "may not have it; `speculation.method: none` and fewer engine.args show what takes part."
)
_NAMES = "The line names {keys}: look there first."
_ASK_FOR_LOG = "Give the whole log of the container that ended: toolkit logs NAME | toolkit explain -"
_LOOK = "Look for that line in the issues of the program that wrote it; `toolkit check RECIPE` may know more."


@dataclass(frozen=True)
class Explanation:
    """Why something failed. Truthy when the cause is known.

    `cause` is the stable code of a known cause (the table in toolkit/apply/README.md), or None. `evidence` are the
    lines that show it, or the likeliest ones where it is not known; `hint` is the edit to make.
    """

    cause: str | None
    message: str
    evidence: tuple[str, ...]
    hint: str

    def __bool__(self) -> bool:
        return self.cause is not None

    def __str__(self) -> str:
        lines = [f"  | {line}" for line in self.evidence if not self.message.endswith(line)]
        first = f"{self.cause}: {self.message}" if self.cause else self.message
        return inert("\n".join([first, *lines, f"  {self.hint}"]))

    def _repr_html_(self) -> str:
        parts = (verbatim("\n".join(self.evidence)), prose(in_tone(self.hint, "good")))
        return card(self.cause or "Cause not known", *parts, says=self.message, tone="bad" if self.cause else "soft")

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit explain --json`."""
        return {**asdict(self), "evidence": list(self.evidence)}


def _where(lines: Sequence[str], likeliest: str, known: Words) -> str:
    """Where to look for what nobody has described: the module that raised it, and the recipe's keys that it names."""
    raised = [each for each in exceptions(lines, known.prefix) if _message(lines[each.at], known) == likeliest]
    modules = dict.fromkeys(each.module for each in raised if each.module)
    keys = dict.fromkeys(_key(name, known) for name in named_settings(likeliest) if name in known.settings)
    said = [_RAISED_IN.format(module=", ".join(modules))] if modules else []
    said += [_FAULT.format(version=_version(lines, known))] if any(map(is_fault, raised)) else []
    said += [_NAMES.format(keys=", ".join(keys))] if keys else []
    return " ".join([*said, _LOOK])


def _version(lines: Sequence[str], known: Words) -> str:
    found = next(filter(None, map(known.version.search, reversed(lines))), None)
    return f" ({found[found.lastindex or 0]})" if found else ""


def _key(name: str, known: Words) -> str:
    key = known.settings[name]
    return f"`{name}` in {key}" if key == "engine.args" else key


def explain(log: str | Iterable[str] | None = None, *, reason: str = "", platform: str | None = None) -> Explanation:
    """Name the cause of a failure, the lines that show it, and the edit to make. Reads nothing but its arguments.

    Args:
        log: Text of a container's log, or its lines, of which any number are read with bounded memory; also `kubectl
            describe pod`, `kubectl get events`, or what `aws` answered as JSON. An empty text says that there is no
            log, None that it is not at hand.
        reason: What the platform says of the failure, such as SageMaker's FailureReason.
        platform: Look for messages of this platform only. Raises UsageError for an unknown one.
    """
    known = words(platform)
    lines, reasons = condense(log_lines(log or ""), known), condense(log_lines(reason), known)
    every = [*lines, *reasons]
    cause = _diagnose(lines, reasons, known) or _diagnose_text(every, known) or _answered(every, known)
    if cause is None or cause.code in known.unknown_deaths or (cause.code == _NO_LOG and log is None):
        lines_of_trouble = _likeliest([*reasons, *lines])
        message = _UNKNOWN.format(line=lines_of_trouble[0]) if lines_of_trouble else _NOTHING
        hint = _where([*reasons, *lines], lines_of_trouble[0], known) if lines_of_trouble else _ASK_FOR_LOG
        return Explanation(None, message, lines_of_trouble, hint)
    return Explanation(cause.code, cause.line, cause.evidence, cause.hint)
