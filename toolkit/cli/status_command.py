"""`toolkit status`: which endpoints there are."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli import fleet
from toolkit.cli.arguments import Json, OnlyPlatform, seconds_of
from toolkit.cli.fleet import PARALLEL, Parallel
from toolkit.cli.output import answer, say
from toolkit.cli.table import table
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.api.listing import Listing
    from toolkit.endpoint.platform import Deployed

# A platform that is set up did not answer, or not to the end, so that there may be more.
_DID_NOT_ANSWER = 3
_NOT_READ = "-"
_SERVES, _CHANGES = ("InService", "Updating"), ("Creating", "Deleting")
_CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"


def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="List only endpoints of these names, such as 'chat-*', of these recipes, or of a folder of recipes."
        ),
    ] = None,
    platform: OnlyPlatform = None,
    all_regions: Annotated[bool, typer.Option("--all-regions", help="Search every AWS region.")] = False,
    details: Annotated[
        bool | None,
        typer.Option(
            help="Read the instances and prices of every endpoint, however many calls that takes, or of none. "
            "Default: of up to 100 endpoints in a region, for at most 15 seconds.",
        ),
    ] = None,
    watch: Annotated[
        str | None, typer.Option(help="Show the list again every WATCH, such as 10s or 2m, until Ctrl-C.")
    ] = None,
    drift: Annotated[
        bool,
        typer.Option(
            "--drift",
            help="Compare what runs with these recipes. For cron: exit code 1 if they differ, 3 if one cannot be read.",
        ),
    ] = False,
    parallel: Parallel = PARALLEL,
    as_json: Json = False,
) -> None:
    """List the endpoints that the toolkit created: on this machine, on the cluster, and on AWS if you are logged in."""
    if watch and as_json:
        raise UsageError("--json cannot be combined with --watch", hint="Run: toolkit status --json, in a loop")
    if drift:
        if watch or all_regions:
            other = "--watch" if watch else "--all-regions"
            raise UsageError(f"--drift cannot be combined with {other}", hint="Remove one of them.")
        fleet.drift(names or (), platform=platform, parallel=parallel, as_json=as_json)
        return
    every = seconds_of(watch) if watch else 0.0
    wanted = fleet.names_of(names or (), platform)

    def look() -> Listing:
        return toolkit.status(*wanted, platform=platform, all_regions=all_regions, details=details)

    listing = look()
    with suppress(KeyboardInterrupt):
        while watch:
            _show_again(listing)
            time.sleep(every)
            listing = look()
    _say_what_is_missing(listing)
    if not watch:
        found, then = bool(listing.endpoints) or not names, _next(listing.endpoints)
        answer(listing.to_dict(), as_json, lambda: status_text(listing.endpoints), then=then, yes=found)
    if listing.errors:
        raise typer.Exit(_DID_NOT_ANSWER)


def _next(listed: Sequence[Deployed]) -> tuple[str, ...]:
    serving = next((item.name for item in listed if item.status in _SERVES), None)
    if serving:
        return "invoke", serving, "Hello"
    if any(item.status in _CHANGES for item in listed):
        return "status", "--watch", "10s"
    return "deploy", "tiny/p-eagle", "--platform", "local"


def _show_again(listing: Listing) -> None:
    """In place of what was there, in a terminal; below it in a log."""
    if sys.stdout.isatty():
        sys.stdout.write(_CLEAR_SCREEN)
    print(f"{time.strftime('%H:%M:%S')}\n{status_text(listing.endpoints)}\n", flush=True)  # noqa: T201
    _say_what_is_missing(listing)


def _say_what_is_missing(listing: Listing) -> None:
    for line in listing.not_listed:
        say(f"not listed: {line}")


def status_text(listed: Sequence[Deployed]) -> str:
    """The list as a table, with the sum of the prices."""
    from toolkit.registry import session_of

    if not listed:
        return "no endpoints"
    head = ("endpoint", "where", "status", "age", "instances", "$/h", "reason")
    rows = [
        (
            item.name,
            session_of(item.platform).scope_name(item.region),
            item.status,
            "?" if item.created is None else age(time.time() - item.created),
            ", ".join(f"{number} x {kind}" for kind, number in item.instances) if item.described else _NOT_READ,
            _price(item),
            item.failure_reason,
        )
        for item in listed
    ]
    known = [item.price_per_hour for item in listed if item.price_per_hour is not None]
    without = sum(item.described and item.price_per_hour is None for item in listed)
    more = f" (without {without} whose types have no price: toolkit plan says why)" if without else ""
    total = f"{table(head, rows)}\n\n{sum(known):.2f} $/h in total{more}"
    if brief := sum(not item.described for item in listed):
        total += (
            f"\nNot read ({_NOT_READ}), to make fewer calls: instances and prices of {brief} of {len(listed)} endpoints"
            ". Read them by name, or with --details."
        )
    return total


def _price(item: Deployed) -> str:
    if not item.described:
        return _NOT_READ
    return "?" if item.price_per_hour is None else f"{item.price_per_hour:.2f}"


def age(seconds: float) -> str:
    """In its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
