"""`toolkit import`: a recipe from another tool's settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit import registry
from toolkit.cli.output import answer, exit_unless, next_step, say
from toolkit.cli.recipe_commands import AnyPlatform, Json
from toolkit.cli.table import paragraphs
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.api.importing import ImportedRecipe


def register(app: typer.Typer) -> None:
    app.command("import")(import_)


def import_(
    file: Annotated[str, typer.Argument(help=f"A file with {registry.importable()}; `-` reads stdin.")],
    out: Annotated[Path | None, typer.Option(help="The recipe's file.  [default: NAME.yaml, here]")] = None,
    platform: Annotated[AnyPlatform | None, typer.Option(help="Where it runs.  [default: sagemaker]")] = None,
    name: Annotated[str | None, typer.Option(help="The recipe's name.  [default: of model and method]")] = None,
    variant: Annotated[str | None, typer.Option(help="Variant to take of a file with several, such as fp8.")] = None,
    as_json: Json = False,
) -> None:
    """Write a recipe from an engine's command line, or from another tool's YAML.

    Nothing is run. What a recipe has no place for is listed, with the reason.
    """
    from toolkit.api.importing import import_recipe

    imported = import_recipe(_text(file), out=out, platform=platform or "sagemaker", name=name, variant=variant)
    answer(imported.to_dict(), as_json, lambda: _shown(imported))
    exit_unless(imported.ok)
    if not as_json:
        next_step("lock", str(imported.path))
        next_step("plan", str(imported.path))


def _text(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    path = Path(file)
    if not path.is_file():
        hint = f"To give a command directly: echo '{registry.example_command()}' | toolkit import -"
        raise UsageError(f"{file}: no such file", hint=hint)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 at byte {error.start}", hint="Save it as UTF-8.") from error


def _shown(imported: ImportedRecipe) -> str:
    say(f"Wrote {imported.path}, from {imported.source}.")
    lines = [f"{finding.message}. {finding.hint}".rstrip() for finding in imported.left_out]
    checks = [finding.line_for(str(imported.path)) for finding in imported.findings if finding.severity != "info"]
    return paragraphs([*lines, *checks] or ["all of it is in the recipe; no findings"])
