"""What a plan looks like in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.cli.table import paragraphs, table
from toolkit.planning.plan import shown
from toolkit.text import inert

if TYPE_CHECKING:
    from toolkit.planning.plan import Action, Plan


def plan_text(plan: Plan, *, cost: bool = True, verbose: bool = False) -> str:
    """A plan as a table, with what it costs, and its notes; if `verbose`, with each value that it changes."""
    actions = table(("verb", "kind", "name", "reason"), [(a.verb, a.kind, a.name, a.reason) for a in plan.actions])
    summary = f"{plan.size} on {plan.platform}" + (f", {plan.cost}" if cost else "")
    changed = [_changes_text(action) for action in plan.changes if verbose and action.changes]
    return "\n".join([actions, "", *changed, paragraphs([summary, *plan.notes, *plan.unpinned_lines])])


def _changes_text(action: Action) -> str:
    lines = (f"  {item['path']}: {shown(item['from'])} -> {shown(item['to'])}" for item in action.changes)
    return "\n".join([f"{action}:", *map(inert, lines), ""])
