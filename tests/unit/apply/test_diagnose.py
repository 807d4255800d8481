"""From a container's log to the cause. The logs in tests/golden/logs are vLLM 0.32.0's own, shortened."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.apply.diagnose import Cause, diagnose

LOGS = Path(__file__).parents[2] / "golden" / "logs"


@pytest.mark.parametrize(
    ("log", "line", "hint"),
    [
        ("no-mask-token", "ValueError: For parallel drafting, the draft model config must have", "no mask token"),
        ("no-mask-hidden", "ValueError: mask_hidden not found in weights but model is", "or `method: eagle3`"),
        (
            "memory",
            "ValueError: Available memory on node 0 (6.54/9.21 GiB) on startup",
            "lower `kv-cache-memory-bytes`",
        ),
        ("unknown-flag", "error: unrecognized arguments: --not-a-flag", "correct engine.args"),
        (
            "max-model-len",
            "Value error, User-specified max_model_len (4096) is greater than",
            "Lower engine.max_model_len",
        ),
        ("vocab", "Value error, Target and draft model should have the same vocabulary size", ""),
    ],
)
def test_a_real_log(log: str, line: str, hint: str) -> None:
    cause = diagnose((LOGS / f"{log}.txt").read_text().splitlines())
    assert cause
    assert cause.line.startswith(line)
    assert hint in cause.hint


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "Not enough memory"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
        ("OSError: [Errno 98] Address already in use", "Another process holds the container's port"),
        ("RuntimeError: The size of tensor a (8) must match the size of tensor b (16)", "drafter's shapes do not fit"),
        ("ModuleNotFoundError: No module named 'vllm'", "pip install 'toolkit[local]'"),
    ],
)
def test_a_known_message(line: str, hint: str) -> None:
    cause = diagnose(["before", line, "after"])
    assert cause
    assert hint in cause.hint


def test_an_unknown_error_is_named_without_a_guess() -> None:
    log = ["(Worker pid=1) ERROR 11-21 02:41:41 [a.py:1] KeyError: 'layers.7'", "RuntimeError: See root cause above."]
    assert diagnose(log) == Cause("KeyError: 'layers.7'", "")


def test_of_several_unknown_errors_the_last_counts() -> None:
    assert diagnose(["ValueError: first", "TypeError: second"]) == Cause("TypeError: second", "")


def test_a_warning_that_quotes_an_error_is_no_cause() -> None:
    """vLLM warns of a low ulimit at every start, and names an OSError in doing so."""
    assert diagnose((LOGS / "starts.txt").read_text().splitlines()) is None


@pytest.mark.parametrize("log", [[], [""], ["INFO all is well"], ["no error here"]])
def test_nothing_to_find(log: list[str]) -> None:
    assert diagnose(log) is None
