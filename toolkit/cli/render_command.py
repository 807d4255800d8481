"""`toolkit render`: manifests to apply with kubectl or GitOps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from toolkit.cli.output import answer, say
from toolkit.cli.recipe_commands import Baseline, Json, Recipe
from toolkit.errors import PlatformError, UsageError
from toolkit.files import write_whole


def register(app: typer.Typer) -> None:
    app.command()(render)


def render(
    recipe: Recipe,
    form: Annotated[Literal["kubernetes"], typer.Option("--format", help="Output format.")] = "kubernetes",
    baseline: Baseline = False,
    part: Annotated[
        Literal["serve", "compile", "train", "benchmark"],
        typer.Option(
            help="What to print: the serving manifests, the Job that compiles for Trainium, the Job that trains the "
            "recipe's head, or the benchmark Job."
        ),
    ] = "serve",
    out: Annotated[
        str, typer.Option(help="Folder to write all parts to, with kustomization.yaml; `-` prints one part.")
    ] = "-",
    as_json: Json = False,
) -> None:
    """Write a recipe as Kubernetes manifests. Needs neither a cluster nor AWS, and starts nothing."""
    from toolkit.api.export import render as make
    from toolkit.platforms.kubernetes.rules.jobs import wait_command
    from toolkit.platforms.kubernetes.rules.manifests import APPLY, files, text

    parts = make(recipe, baseline=baseline, to_train=part == "train" and out == "-")
    if out == "-":
        if not parts.get(part):
            raise UsageError(f"{recipe} needs no {part} Job", hint=f"Remove --part {part}.")
        manifests = [*(parts["base"] if part in ("serve", "compile") else []), *parts[part]]
        answer({"manifests": manifests}, as_json, lambda: text(manifests).rstrip("\n"))
        return
    written = dict(files(parts))
    _write(Path(out), written)
    if as_json:
        answer({"out": out, "files": list(written)}, True, str)
    if "compile" in parts:
        say(f"compile first: {APPLY} -k {out}/compile")
        for job in parts["compile"]:
            say(f"then wait: {wait_command(job)}")
    say(f"serve: {APPLY} -k {out}")
    say(f"measure: {APPLY} -k {out}/benchmark")


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, given by relative path. Raises UsageError."""
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                raise UsageError(
                    f"{path.parent} leads out of {folder}", hint="Remove that link, or choose another folder."
                )
            write_whole(path, content)
    except (OSError, PlatformError) as error:
        raise UsageError(f"cannot write {folder}: {error}", hint="Choose another folder with --out.") from error
