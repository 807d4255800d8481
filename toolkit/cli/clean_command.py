"""`toolkit clean`: what outlives endpoints, and its removal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli.arguments import Json, OnlyPlatform, Yes
from toolkit.cli.output import answer, confirm, say
from toolkit.cli.status_command import age
from toolkit.cli.table import table
from toolkit.planning.retention import rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.api.cleaning import Cleaning
    from toolkit.planning.retention import Leftover

_NOT_ALL = 3
_MOST_SHOWN = 3
_CENT = 0.01


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List and price what there is; remove nothing.")] = False,
    yes: Yes = False,
    platform: OnlyPlatform = None,
    as_json: Json = False,
) -> None:
    """Remove what endpoints left behind and nothing needs any more: caches, records, images, logs, weights.

    The list says for each why it goes or stays. Run it again to carry on.
    """

    def ask(cleaning: Cleaning) -> None:
        from toolkit.api.cleaning import in_words

        say(cleaning_text(cleaning))
        confirm(f"Remove {in_words(cleaning.going)}?", yes)

    done = toolkit.clean(platform=platform, dry_run=dry_run, approve=ask)
    answer(done.to_dict(), as_json, lambda: _end_text(done, dry_run=dry_run))
    for line in (*done.unread, *done.unasked):
        say(f"not looked at: {line}")
    for item, why in done.failed:
        say(f"not removed: {item.kind} {item.name}: {why}")
    if done.failed:
        say("The same command tries again.")
    if not done.ok:
        raise typer.Exit(_NOT_ALL)


def cleaning_text(cleaning: Cleaning) -> str:
    """Everything as a table, what goes first, with sums. Many of a kind that stay for now are one row."""
    from toolkit.api.cleaning import in_words

    rows = [_row(item) for item in cleaning.items if item.goes or item.needed]
    young: dict[str, list[Leftover]] = {}
    for item in cleaning.items:
        if not (item.goes or item.needed):
            young.setdefault(item.kind, []).append(item)
    for items in young.values():
        rows += map(_row, items) if len(items) <= _MOST_SHOWN else [_together(items)]
    staying = [item for item in cleaning.items if not item.goes]
    head = ("", "kind", "where", "age", "size", "$/month", "why")
    return "\n".join([table(head, rows), "", f"goes: {in_words(cleaning.going)}", f"stays: {in_words(staying)}"])


def _row(item: Leftover) -> tuple[str, ...]:
    size = "?" if item.size is None else _size(item.size)
    stays = "goes" if item.goes else "stays"
    return (stays, item.kind, item.name, age(item.age), size, _dollars(item.usd_per_month), item.why)


def _together(items: Sequence[Leftover]) -> tuple[str, ...]:
    """Many of a kind that are too young to go, as one row; the oldest goes first."""
    oldest = max(items, key=lambda item: item.age)
    size, price = sum(item.size or 0 for item in items), sum(item.usd_per_month for item in items)
    where = f"{len(items)} in {rules()[oldest.kind].where}"
    return ("stays", oldest.kind, where, age(oldest.age), _size(size), _dollars(price), f"the oldest {oldest.why}")


def _end_text(done: Cleaning, *, dry_run: bool) -> str:
    from toolkit.api.cleaning import in_words

    if not done.items:
        return "nothing is kept"
    if dry_run or not done.going:
        return cleaning_text(done)
    return f"removed {in_words(done.removed)}"


def _size(size: int) -> str:
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size} B"


def _dollars(price: float) -> str:
    return "" if price == 0 else f"< {_CENT}" if price < _CENT else f"{price:.2f}"
