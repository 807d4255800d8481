"""An error that a user's call or recipe causes says what to write instead."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import toolkit
from toolkit import errors

PACKAGE = Path(toolkit.__file__).parent
OF_THE_CALL = (errors.UsageError, errors.RecipeNotFound, errors.UnreadableRecipe, errors.UnreadableModel)
NAMES = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, OF_THE_CALL) and kind is not errors.MissingPackage  # has its own
}


@cache
def calls() -> dict[str, list[tuple[str, ast.Call]]]:
    """By what they call: where each call of an error of the user's, or of a finding, stands."""
    found: dict[str, list[tuple[str, ast.Call]]] = {"Finding": [], "error": []}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.func if isinstance(node, ast.Call) else None
            called = getattr(name, "id", getattr(name, "attr", ""))  # of a name or of `errors.NAME`
            if isinstance(node, ast.Call) and called in {*NAMES, "Finding"}:
                kind = "Finding" if called == "Finding" else "error"
                found[kind].append((f"{path.relative_to(PACKAGE)}:{node.lineno}", node))
    return found


def has(call: ast.Call, keyword: str) -> bool:
    """Whether the call gives one that says something; `**settings` may."""
    return any(item.arg in (keyword, None) and not is_text(item.value, "") for item in call.keywords)


def is_text(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def test_every_error_of_a_users_call_has_a_hint() -> None:
    found = calls()["error"]
    assert len(found) > 300
    assert [place for place, call in found if not has(call, "hint")] == []


def test_every_finding_but_information_has_a_hint() -> None:
    found = calls()["Finding"]
    assert len(found) > 300

    def informs(call: ast.Call) -> bool:
        return any(item.arg == "severity" and is_text(item.value, "info") for item in call.keywords)

    lacking = [place for place, call in found if not call.args[4:] and not has(call, "hint") and not informs(call)]
    assert lacking == []
