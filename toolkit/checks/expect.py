"""Check what a recipe expects of its measurement: can it be, and will it be measured at all?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe


def check_expect(recipe: Recipe) -> Iterator[Finding]:
    for workload, wanted in recipe.expect.items():
        path = f"expect.{workload}"
        if recipe.workloads and workload not in recipe.workloads:
            message = f"`workloads` has no {workload}: `toolkit prove` does not measure it"
            hint = f"Add its prompts to `workloads`, or expect something of: {', '.join(recipe.workloads)}."
            yield Finding("expect.not-measured", message, path, hint=hint, severity="warning")
        length, speculation = wanted.acceptance_length, recipe.speculation
        if length and speculation and length > (most := speculation.num_speculative_tokens + 1):
            message = f"an acceptance length of {length:g} is expected, and a target step yields at most {most} tokens"
            hint = f"K + 1 is the most: lower it to at most {most}, or raise `speculation.num_speculative_tokens`."
            yield Finding("expect.impossible", message, f"{path}.acceptance_length", hint=hint)
