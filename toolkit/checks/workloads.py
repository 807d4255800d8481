"""Check and read prompt sets: `.jsonl` files of {"prompt": …}."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolkit import documents
from toolkit.findings import Finding
from toolkit.recipe.resolve import Recipe

_LIMITS = documents.Limits(size=256 * 1024**2)


@dataclass(frozen=True)
class _Line:
    prompt: str


def check_workloads(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the files behind `workloads`."""
    hint = 'Each line must be a JSON object with a `prompt`: {"prompt": "…"}.'
    for name, path in recipe.workloads.items():
        try:
            if not read_prompts(path):
                yield Finding("workload.empty", f"{path} contains no prompts", f"workloads.{name}", hint=hint)
        except FileNotFoundError:
            missing = "Correct the path; it is relative to the recipe's folder."
            yield Finding("workload.unreadable", f"file {path} does not exist", f"workloads.{name}", hint=missing)
        except (OSError, ValueError) as error:
            yield Finding("workload.unreadable", f"not a prompt set: {error}", f"workloads.{name}", hint=hint)


def read_prompts(path: Path) -> tuple[str, ...]:
    """The prompts of a `.jsonl` file, in order. Raises OSError, or ValueError with the line that is wrong."""
    content = documents.read_file(path, _LIMITS).decode()
    lines = content.split("\n")  # splitlines() would split at U+2028 inside a prompt too
    return tuple(_prompt(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip())


def _prompt(line: str, location: str) -> str:
    try:
        return documents.parse(_Line, line).prompt
    except documents.Unfit as error:
        raise ValueError(f"{location}: {error}") from error
