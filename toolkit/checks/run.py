"""Run every check on a recipe. Only reads the recipe, its lock and its models' headers: no AWS, no GPU.

Checks of the AWS account are passed in by the caller.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from toolkit.catalog import lookup
from toolkit.checks.catalogue import check_catalogue, current_day
from toolkit.checks.listed import check_listed
from toolkit.checks.models import check_memory
from toolkit.checks.sections import check_expect, check_no_effect, check_on_types, check_tags, check_workloads
from toolkit.display import Fragment, Tone, card, data_frame, in_tone, prose, table
from toolkit.errors import RecipeError, ToolkitError, UnreadableModel
from toolkit.findings import Finding
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.known import known_model
from toolkit.recipe.load import nearest_line
from toolkit.recipe.lock import lock_path, pins, read_lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Ask, EngineAnswer
from toolkit.recipe.source import ModelSource, from_folder
from toolkit.text import inert

NOT_TRAINED = "training.not-trained"
"""The code of the finding that only `toolkit train` may ignore."""

_SIGNS: Mapping[str, tuple[str, Tone]] = {"error": ("✘", "bad"), "warning": ("!", "fair"), "info": ("i", "soft")}


@dataclass(frozen=True)
class Report:
    """All findings on one recipe. Truthy exactly when none of them is an error.

    `engine` is what the engine itself says, which is among the findings; None where it has nothing to ask.
    """

    recipe: str
    findings: tuple[Finding, ...] = ()
    engine: EngineAnswer | None = None

    @property
    def ok(self) -> bool:
        """True when no finding is an error."""
        return not self.errors

    @property
    def errors(self) -> Sequence[Finding]:
        """The findings that stop a deployment."""
        return [finding for finding in self.findings if finding.severity == "error"]

    @property
    def warnings(self) -> Sequence[Finding]:
        """What stops nothing, and should be known before money is spent."""
        return [finding for finding in self.findings if finding.severity == "warning"]

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        lines = [finding.line_for(self.recipe) for finding in self.findings]
        head = f"<Report {self.recipe}: {'ok' if self.ok else f'{len(self.errors)} errors'}>"
        return inert("\n".join([head, *lines]))

    def _repr_html_(self) -> str:
        verdict = "✔ no errors" if self.ok else f"✘ {_count(len(self.errors), 'error')}"
        rows = [(_severity(f), f.line or "", f.path, _words(f), f.code) for f in self.findings]
        parts = [table(rows, ("", "line", "key", "finding", "check"))] if rows else []
        tone: Tone = "good" if self.ok else "bad"
        return card(self.recipe, *parts, says=in_tone(verdict, tone), tone=tone)

    def to_dict(self) -> dict[str, Any]:
        """The document of `toolkit check --json`."""
        findings = [asdict(finding) for finding in self.findings]
        engine = {"engine": self.engine.to_dict()} if self.engine else {}
        return {"recipe": self.recipe, "ok": self.ok, "findings": findings, **engine}

    def to_pandas(self) -> Any:
        """A pandas DataFrame, one row for each finding."""
        return data_frame(self.to_dict()["findings"])


def check(
    recipe: Recipe,
    *,
    account: Callable[[Recipe], Iterable[Finding]] | None = None,
    today: date | None = None,
    to_train: bool = False,
    ask: Ask = False,
) -> Report:
    """All findings on a recipe.

    `account` returns findings on the account that the recipe is deployed to; its exceptions are not caught. `today`
    tells old facts from recent ones. `to_train` leaves out the head that is there, which training replaces.
    With `ask` the engine itself is asked, if the recipe's version is installed here, and with "deep" if it can be
    fetched; else what it said before counts.
    """
    models, on_models = _models(recipe, to_train)
    on_recipe = findings_on(recipe, models)
    if not any(finding.code == NOT_TRAINED for finding in on_models):
        on_recipe = map(_of_trained, on_recipe)
    findings = [*on_models, *on_recipe, *check_catalogue(recipe, today or current_day())]
    findings += account(recipe) if account else ()
    asks = recipe.engine_rules.ask
    engine = asks(recipe, models, ask) if asks else None
    if asks is None and ask:
        engine = EngineAnswer(recipe.engine.name, why_not="it can be asked only where it runs")
    findings += _from_engine(engine, findings, ask) if engine else ()
    located = [_with_line(finding, recipe) for finding in findings]
    return Report(str(recipe.path), tuple(sorted(located, key=lambda finding: finding.line or 0)), engine)


def _of_trained(finding: Finding) -> Finding:
    """What only a training needs stands in no one's way when its head is there; `states` are an estimate, too."""
    is_error = finding.code == "training.states" and finding.severity == "error"
    return replace(finding, severity="warning") if is_error else finding


def _from_engine(engine: EngineAnswer, others: Sequence[Finding], ask: Ask) -> Iterator[Finding]:
    """What the engine adds to the others: nothing of a key in which there is an error already."""
    known = [f"{finding.path}." for finding in others if finding.severity == "error"]
    yield from (one for one in engine.findings if not any(path.startswith(f"{one.path}.") for path in known))
    if engine.why_not and ask:
        message = f"{engine.name} was not asked what it makes of this: {engine.why_not}"
        yield Finding("engine.not-asked", message, "engine.version", hint="", severity="info")


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
    yield from check_on_types(recipe, models)
    yield from check_workloads(recipe)
    yield from check_expect(recipe)
    if recipe.training:
        from toolkit.checks.training import check_training  # what it needs takes longer to load than another check does

        yield from check_training(recipe, recipe.training, models.target if models else None)
    yield from check_tags(recipe)
    yield from check_no_effect(recipe)
    yield from recipe.platform_rules.check(recipe, models)
    if hardware := recipe.engine_rules.hardware:
        yield from hardware.check_hardware(recipe, models)
    yield from check_listed(recipe, models)
    if models:
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
    folder = recipe.drafter.folder
    trained = (folder / "config.json").is_file() if folder else in_lock is not None
    if recipe.training and (to_train or not trained):
        return (Lock(target) if target else None), [*findings, _not_trained(recipe)]
    drafter, more = _model(recipe, "speculation.model", recipe.drafter, in_lock, without)
    findings += more
    return (Lock(target, drafter) if target and drafter else None), findings


def _not_trained(recipe: Recipe) -> Finding:
    message = f"there is no head in {recipe.drafter} yet: this recipe says how to train it"
    hint = f"Run: toolkit train {recipe.path}"
    return Finding(NOT_TRAINED, message, "speculation.model", hint=hint, severity="info")


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
        stale = locked is not None and replace(locked, model=facts.model) != facts
        message = "the model in this folder has changed since the lock file was written"
        stale_finding = Finding("lock.stale", message, key, hint=_relock(recipe), severity="warning")
        return facts, [stale_finding] if stale else []
    if locked is None and source.kind == "hub" and (folder := folder_of_that_name(recipe, source)):
        message = f"`{source}` names a model on the hub, and there is a folder of that name"
        hint = f"For the folder, write `model: {folder}`. For the hub's model, run: toolkit lock {recipe.path}"
        return None, [Finding("model.folder-or-hub", message, key, hint=hint)]
    if locked is None and source.revision is None and (known := known_model(source.model)):
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
    hint = f"To read its files from the hub: toolkit lock {recipe.path}"
    return Finding("lock.partial", message, key, hint=hint, severity="info")


def _relock(recipe: Recipe) -> str:
    return f"Run: toolkit lock {recipe.path}"


def _with_line(finding: Finding, recipe: Recipe) -> Finding:
    """With its line, and commands of its hint about this recipe."""
    hint = re.sub(r"\bRECIPE\b", shlex.quote(str(recipe.path)), finding.hint)
    return replace(finding, line=nearest_line(finding.path, recipe.lines), hint=hint)


def _severity(finding: Finding) -> Fragment:
    sign, tone = _SIGNS.get(finding.severity, ("", "soft"))
    return in_tone(f"{sign} {finding.severity}", tone)


def _words(finding: Finding) -> Fragment:
    """What is wrong, and below it the edit to make."""
    return prose(finding.message, in_tone(finding.hint, "soft"))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def folder_of_that_name(recipe: Recipe, source: ModelSource) -> str:
    """How the recipe names a folder that is written like a hub id; empty where there is no such folder."""
    for base in (_base(recipe), Path.cwd()):
        if (base / source.model).is_dir():
            return _from(_base(recipe), base / source.model)
    return ""


def folder_hint(recipe: Recipe, source: ModelSource) -> str:
    """The edit for a folder that does not exist; empty where nothing like it is known."""
    folder = Path(source.model)
    if folder.is_dir():
        return ""
    at_shell = Path.cwd() / os.path.relpath(folder, _base(recipe))
    if at_shell.is_dir():
        return f"Write `model: {_from(_base(recipe), at_shell)}`: the path begins at the recipe's folder."
    known = sorted({name for head in lookup.heads() for name in (head.target, head.repo)})
    if hub := next((name for name in known if name.partition("/")[2].lower() == folder.name.lower()), ""):
        return f"Write `model: {hub}` for the hub's model. A folder of yours is `./{folder.name}` beside the recipe."
    return ""


def _base(recipe: Recipe) -> Path:
    return recipe.path.resolve().parent


def _from(base: Path, folder: Path) -> str:
    return from_folder(base, folder)
