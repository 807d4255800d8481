"""A failed endpoint on the command line: the cause, the lines that show it, the edit."""

from __future__ import annotations

from toolkit.cli.output import error_document, explain
from toolkit.errors import Cause, EndpointFailed

CAUSE = Cause("disk-full", "OSError: No space left", "Make room.", ("while loading", "OSError: No space left"), True)
LOGS = ["one", "two"]


def test_the_evidence_stands_between_the_cause_and_the_edit() -> None:
    error = EndpointFailed(f"e failed: {CAUSE.line}", hint=CAUSE.hint, logs=LOGS, cause=CAUSE)
    assert explain(error) == (
        "error: e failed: OSError: No space left\n  | while loading\n  | OSError: No space left\n  Make room."
    )


def test_without_a_known_cause_the_last_lines_do() -> None:
    error = EndpointFailed("e failed: x", hint="See: toolkit logs e", logs=LOGS)
    assert explain(error) == "error: e failed: x\n  | one\n  | two\n  See: toolkit logs e"


def test_the_document_has_the_cause_and_the_last_lines() -> None:
    document = error_document(EndpointFailed("e failed", hint="Make room.", logs=LOGS, cause=CAUSE))
    assert document["logs"] == LOGS
    assert document["cause"] == {
        "code": "disk-full",
        "line": "OSError: No space left",
        "hint": "Make room.",
        "evidence": ("while loading", "OSError: No space left"),
        "fatal": True,
    }


def test_the_document_says_when_the_cause_is_unknown() -> None:
    assert error_document(EndpointFailed("e failed", logs=LOGS))["cause"] is None
