"""Run every check on a recipe. Only reads the recipe, its lock and its models' headers: no AWS, no GPU.

Checks of the AWS account are passed in by the caller.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date

from toolkit.catalog.age import current_day
from toolkit.checks.catalogue import check_catalogue
from toolkit.checks.container import check_container
from toolkit.checks.expect import check_expect
from toolkit.checks.folders import folder_hint, folder_of_that_name
from toolkit.checks.listed import check_listed
from toolkit.checks.memory import check_memory
from toolkit.checks.overrides import check_overrides
from toolkit.checks.pair import check_pair
from toolkit.checks.quality import check_quality
from toolkit.checks.tags import check_tags
from toolkit.checks.target import check_target
from toolkit.checks.training import NOT_TRAINED, check_training, not_trained
from toolkit.checks.workloads import check_workloads
from toolkit.errors import RecipeError, ToolkitError, UnreadableModel
from toolkit.findings import Finding, Report
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.known import known_model
from toolkit.recipe.load import nearest_line
from toolkit.recipe.lock import Lock, lock_path, pins, read_lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.resolve import Recipe, load
from toolkit.recipe.source import ModelSource


def check(
    recipe: str | os.PathLike[str] | Recipe,
    *,
    account: Callable[[Recipe], Iterable[Finding]] | None = None,
    today: date | None = None,
    to_train: bool = False,
) -> Report:
    """All findings on a recipe, including errors in the file. Raises RecipeNotFound or UnreadableRecipe.

    `account` returns findings on the account that the recipe is deployed to; its exceptions are not caught. `today`
    tells old facts from recent ones. `to_train` leaves out the head that is there, which training replaces.
    """
    try:
        complete = load(recipe)
    except RecipeError as error:
        return Report(error.recipe, error.findings)
    models, on_models = _models(complete, to_train)
    found = [*on_models, *findings_on(complete, models), *check_catalogue(complete, today or current_day())]
    found += account(complete) if account else ()
    located = [_with_line(finding, complete) for finding in found]
    return Report(str(complete.path), tuple(sorted(located, key=lambda finding: finding.line or 0)))


def require(recipe: Recipe, *, to_train: bool = False) -> Report:
    """The report of a recipe without errors. Raises RecipeError if a check found an error.

    A head that is not trained yet is an error too, unless the recipe is checked `to_train` it.
    """
    report = check(recipe, to_train=to_train)
    errors = [
        finding
        for finding in report.findings
        if finding.severity == "error" or (finding.code == NOT_TRAINED and not to_train)
    ]
    if errors:
        raise RecipeError(report.recipe, errors)
    return report


def findings_on(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on a recipe with these facts of its models; None if they are unknown. Reads no lock and no model."""
    yield from check_container(recipe)
    yield from check_workloads(recipe)
    yield from check_expect(recipe)
    yield from check_training(recipe, models.target if models else None)
    yield from recipe.engine_rules.check(recipe, models)
    yield from check_tags(recipe)
    yield from recipe.platform_rules.check(recipe, models)
    if hardware := recipe.engine_rules.hardware:
        yield from hardware.check(recipe, models)
    yield from check_overrides(recipe, models)
    yield from check_listed(recipe, models)
    if models:
        yield from check_target(recipe, models.target)
        yield from check_pair(recipe, models)
        yield from check_quality(recipe)
        yield from check_memory(recipe, models)


def _models(recipe: Recipe, to_train: bool) -> tuple[Lock | None, list[Finding]]:
    """Facts of the recipe's models (None if one of them is unknown), and findings on the models and the lock."""
    findings = []
    locked, without = None, "there is no lock file"
    try:
        if locked := read_lock(lock_path(recipe)):
            without = "the lock file says nothing of it"
    except ToolkitError as error:
        without = "the lock file cannot be read"
        findings.append(Finding("lock.unreadable", error.message, "target.model", hint=_relock(recipe)))
    target, more = _model(recipe, "target.model", recipe.target, locked.target if locked else None, without)
    findings += more
    if recipe.drafter is None:
        return (Lock(target) if target else None), findings
    in_lock = locked.drafter if locked else None
    if recipe.training and (to_train or not _is_trained(recipe.drafter, in_lock)):
        return (Lock(target) if target else None), [*findings, not_trained(recipe)]
    drafter, more = _model(recipe, "speculation.model", recipe.drafter, in_lock, without)
    findings += more
    return (Lock(target, drafter) if target and drafter else None), findings


def _is_trained(head: ModelSource, locked: ModelFacts | None) -> bool:
    return (head.folder / "config.json").is_file() if head.folder else locked is not None


def _model(
    recipe: Recipe, key: str, source: ModelSource, locked: ModelFacts | None, without: str
) -> tuple[ModelFacts | None, list[Finding]]:
    """Facts of one model: read from its folder, or for any other source from the lock. `without` says why not."""
    if source.folder:
        try:
            facts = read_folder(source.folder)
        except UnreadableModel as error:
            hint = folder_hint(recipe, source) or error.hint or "Correct the path, or the files in that folder."
            return None, [Finding("model.unreadable", error.message, key, hint=hint)]
        stale = locked is not None and locked != facts
        message = "the model in this folder has changed since the lock file was written"
        found = Finding("lock.stale", message, key, hint=_relock(recipe), severity="warning")
        return facts, [found] if stale else []
    if locked is None and source.kind == "hub" and (folder := folder_of_that_name(recipe, source)):
        message = f"`{source}` names a model on the hub, and there is a folder of that name"
        hint = f"For the folder, write `model: {folder}`. For the hub's model, run: toolkit lock {recipe.path}"
        return None, [Finding("model.folder-or-hub", message, key, hint=hint)]
    if locked is None and source.revision is None and (known := known_model(source.written)):
        message = f"{without}: {source} was checked by what the toolkit itself knows of it, and may have changed since"
        return known, [Finding("lock.missing", message, key, hint=_relock(recipe), severity="warning")]
    if locked is None:
        message = f"{without}, so nothing is known about {source}: the pair was not checked"
        return None, [Finding("lock.missing", message, key, hint=_relock(recipe))]
    if not pins(locked, source):
        of = f"{locked.model}@{locked.revision}" if locked.revision else locked.model
        message = f"the lock file was written for {of}"
        return None, [Finding("lock.stale", message, key, hint=_relock(recipe))]
    return locked, [_partial(recipe, key, locked)] if locked.partial else []


def _partial(recipe: Recipe, key: str, facts: ModelFacts) -> Finding:
    unverified = f"; not verified: {'; '.join(facts.unverified)}" if facts.unverified else ""
    message = f"the facts about {facts.model} were taken from publications, not from its files{unverified}"
    return Finding(
        "lock.partial",
        message,
        key,
        hint=f"To read its files from the hub: toolkit lock {recipe.path}",
        severity="info",
    )


def _relock(recipe: Recipe) -> str:
    return f"Run: toolkit lock {recipe.path}"


def _with_line(finding: Finding, recipe: Recipe) -> Finding:
    """With its line, and commands of its hint about this recipe."""
    hint = re.sub(r"\bRECIPE\b", shlex.quote(str(recipe.path)), finding.hint)
    return replace(finding, line=nearest_line(finding.path, recipe.lines), hint=hint)
