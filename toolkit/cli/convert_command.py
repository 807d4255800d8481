"""`toolkit convert`: turn a head from another training tool into a folder that the engine loads."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit import registry
from toolkit.cli.output import answer, exit_unless, next_step

if TYPE_CHECKING:
    from toolkit.findings import Finding
    from toolkit.recipe.facts import ModelFacts
    from toolkit.training.engine import TrainingEngine


def register(app: typer.Typer) -> None:
    app.command()(convert)


def convert(
    head: Annotated[
        Path, typer.Argument(help="Folder of the exported head (SpecForge, NeMo AutoModel or speculators).")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write. The exported head is not changed.")],
    target: Annotated[
        Path | None, typer.Option(help="Folder of the target model, to check that the head fits it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Convert a head that was trained with another tool into a folder that the engine loads."""
    from toolkit.checks.run import Report
    from toolkit.recipe.model_files import read_folder

    engine: TrainingEngine = registry.training_engine()
    converted = engine.convert(head, out, target=target)
    findings = check_head(read_folder(target), read_folder(out), converted.method) if target else ()
    report = Report(str(out), findings)
    document = {
        "out": str(converted.out),
        "format": converted.format,
        "changes": list(converted.changes),
        "findings": [asdict(finding) for finding in findings],
    }
    lines = [
        f"{converted.out}: {converted.method} head, converted from {converted.format}",
        *(f"  {change}" for change in converted.changes or ("no changes were needed",)),
        *(finding.line_for(report.recipe) for finding in findings),
    ]
    answer(document, as_json, lambda: "\n".join(lines))
    exit_unless(report.ok)
    if target and not as_json:
        next_step("new", str(target))


def check_head(target: ModelFacts, head: ModelFacts, method: str) -> tuple[Finding, ...]:
    """The findings of `toolkit check` on this pair of models, for a recipe with method `p-eagle` or `eagle3`."""
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
    found = (*recipe.engine_rules.check(recipe, models), *check_pair(recipe, models))
    return tuple(finding for finding in found if finding.code.startswith("pair."))
