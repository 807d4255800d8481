"""`toolkit recipes`: the recipes that come with the toolkit, filtered, or one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.arguments import Json
from toolkit.cli.output import answer, next_step, say
from toolkit.cli.table import paragraphs, table

if TYPE_CHECKING:
    from toolkit.api.catalogue import Listed

recipes = typer.Typer(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


@recipes.callback()
def _list(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Option(help="Only recipes with this in the name of their target, such as qwen3.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Only recipes that draft by this method.")] = None,
    hardware: Annotated[
        str | None,
        typer.Option(help="Only recipes for instance types or accelerators of this name, such as trn2, g6e or H100."),
    ] = None,
    max_price: Annotated[
        float | None, typer.Option(help="Only recipes that cost at most this, in US dollars per hour.")
    ] = None,
    with_evidence: Annotated[bool, typer.Option("--with-evidence", help="Only recipes with measured numbers.")] = False,
    as_json: Json = False,
) -> None:
    """List the recipes that come with the toolkit; `toolkit recipes show RECIPE` shows one."""
    if context.invoked_subcommand is not None:
        return
    from toolkit.api.catalogue import recipes as read_all
    from toolkit.catalog import methods

    if method:
        methods.method(method)  # an unknown one is an error, not an empty list
    everything = read_all()
    matching = everything.matching(model, method, hardware, max_price, with_evidence=with_evidence)
    head = ("recipe", "method", "K", "$/h", "description")
    rows = [
        (item.name, item.recipe.method, item.tokens, item.dollars, item.recipe.description or "")
        for item in matching.listed
    ]
    nothing = f"none of the {len(everything)} recipes; for a model of yours: toolkit new MODEL"
    then = ("recipes", "show", matching.listed[0].name) if rows else ()
    answer(matching.to_dict(), as_json, lambda: table(head, rows) if rows else nothing, then=then)


@recipes.command()
def show(
    recipe: Annotated[str, typer.Argument(help="A name from `toolkit recipes`, or a recipe file.")],
    as_json: Json = False,
) -> None:
    """Show a recipe: its text, what it costs, whether it fits, and what was measured."""
    from toolkit.api.catalogue import show_recipe

    listed = show_recipe(recipe)
    answer(listed.to_dict(), as_json, lambda: _show(listed))
    if not as_json:
        say(f"To change it, copy it: cp {listed.recipe.path} {Path(listed.recipe.path).name}")
        next_step("plan", recipe)


def _show(listed: Listed) -> str:
    text = listed.recipe.path.read_text(encoding="utf-8").rstrip()
    parts = [f"Price: {listed.price_text}"]
    parts += [f"Fit: {line}" for line in listed.fit_lines]
    if evidence := listed.recipe.evidence:
        head = ("measured", "K", "requests", "tokens/step", "speedup", "hardware", "source")
        rows = [
            (
                item.workload,
                _text(item.num_speculative_tokens),
                _text(item.concurrency),
                _text(item.acceptance_length),
                _text(item.speedup),
                item.hardware,
                f"{item.source}, {item.date}",
            )
            for item in evidence
        ]
        return "\n\n".join([text, paragraphs(parts), table(head, rows)])
    parts.append("Measured: nothing that is published. Measure it: toolkit prove ENDPOINT")
    return "\n\n".join([text, paragraphs(parts)])


def _text(value: object) -> str:
    return "" if value is None else str(value)
