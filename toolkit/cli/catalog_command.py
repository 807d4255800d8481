"""`toolkit catalog`: how old the toolkit's facts are, and reading newer ones into the user's own folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.catalog import lookup
from toolkit.cli.arguments import Json
from toolkit.cli.output import answer, next_step, say
from toolkit.cli.table import table

if TYPE_CHECKING:
    from toolkit.api.facts import CatalogStatus, CatalogUpdate

_EXIT_CODE_OUTSIDE = 3


catalog = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="See and renew the toolkit's facts.")


@catalog.command()
def status(as_json: Json = False) -> None:
    """Show how old the facts are, and what the last update found. Needs no network."""
    from toolkit.api.facts import catalog_status

    age = catalog_status()
    answer(age.to_dict(), as_json, lambda: _status_text(age), then=("catalog", "update"))


@catalog.command()
def update(
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region",
            help="Read the prices of this region (repeatable).  [default: those in your catalogue, or us-east-1]",
        ),
    ] = None,
    ec2: Annotated[
        bool,
        typer.Option("--ec2", help="Also read EC2's prices, for the nodes of clusters: a download of hundreds of MB."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Read prices, heads, images and versions from public documents, into the toolkit's folder in your home.

    Needs no credentials. The installed toolkit is left as it is. Exits with 3 where a source could not be read; what
    the others have is kept.
    """
    from toolkit.api.facts import catalog_update

    say("reading AWS's price list; it is large")
    changes = catalog_update(region or (), ec2=ec2)
    answer(changes.to_dict(), as_json, lambda: _update_text(changes))
    if changes.failed:
        raise typer.Exit(_EXIT_CODE_OUTSIDE)
    if not as_json:
        next_step("catalog", "status")


def _status_text(status: CatalogStatus) -> str:
    rows = [(file.name, str(file.date), str(file.days), "over 90 days" if file.old else "") for file in status.files]
    lines = [table(("file", "date", "days", ""), rows)]
    if not status.read:
        return "\n".join([*lines, "Nothing newer was read yet."])
    lines += [f"{status.own_file}:", *(f"  {source}: read on {day}" for source, day in status.read.items())]
    for what, names in (
        ("images", status.images),
        ("instance types", status.types),
        (f"versions of {lookup.engine_title()}", status.versions),
        ("heads", status.heads),
    ):
        lines += [f"new {what}: {', '.join(names)}"] if names else []
    return "\n".join(lines)


def _update_text(changes: CatalogUpdate) -> str:
    lines = [*changes.changed, *(f"not read: {line}" for line in (*changes.unread, *changes.failed))]
    return "\n".join([*lines, f"wrote {changes.own_file}"] if lines else [f"nothing is new; wrote {changes.own_file}"])
