"""Run every check on a recipe. Pure but for reading the recipe, its lock and its models' headers: no AWS, no GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from toolkit.checks.container import check_container
from toolkit.checks.engine import check_engine, check_target
from toolkit.checks.pair import check_pair
from toolkit.checks.workloads import check_workloads
from toolkit.errors import RecipeError, ToolkitError, UnreadableModel
from toolkit.findings import Finding, Report
from toolkit.recipe.facts import read_folder
from toolkit.recipe.load import nearest_line
from toolkit.recipe.lock import Lock, lock_path, read_lock
from toolkit.recipe.resolve import Recipe, load


def check(recipe: str | os.PathLike[str] | Recipe) -> Report:
    """All findings on a recipe, those of reading it included. Raises RecipeNotFound when there is nothing to read."""
    try:
        complete = load(recipe)
    except RecipeError as error:
        return Report(error.recipe, error.findings)
    findings = [_with_line(finding, complete) for finding in _findings(complete)]
    return Report(str(complete.path), tuple(sorted(findings, key=lambda finding: finding.line or 0)))


def require(recipe: Recipe) -> Report:
    """The report of a recipe that may be deployed. Raises RecipeError when a check found an error."""
    report = check(recipe)
    if not report.ok:
        raise RecipeError(report.recipe, report.errors)
    return report


def _findings(recipe: Recipe) -> Iterator[Finding]:
    yield from check_container(recipe)
    yield from check_workloads(recipe)
    yield from check_engine(recipe)
    folders, facts = _model_folders(recipe), []
    for key, folder in folders.items():
        try:
            facts.append(read_folder(folder))
        except UnreadableModel as error:
            yield Finding("model.unreadable", error.message, key, hint=error.hint or "Correct the folder.")
    if len(facts) == len(folders):
        models = Lock(*facts)
        yield from check_target(recipe, models.target)
        yield from check_pair(recipe, models)
        yield from _check_lock(recipe, models)


def _model_folders(recipe: Recipe) -> dict[str, Path]:
    drafter = {"speculation.model": recipe.speculation.drafter} if recipe.speculation else {}
    return {"target.model": recipe.target, **drafter}


def _check_lock(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    hint = f"Run: toolkit lock {recipe.path}"
    try:
        locked = read_lock(lock_path(recipe))
    except ToolkitError as error:
        yield Finding("lock.unreadable", error.message, hint=hint, severity="warning")
        return
    if locked and (locked.target, locked.drafter if models.drafter else None) != (models.target, models.drafter):
        message = "the models differ from what the lock file says of them"
        yield Finding("lock.stale", message, "target.model", hint=hint, severity="warning")


def _with_line(finding: Finding, recipe: Recipe) -> Finding:
    return replace(finding, line=nearest_line(finding.path, recipe.lines))
