"""Check prompt sets: can the files behind `workloads` be read, and do they contain prompts?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.errors import UsageError
from toolkit.findings import Finding
from toolkit.recipe.prompts import read_prompts
from toolkit.recipe.recipe import Recipe


def check_workloads(recipe: Recipe) -> Iterator[Finding]:
    for name, path in recipe.workloads.items():
        try:
            if not read_prompts(path):
                hint = 'Write a prompt on each line: {"prompt": "Name three rivers."}.'
                yield Finding("workload.empty", f"{path} contains no prompts", f"workloads.{name}", hint=hint)
        except UsageError as error:
            yield Finding("workload.unreadable", error.message, f"workloads.{name}", hint=error.hint)
