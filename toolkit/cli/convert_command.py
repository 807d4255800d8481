"""`toolkit convert`: a head from another trainer becomes a folder that vLLM loads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.output import answer, exit_unless

if TYPE_CHECKING:
    from toolkit.findings import Finding
    from toolkit.recipe.facts import ModelFacts


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(convert)


def convert(
    head: Annotated[Path, typer.Argument(help="The exported head: SpecForge, NeMo AutoModel or speculators.")],
    out: Annotated[Path, typer.Option(help="The folder to write; the head itself stays as it is.")],
    target: Annotated[Path | None, typer.Option(help="The target's folder: check that the head fits it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Convert a head trained elsewhere into the folder that vLLM loads."""
    from toolkit.findings import Report
    from toolkit.recipe.model_files import read_folder
    from toolkit.train.convert import convert as run

    made = run(head, out, target=target)
    findings = check_head(read_folder(target), read_folder(out), made.method) if target else ()
    report = Report(str(out), findings)
    document = {
        "out": str(made.out),
        "format": made.format,
        "changes": list(made.changes),
        "findings": [asdict(finding) for finding in findings],
    }
    lines = [
        f"{made.out}: {made.method} head from {made.format}",
        *(f"  {change}" for change in made.changes or ("nothing to change",)),
        *(finding.line_for(report.recipe) for finding in findings),
    ]
    answer(document, as_json, lambda: "\n".join(lines))
    exit_unless(report.ok)


def check_head(target: ModelFacts, head: ModelFacts, method: str) -> tuple[Finding, ...]:
    """What `toolkit check` says of this pair in a recipe with `method`, which is `p-eagle` or `eagle3`."""
    from toolkit.checks.pair import check_pair
    from toolkit.recipe.load import LoadedRecipe
    from toolkit.recipe.lock import Lock
    from toolkit.recipe.resolve import resolve
    from toolkit.recipe.schema import RecipeFile

    file = RecipeFile.model_validate(
        {
            "name": "convert",
            "target": {"model": "./target"},
            "speculation": {"method": method, "model": "./head", "num_speculative_tokens": 1},
            "engine": {"version": "0.32.0"},
            "platform": {"name": "local"},
        }
    )
    recipe, models = resolve(LoadedRecipe(file, Path("recipe.yaml"), {})), Lock(target, head)
    found = (*recipe.engine.rules.check(recipe, models), *check_pair(recipe, models))
    return tuple(finding for finding in found if finding.code.startswith("pair."))
