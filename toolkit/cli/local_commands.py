"""Commands for the local platform, and a check of what it needs on this machine."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

import toolkit
from toolkit.cli.arguments import Json
from toolkit.cli.output import answer, say
from toolkit.cli.table import table
from toolkit.home import home

if TYPE_CHECKING:
    from toolkit.platforms.local.spare import Waiting

_FIRST = ("deploy", "tiny/p-eagle", "--platform", "local")
local = typer.Typer(
    help="Show or stop the local platform: AWS's APIs on this machine. "
    "After its last endpoint a process stays that has imported the engine, for the next one: 0.5 GB, for 15 minutes, "
    "while 2 GB are free. TOOLKIT_LOCAL_SPARE_MINUTES=0 keeps none, from the platform's next start on.",
    no_args_is_help=True,
)


@local.command()
def status(as_json: Json = False) -> None:
    """Show whether the local platform is running, its addresses and its endpoints."""
    from toolkit.platforms.local.machine import require_system

    require_system()
    from toolkit.platforms.local import daemon

    running = daemon.running(home() / "local")
    if running is None:
        if why := daemon.why_gone(home() / "local"):
            say(why)
        answer({"running": False}, as_json, lambda: "the local platform is not running", then=_FIRST)
        return
    from toolkit.platforms.local.folders import endpoints_folder
    from toolkit.platforms.local.spare import waiting

    endpoints = [asdict(item) for item in toolkit.endpoints(platform="local")]
    spare = waiting(endpoints_folder(home() / "local"))
    lines = [
        f"running, pid {running.pid}",
        f"AWS APIs        {running.control_url}",
        f"invocations     {running.runtime_url}",
        f"key             {running.credentials_file} (for other programs: AWS_SHARED_CREDENTIALS_FILE)",
        *[f"endpoint        {item['name']}: {item['status']}" for item in endpoints],
        *([f"waiting         {_as_said(spare)}"] if spare else []),
    ]
    document = {"running": True, **asdict(running), "endpoints": endpoints, "waiting": spare and asdict(spare)}
    answer(document, as_json, lambda: "\n".join(lines), then=("status", "--platform", "local"))


def _as_said(spare: Waiting) -> str:
    until = time.strftime("%H:%M", time.localtime(spare.until))
    return f"a process with the engine's imports, for the next endpoint: {spare.bytes / 1e9:.1f} GB, until {until}"


@local.command()
def stop(as_json: Json = False) -> None:
    """Stop the local platform and remove all its endpoints."""
    from toolkit.platforms.local.machine import require_system

    require_system()
    from toolkit.platforms.local import daemon

    stopped = daemon.stop(home() / "local")
    text = "stopped" if stopped else "the local platform was not running"
    answer({"stopped": stopped}, as_json, lambda: text, then=("status",))


def doctor(as_json: Json = False) -> None:
    """Check that this machine has what the local platform needs; say which AWS account and role SageMaker would use."""
    from toolkit.platforms.doctor import examine, examine_aws

    examined = [*examine(home()), examine_aws()]
    rows = [(item.name, "ok" if item.ok else "NO", item.detail, "" if item.ok else item.hint) for item in examined]
    ok = all(item.ok or not item.needed for item in examined)
    document = {"ok": ok, "checks": [asdict(item) for item in examined]}
    answer(document, as_json, lambda: table(("requirement", "", "found", "to do"), rows), yes=ok, then=_FIRST)
