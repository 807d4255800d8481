"""A recipe that is written: for a model, by its name (`toolkit new`), or from another tool's settings (`import`)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from toolkit.catalog import lookup
from toolkit.cli.arguments import AnyPlatform, Json
from toolkit.cli.output import answer, next_step, say
from toolkit.cli.table import paragraphs, table
from toolkit.errors import UsageError, reason

if TYPE_CHECKING:
    from toolkit.api.importing import ImportedRecipe
    from toolkit.api.proposing import NewRecipe


Goal = Literal["latency", "throughput"]
_OUT = "The recipe's file; `-` is stdout.  [default: NAME.yaml, here]"


def new(
    model: Annotated[str, typer.Argument(help="Hugging Face id, such as Qwen/Qwen3-8B, a folder, or jumpstart:ID.")],
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    platform: Annotated[AnyPlatform | None, typer.Option(help="Where it runs.  [default: sagemaker]")] = None,
    method: Annotated[str | None, typer.Option(help="Method of drafting.  [default: the best that is found]")] = None,
    goal: Annotated[
        Goal | None, typer.Option("--optimize", help="What matters more.  [default: latency]", show_default=False)
    ] = None,
    max_price: Annotated[float | None, typer.Option(min=0.01, help="Budget, US dollars per hour.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Longest prompt plus answer, in tokens.")] = None,
    region: Annotated[str | None, typer.Option(help="AWS region.  [default: your session's]")] = None,
    hardware: Annotated[
        str | None, typer.Option(help="Instance types or accelerators to choose from, such as trn2, g6e or H100.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; take the defaults.")] = False,
    as_json: Json = False,
) -> None:
    """Write a recipe for a model: what drafts for it, which engine, and on which instance type.

    Looks for drafters in the toolkit's catalogue and on the Hugging Face hub; without a network it goes by what it
    knows. Nothing is started. In a terminal it asks what you leave out.
    """
    from toolkit.api.proposing import new as make

    asks = sys.stdin.isatty() and sys.stderr.isatty() and not (yes or as_json)
    if asks:
        say("A few questions; Enter takes what stands in brackets.")
        platform = platform or _ask("Where", "sagemaker", get_args(AnyPlatform))
        goal = goal or _ask("What matters more", "latency", get_args(Goal))
        max_price = max_price or _ask_number("Budget in $ per hour", "any")
        length = context or _ask_number("Longest prompt and answer, in tokens", "the usual")
        context = int(length) if length else None
    made = make(
        model,
        out=out,
        platform=platform or "sagemaker",
        method=method,
        goal=goal or "latency",
        max_price=max_price,
        context=context,
        region=region,
        hardware=hardware,
    )
    if made.text and not as_json:
        print(made.text, end="")  # noqa: T201
        return
    answer(made.to_dict(), as_json, lambda: _text(made), yes=made.ok)
    if not (as_json or made.text):
        _next_steps(made)


def _ask(question: str, default: str, allowed: tuple[str, ...]) -> Any:
    def parse(text: str) -> str:
        if text not in allowed:
            raise typer.BadParameter(f"{text} is none of: {', '.join(allowed)}")
        return text

    return typer.prompt(f"{question}: {', '.join(allowed)}", default=default, err=True, value_proc=parse)


def _ask_number(question: str, default: str) -> float | None:
    def parse(text: str) -> float | None:
        if text == default:
            return None
        try:
            found = float(text.replace(",", ""))
        except ValueError:
            found = 0.0
        if found <= 0:
            raise typer.BadParameter(f"{text} is not a number above 0")
        return found

    found: float | None = typer.prompt(question, default=default, err=True, value_proc=parse)
    return found


def _text(made: NewRecipe) -> str:
    from toolkit.api.proposing import show_value

    rows = [(_short(choice.key), show_value(choice.value), choice.why) for choice in made.choices]
    findings = [finding.line_for(str(made.path)) for finding in made.findings if finding.severity != "info"]
    return paragraphs([table(("choice", "value", "why"), rows), *findings, *made.notes])


def _short(key: str) -> str:
    """The last part of a key; the engine's name is the engine."""
    return key.removesuffix(".name").rpartition(".")[2]


def _next_steps(made: NewRecipe) -> None:
    say(f"Wrote {made.path}. Its comments say what else was possible.")
    next_step("plan", str(made.path))
    if made.rehearsal:
        say("To rehearse it on this machine, which costs nothing:")
        next_step("deploy", str(made.rehearsal))
    data = next((choice.value[0] for choice in made.choices if choice.key == "training.data"), None)
    if data:
        _own_head(made.rehearsal or made.path, data)


def _own_head(recipe: Path, data: str) -> None:
    """The road to a head of one's own; the commands are those of the rehearsal where there is one."""
    say("It drafts without a head, as nobody has published one for this model. For one of your own, put conversations")
    say(f"into {recipe.parent / data} (the comment beside `data` has the form), then run:")
    steps = (("train", "learns from them"), ("deploy", "serves the head"), ("prove", "measures what it brings"))
    for command, what in (*steps, ("improve", "later: goes on with your traffic")):
        baseline = " --baseline" if command == "deploy" else ""
        say(f"  {shlex.join(['toolkit', command, str(recipe)]) + baseline:<{len(str(recipe)) + 28}} # {what}")


def import_(
    file: Annotated[str, typer.Argument(help=f"A file with {lookup.importable()}; `-` reads stdin.")],
    out: Annotated[Path | None, typer.Option(help=_OUT)] = None,
    platform: Annotated[AnyPlatform | None, typer.Option(help="Where it runs.  [default: sagemaker]")] = None,
    name: Annotated[str | None, typer.Option(help="The recipe's name.  [default: made of model and method]")] = None,
    variant: Annotated[str | None, typer.Option(help="Which variant of a file with several, such as fp8.")] = None,
    as_json: Json = False,
) -> None:
    """Write a recipe from an engine's command line, or from another tool's YAML.

    Nothing is run. What a recipe has no place for is listed, with the reason.
    """
    from toolkit.api.importing import import_recipe

    imported = import_recipe(_read(file), out=out, platform=platform or "sagemaker", name=name, variant=variant)
    if imported.text and not as_json:
        print(imported.text, end="")  # noqa: T201
        return
    answer(imported.to_dict(), as_json, lambda: _import_text(imported), yes=imported.ok)
    if not (as_json or imported.text):
        next_step("lock", str(imported.path))
        next_step("plan", str(imported.path))


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    path = Path(file)
    if not path.exists():
        hint = f"To give a command directly: echo '{lookup.example_command()}' | toolkit import -"
        raise UsageError(f"{file}: no such file", hint=hint)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {reason(error)}", hint="Give a file, or `-` for stdin.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not UTF-8 at byte {error.start}", hint="Save it as UTF-8.") from error


def _import_text(imported: ImportedRecipe) -> str:
    say(f"Wrote {imported.path}, from {imported.source}.")
    lines = [f"{finding.message}. {finding.hint}".rstrip() for finding in imported.left_out]
    checks = [finding.line_for(str(imported.path)) for finding in imported.findings if finding.severity != "info"]
    return paragraphs([*lines, *checks] or ["all of it is in the recipe; no findings"])
