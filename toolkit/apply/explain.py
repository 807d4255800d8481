"""Why something failed, from any log and any reason: also of endpoints that the toolkit did not create."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from toolkit.apply.causes import words
from toolkit.apply.diagnose import diagnose, diagnose_text, likeliest
from toolkit.apply.log_lines import log_lines
from toolkit.display import card, prose, toned, verbatim
from toolkit.text import inert

_NO_LOG = "no-log"
_NOTHING = "the cause is not known: no line looks like an error"
_UNKNOWN = "the cause is not known; the likeliest line: {line}"
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
        parts = (verbatim("\n".join(self.evidence)), prose(toned(self.hint, "good")))
        return card(self.cause or "Cause not known", *parts, says=self.message, tone="bad" if self.cause else "soft")

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
        found = likeliest([*reasons, *lines])
        message = _UNKNOWN.format(line=found[0]) if found else _NOTHING
        return Explanation(None, message, found, _LOOK if found else _ASK_FOR_LOG)
    return Explanation(cause.code, cause.line, cause.evidence, cause.hint)
