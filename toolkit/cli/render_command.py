"""`toolkit render`: a recipe as manifests, or as a Helm chart."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.cli.arguments import Baseline, Json, Recipe
from toolkit.cli.output import answer, say
from toolkit.errors import UsageError, reason
from toolkit.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping


def render(
    recipe: Recipe,
    form: Annotated[  # noqa: ARG001 (there is one)
        Literal["kubernetes"], typer.Option("--format", help="Output format.")
    ] = "kubernetes",
    baseline: Baseline = False,
    part: Annotated[
        Literal["serve", "compile", "train", "benchmark", "rbac"],
        typer.Option(
            help="What to print: the serving manifests, the Job that compiles for Trainium, the Job that trains the "
            "recipe's head, the benchmark Job, or roles for your cluster's users."
        ),
    ] = "serve",
    out: Annotated[
        str, typer.Option(help="Folder to write all parts to, with kustomization.yaml; `-` prints one part.")
    ] = "-",
    helm: Annotated[
        bool,
        typer.Option(
            "--helm", help="Write a Helm chart of the serving manifests to --out, with values for each environment."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a recipe as Kubernetes manifests. Needs neither a cluster nor AWS, and starts nothing."""
    from toolkit.api.export import render as make
    from toolkit.platforms.kubernetes.rules.jobs import wait_command
    from toolkit.platforms.kubernetes.rules.manifests import APPLY, files, text

    if helm:
        if part != "serve":
            hint = f"Leave out --helm and --out: toolkit render {shlex.quote(recipe)} --part {part}"
            raise UsageError(f"a chart has what serves, and no {part}", hint=hint)
        _write_chart(recipe, baseline, out, as_json)
        return
    if part != "serve" and out != "-":
        raise UsageError("--out writes all parts, and --part prints one", hint=f"Leave out --part {part}, or --out.")
    parts = make(recipe, baseline=baseline, to_train=part == "train")
    if out == "-":
        if not parts.get(part):
            raise UsageError(f"{recipe} needs no {part} Job", hint=f"Remove --part {part}.")
        before = [*parts["namespace"], *parts["base"]] if part in ("serve", "compile") else []
        manifests = [*before, *parts[part]]
        answer({"manifests": manifests}, as_json, lambda: text(manifests).rstrip("\n"))
        return
    written = dict(files(parts))
    _write_files(Path(out), written)
    if as_json:
        answer({"out": out, "files": list(written)}, True, str)
    say(f"once, for all endpoints of its namespace: {APPLY} -k {out}/namespace")
    if "compile" in parts:
        say(f"compile first: {APPLY} -k {out}/compile")
        for job in parts["compile"]:
            say(f"then wait: {wait_command(job)}")
    say(f"serve: {APPLY} -k {out}")
    say(f"measure: {APPLY} -k {out}/benchmark")


def _write_chart(recipe: str, baseline: bool, out: str, as_json: bool) -> None:
    from toolkit.api.export import render as make
    from toolkit.loading import load
    from toolkit.platforms.kubernetes.rules.chart import chart, leftovers

    if out == "-":
        raise UsageError("a chart is a folder", hint="Add: --out DIR")
    loaded = load(recipe)
    parts = make(loaded, baseline=baseline)
    written = dict(chart(loaded, parts))
    try:
        before = leftovers(Path(out), written)
        _write_files(Path(out), written)
        for path in before:
            path.unlink()
            say(f"removed {path}: the recipe has it no more")
    except OSError as error:
        raise UsageError(f"cannot write {out}: {reason(error)}", hint="Choose another folder with --out.") from error
    if as_json:
        answer({"out": out, "files": list(written)}, True, str)
    (namespace,) = (item["metadata"]["name"] for item in parts["namespace"])
    say(f"once, for all endpoints of its namespace: kubectl create namespace {namespace}")
    say(f"serve: helm upgrade --install {loaded.name} {out} --namespace {namespace}")


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, given by relative path. Raises UsageError."""
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                hint = "Remove that link, or choose another folder."
                raise UsageError(f"{path.parent} leads out of {folder}", hint=hint)
            write_whole(path, content)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {reason(error)}", hint="Choose another folder with --out.") from error
