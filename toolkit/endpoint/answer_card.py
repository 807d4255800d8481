"""An answer in a notebook: its text, the reasoning folded, and what it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.display import card, facts, folded, verbatim

if TYPE_CHECKING:
    from toolkit.endpoint.generation import Generation


def answer_card(answer: Generation) -> str:
    acceptance = answer.acceptance
    positions = ", ".join(f"{share:.0%}" for share in acceptance.per_position) if acceptance else ""
    rate = f", {answer.completion_tokens / answer.latency:.0f} tokens/s" if answer.latency else ""
    reasoning = f", {answer.reasoning_tokens} of them reasoning" if answer.reasoning_tokens else ""
    rows = [
        ("tokens", f"{answer.completion_tokens}{reasoning}{rate}"),
        ("first token", f"{answer.ttft * 1000:.0f} ms, then one in {answer.tpot * 1000:.1f} ms"),
        ("acceptance", f"{acceptance.length:.2f} tokens per target step" if acceptance else "no drafts"),
        ("accepted by position", positions),
    ]
    parts = (verbatim(answer.text), folded("reasoning", answer.reasoning), facts(rows))
    says = "cut at max_tokens" if answer.cut else answer.finish_reason
    return card("Answer", *parts, says=says, tone="fair" if answer.cut else "soft")
