"""What `check` warns of, a plan tells too: it is the last thing that is read before money is spent."""

from __future__ import annotations

import toolkit


def test_a_plan_tells_each_warning_of_check() -> None:
    recipe = "qwen3-32b/draft-model-trn2-eks"
    warned = [finding for finding in toolkit.check(recipe).findings if finding.severity == "warning"]
    assert warned
    notes = [note for note in toolkit.plan(recipe).notes if note.startswith("Warning: ")]
    assert notes == [f"Warning: {item.path}: {item.message}. {item.hint} [{item.code}]" for item in warned]
