"""Requests that an endpoint was sent, from SageMaker's data capture: the workload that users really have."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.measure.workload import Prompt, Workload
from toolkit.recipe.captured import captured
from toolkit.recipe.prompts import prompt_of

Objects = Callable[[str], Iterable[tuple[str, bytes]]]
"""Reads every object below a prefix such as `s3://bucket/data-capture/`: its key and content, oldest first."""

# What a measurement can ask in its time; a day's capture may be gigabytes.
_MOST_PROMPTS = 1000


def captured_workload(prefix: str, objects: Iterable[tuple[str, bytes]]) -> Workload:
    """The first thousand captured requests for text. Lines without such a request are counted, and never shown."""
    lines = (line for _, content in objects for line in content.split(b"\n") if line.strip())
    prompts: list[Prompt] = []
    skipped = 0
    for line in lines:
        try:
            prompts.append(_prompt(line))
        except (UsageError, ValueError):
            skipped += 1
        if len(prompts) == _MOST_PROMPTS:
            break
    if not prompts:
        hint = "Give the prefix of an endpoint's capture, and see that it captures the input (`CaptureMode: Input`)."
        raise UsageError(f"{prefix} holds no captured requests for text ({skipped} other lines)", hint=hint)
    others = f"; {skipped} lines were no requests for text" if skipped else ""
    return Workload("captured", tuple(prompts), note=f"captured: {len(prompts)} captured requests{others}")


def _prompt(line: bytes) -> Prompt:
    """A line's request. Raises UsageError or ValueError, as for a request that is not JSON."""
    return prompt_of(captured(documents.decode(line)).request, "a captured request")
