"""Commands about recipes: they read, and change nothing but a lock or plan file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.output import answer, exit_unless, say, table

Recipe = Annotated[str, typer.Argument(help="A recipe file, or a name from `toolkit recipes`.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Baseline = Annotated[bool, typer.Option("--baseline", help="Also the same endpoint without speculation.")]
PlatformName = Annotated[str | None, typer.Option("--platform", help="Another platform than the recipe's.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (check, plan, recipes, lock, schema):
        app.command()(command)


def check(recipe: Recipe, as_json: Json = False) -> None:
    """Find what is wrong with a recipe and its models, before it costs anything."""
    from toolkit.checks.run import check as run_checks

    report = run_checks(recipe)
    answer(
        report.to_dict(),
        as_json,
        lambda: _report_text(report.recipe, [f.line_for(report.recipe) for f in report.findings]),
    )
    exit_unless(report.ok)


def plan(
    recipe: Recipe,
    baseline: Baseline = False,
    platform: PlatformName = None,
    out: Annotated[Path | None, typer.Option(help="Save the plan, for `toolkit deploy --plan`.")] = None,
    as_json: Json = False,
) -> None:
    """Show what deploying would make, change and remove, and why. Starts nothing."""
    from toolkit.api import plan as make

    made = make(recipe, platform=platform, baseline=baseline)
    if out:
        made.save(out)
        say(f"saved; apply it: toolkit deploy --plan {out}")
    rows = [(a.verb, a.kind, a.name, a.reason) for a in made.actions]
    cost = f"{len(made.changes)} changes on {made.platform}, {made.price_per_hour:.2f} $/h while it runs"
    answer(made.to_dict(), as_json, lambda: f"{table(('verb', 'kind', 'name', 'because it'), rows)}\n\n{cost}")


def recipes(as_json: Json = False) -> None:
    """List the recipes that come with the toolkit."""
    from toolkit.api import recipes as list_recipes

    found = list_recipes()
    rows = [
        (
            name,
            recipe.method,
            str(recipe.speculation.num_speculative_tokens if recipe.speculation else ""),
            recipe.description,
        )
        for name, recipe in found.entries
    ]
    answer(found.to_dict(), as_json, lambda: table(("recipe", "method", "K", "description"), rows))


def lock(recipe: Recipe, as_json: Json = False) -> None:
    """Write the facts of both models beside the recipe, so that checks are the same everywhere."""
    from toolkit.recipe.lock import write_lock
    from toolkit.recipe.resolve import load

    path = write_lock(load(recipe))
    answer({"lock": str(path)}, as_json, lambda: f"wrote {path}")


def schema() -> None:
    """Print the JSON schema of recipes, for editors."""
    from toolkit.recipe.schema import json_schema

    print(json.dumps(json_schema(), indent=2))  # noqa: T201


def _report_text(recipe: str, lines: list[str]) -> str:
    return "\n".join(lines) if lines else f"{recipe}: no findings"
