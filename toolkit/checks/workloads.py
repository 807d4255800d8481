"""Check and read prompt sets: `.jsonl` files of {"prompt": …}."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from toolkit.findings import Finding
from toolkit.recipe.resolve import Recipe


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
    lines = path.read_text(encoding="utf-8").split("\n")  # splitlines() would split at U+2028 inside a prompt too
    return tuple(_prompt(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip())


def _prompt(line: str, location: str) -> str:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{location} is not JSON") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("prompt"), str):
        raise ValueError(f"{location} has no `prompt` that is a string")
    prompt: str = entry["prompt"]
    if any("\ud800" <= character <= "\udfff" for character in prompt):
        raise ValueError(f"{location} has half of a surrogate pair, which is not a valid character")
    return prompt
