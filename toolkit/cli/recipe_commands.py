"""Commands that read a recipe: check it, lock what it names, and say on which instance types it fits."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import toolkit
from toolkit.cli.arguments import Json, Recipe
from toolkit.cli.output import answer, next_step, say
from toolkit.cli.table import paragraphs, table
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.api.fitting import Fits
    from toolkit.api.lock import Locked
    from toolkit.checks.run import Report
    from toolkit.recipe.rules import Ask


def check(
    recipes: Annotated[list[str] | None, typer.Argument(help="Recipe files, or names from `toolkit recipes`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Check all recipes that come with the toolkit.")] = False,
    code: Annotated[str | None, typer.Option("--explain", help="Explain the code of a finding.")] = None,
    account: Annotated[
        bool,
        typer.Option(
            "--account", help="Also check the AWS account: role, permissions, quotas, image, network. Read-only."
        ),
    ] = False,
    ask: Annotated[
        bool,
        typer.Option(
            "--ask", help="Also ask the engine itself, if the recipe's version is installed here. Takes half a minute."
        ),
    ] = False,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Ask the engine even if it is not installed: downloads its Python code, 0.3 GB per version."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Find errors in a recipe and its models before anything is created."""
    from toolkit.api.checking import check as run_checks
    from toolkit.checks.codes import explain
    from toolkit.checks.run import NOT_TRAINED
    from toolkit.recipe.known import catalogue

    if code:
        meaning = explain(code)
        answer(meaning.to_dict(), as_json, lambda: str(meaning))
        return
    names = catalogue() if every else recipes or []
    if not names:
        raise UsageError("give a recipe, or --all", hint="Such as: toolkit check tiny/p-eagle")
    if account:
        from toolkit.platforms.sagemaker.account import account_findings  # brings boto3
    if ask or deep:
        _tell_waiting(map(run_checks, names), deep)
    asking: Ask = "deep" if deep else ask
    reports = [run_checks(name, account=account_findings if account else None, ask=asking) for name in names]
    if not as_json and all(reports):
        engines = {report.engine.name: report.engine for report in reports if report.engine}
        for name, engine in engines.items():
            if engine.can_be_asked:
                say(f"{name} is here, and says with --ask what it makes of this")
            elif engine.can_be_fetched:
                say(f"{name} is not installed here: --deep fetches it, 0.3 GB once, and it says what it makes of this")
    ok, is_one = all(reports), len(reports) == 1
    document = reports[0].to_dict() if is_one else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    untrained = any(finding.code == NOT_TRAINED for finding in reports[0].findings)
    then = ("train" if untrained else "plan", names[0]) if is_one else ()
    answer(document, as_json, lambda: "\n".join(map(_report_text, reports)), yes=ok, then=then)


def _tell_waiting(reports: Iterable[Report], deep: bool) -> None:
    """Say what takes long, before it does."""
    engines = {report.engine.name: report.engine for report in reports if report.engine}
    for name, engine in engines.items():
        if deep and engine.can_be_fetched:
            say(f"fetching the Python code of {name}, and asking it: a minute or more, and both are kept")
        elif engine.can_be_asked:
            say(f"asking {name}: its start takes half a minute, and what it says is kept")


def lock(recipe: Recipe, as_json: Json = False) -> None:
    """Write the lock file: commits of both models, digests of images, and the facts that checks need.

    Reads headers of weights, never the whole. Says what it could not pin.
    """
    from toolkit.api.lock import lock as write
    from toolkit.loading import load

    locked = write(load(recipe))
    answer(locked.to_dict(), as_json, lambda: _lock_text(locked))
    next_step("plan", recipe)


def _lock_text(locked: Locked) -> str:
    pinned = [f"pinned: {what} at {version}" for what, version in locked.pinned.items()]
    return "\n".join([f"wrote {locked.path}", *pinned, *(f"not pinned: {line}" for line in locked.unpinned)])


def schema() -> None:
    """Print the JSON Schema of recipes, for editors."""
    from toolkit.recipe.assemble import json_schema
    from toolkit.registry import recipe_schema

    print(json.dumps(json_schema(recipe_schema()), indent=2))  # noqa: T201


def _report_text(report: Report) -> str:
    lines = [finding.line_for(report.recipe) for finding in report.findings]
    return paragraphs(lines or [f"{report.recipe}: no findings"])


_SHOWN = 10


def fit(
    recipe: Annotated[
        str, typer.Argument(help="A recipe, or a .lock.json file, for which the engine's defaults are assumed.")
    ],
    instance: Annotated[
        list[str] | None, typer.Option("--instance", help="An instance type (repeatable). Default: all of them.")
    ] = None,
    sort: Annotated[
        Literal["price", "kv-price"],
        typer.Option(help="Sort by the price of the instance, or by that of a million tokens of KV cache."),
    ] = "price",
    every: Annotated[bool, typer.Option("--all", help="Print every type, not the first ten.")] = False,
    as_json: Json = False,
) -> None:
    """Show on which instance types a recipe's models fit, cheapest first, and how many requests they hold."""
    fits = toolkit.fit(recipe, instances=instance or (), sort=sort)
    document, then = {**fits.to_dict(), "recipe": recipe}, () if recipe.endswith(".lock.json") else ("plan", recipe)
    answer(document, as_json, lambda: _fit_text(fits, recipe, every or bool(instance)), yes=fits.ok, then=then)


def _fit_text(fits: Fits, recipe: str, whole: bool) -> str:
    """A table of the types that were sized, below it the others by reason; without `whole` of the first ones only."""
    if not whole and len(fits) > _SHOWN:
        fitting = sum(one.fits for one in fits)
        more = f"{max(fitting - _SHOWN, 0)} more fit, {len(fits) - max(fitting, _SHOWN)} do not"
        every = f"{more}. All of them: toolkit fit {shlex.quote(recipe)} --all"
        return f"{_fit_text(fits.first(_SHOWN), recipe, True)}\n{every}"
    from toolkit.api.fitting import COLUMNS, fit_cells

    tables = [table(COLUMNS, [fit_cells(one) for one in fits.sized])] if fits.sized else []
    return "\n".join([*tables, *fits.reasons(), *fits.notes])
