"""From the last lines of a container to the line that says why, and the edit that helps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """Why a container died: `line` is its own words, `hint` the edit to make (empty for an unknown cause)."""

    line: str
    hint: str


# Messages of vLLM 0.32, each seen in a real log, and what to do about it.
_KNOWN = (
    (r"must have .*ptd_token_id|no mask token", "The drafter has no mask token: use a P-EAGLE or PARD drafter."),
    (r"mask_hidden not found", "The head cannot draft in parallel: use a P-EAGLE head, or `method: eagle3`."),
    (r"Available memory .* is less than|out of memory|MemoryError|No available memory",
     "Not enough memory: lower `kv-cache-memory-bytes` in engine.args, or engine.max_num_seqs."),
    (r"unrecognized arguments?: (.*)", "The engine does not know a flag: correct engine.args in the recipe."),
    (r"error: argument --(.*): ", "The engine refuses the value of a flag: correct engine.args in the recipe."),
    (r"No space left on device", "The disk is full: make room, then run the same command again."),
    (r"Address already in use", "Another process holds the container's port: run the same command again."),
    (r"max_model_len .* is greater than", "Lower engine.max_model_len to what the models were made for."),
    (r"size mismatch|The size of tensor|shape.*mismatch|AssertionError: .*shape",
     "The drafter's shapes do not fit the target: use the drafter of this target."),
    (r"No module named '?vllm", "vLLM is not installed in this Python: pip install 'toolkit[local]'."),
)  # fmt: skip

_ERROR_LINE = re.compile(r"(\b[A-Z]\w*(Error|Exception)\b: .+|\berror: .+|\bValue error, .+)")
# Every start warns of a low ulimit and quotes an OSError; the last process only says that another one knows the cause.
_NO_CAUSE = re.compile(r"\b(INFO|WARNING) \d|See root cause above")


def diagnose(lines: Sequence[str]) -> Cause | None:
    """The cause that the log names: a known message, else the last line that looks like an error, else None."""
    for pattern, hint in _KNOWN:
        for line in lines:
            if re.search(pattern, line):
                return Cause(_message(line), hint)
    errors = [line for line in lines if _ERROR_LINE.search(line) and not _NO_CAUSE.search(line)]
    return Cause(_message(errors[-1]), "") if errors else None


def _message(line: str) -> str:
    """The error without the logger's prefix."""
    match = _ERROR_LINE.search(line)
    return match.group(0) if match else line.strip()
