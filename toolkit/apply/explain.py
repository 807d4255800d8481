"""Why something failed, from any log and any reason: also of endpoints that the toolkit did not create."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from toolkit.apply.causes import words
from toolkit.apply.diagnose import diagnose, diagnose_text, likeliest
from toolkit.apply.log_lines import log_lines
from toolkit.errors import Cause

_NO_LOG = "no-log"
_UNKNOWN = "The cause is not known."
_ASK_FOR_LOG = "Give the container's whole log: toolkit logs NAME | toolkit explain -"
_LOOK = "Look for these lines in the issues of the program that wrote them; `toolkit check RECIPE` may know more."


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
        lines = [f"  | {line}" for line in self.evidence if line != self.message]
        return "\n".join([f"{self.cause or 'unknown'}: {self.message}", *lines, f"  {self.hint}"])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit explain --json`."""
        return {**asdict(self), "evidence": list(self.evidence)}


def explain(log: str | None = None, *, reason: str = "", platform: str | None = None) -> Explanation:
    """Name the cause of a failure, the lines that show it, and the edit to make. Reads nothing but its arguments.

    Args:
        log: Text of a container's log, of `kubectl describe pod` or `kubectl get events`, or what `aws` answered as
            JSON; an empty text says that there is no log, None that it is not at hand.
        reason: What the platform says of the failure, such as SageMaker's FailureReason.
        platform: Look for messages of this platform only. Raises UsageError for an unknown one.
    """
    lines, reasons = log_lines(log or ""), log_lines(reason)
    cause = diagnose(lines, "\n".join(reasons), platform) or diagnose_text([*lines, *reasons], platform)
    if cause is None or cause.code in words(platform).unknown_deaths or (cause.code == _NO_LOG and log is None):
        return _unknown([*reasons, *lines], cause, has_log=bool(lines))
    return Explanation(cause.code, cause.line, cause.evidence, cause.hint)


def _unknown(lines: list[str], cause: Cause | None, has_log: bool) -> Explanation:
    evidence = tuple(dict.fromkeys([*(cause.evidence if cause and has_log else ()), *likeliest(lines)]))
    message = f"{_UNKNOWN} The likeliest lines:" if evidence else f"{_UNKNOWN} No line looks like an error."
    return Explanation(None, message, evidence, _LOOK if has_log else _ASK_FOR_LOG)
