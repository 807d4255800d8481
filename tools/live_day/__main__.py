"""`python -m tools.live_day --account NUMBER` runs the day, `--compare RECORDING` holds one against the stand-in."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from toolkit.apply.progress import Progress, default_progress
from toolkit.errors import ToolkitError
from tools.live_day.comparing import compare, mark, open_standin
from tools.live_day.day import INTERRUPTED, REMOVE, Day
from tools.live_day.recording import Recorder, read
from tools.live_day.steps import STEPS, Step

_USAGE = 2


def main(
    arguments: Sequence[str],
    *,
    steps: Sequence[Step] = STEPS,
    ask: Callable[[str], str] = input,
    pause: Callable[[float], object] = time.sleep,
    progress: Progress | None = None,
    open_standin: Callable[[], Any] = open_standin,
) -> int:
    """Do what the arguments say; the exit code."""
    asked = _parser(steps).parse_args(arguments)
    if asked.compare:
        return _compare(asked.compare, asked.mark, open_standin)
    if not asked.account:
        return _refuse("add --account with the number of the account that may be billed, or --compare RECORDING")
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        day = _open(asked, steps, pause, progress or default_progress())
        wanted = day.todo(asked.only)
        print("\n".join(day.plan(wanted)))
    except (BotoCoreError, ClientError, ToolkitError) as error:
        return _refuse(str(error))
    if not wanted and asked.only != REMOVE:
        return _refuse(f"all steps went well in {asked.out}; for another day add --out with another folder")
    if not (asked.yes or _agrees(ask, f"Do this in account {asked.account}, {day.session.region_name}? [y/N] ")):
        return _refuse("nothing was done; --yes does it without asking")
    try:
        return day.run(wanted)
    except KeyboardInterrupt:
        print(f"\nNot all is removed, and what runs is billed. Remove it: {_again(asked)} --only {REMOVE}")
        return INTERRUPTED


def _parser(steps: Sequence[Step]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tools.live_day", description=__doc__)
    parser.add_argument("--account", help="number of the account; with credentials of another nothing is done")
    parser.add_argument("--region", help="AWS region; default: your session's")
    parser.add_argument("--out", type=Path, default=Path("live-day"), help="folder of the recording; default: live-day")
    names = [*(step.name for step in steps), REMOVE]
    parser.add_argument("--only", choices=names, help="this step alone, with those that it needs")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--compare", type=Path, metavar="RECORDING", help="play it against the tests' stand-in")
    parser.add_argument("--mark", action="store_true", help="with --compare: write `seen live` to the rules it shows")
    return parser


def _open(
    asked: argparse.Namespace, steps: Sequence[Step], pause: Callable[[float], object], progress: Progress
) -> Day:
    """The day in the caller's account. Raises ToolkitError if that is not the account that was named."""
    session = boto3.Session(region_name=asked.region)
    recorder = Recorder(asked.out / "recording.jsonl")
    with closing(session.client("sts")) as sts:
        identity = sts.get_caller_identity()  # before anything is recorded: it has the caller's name
    if identity["Account"] != asked.account:
        raise ToolkitError(f"your credentials are of account {identity['Account']}, and --account is {asked.account}")
    recorder.know_caller(identity)
    recorder.attach(session)
    return Day(session, asked.out, recorder, progress, pause, print, steps, _again(asked))


def _again(asked: argparse.Namespace) -> str:
    region = f" --region {asked.region}" if asked.region else ""
    return f"python -m tools.live_day --account {asked.account}{region} --out {asked.out}"


def _agrees(ask: Callable[[str], str], question: str) -> bool:
    try:
        return ask(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _compare(recording: Path, marks: bool, open_standin: Callable[[], Any]) -> int:
    try:
        calls = list(read(recording))
    except (OSError, ValueError) as error:
        return _refuse(str(error))
    found = compare(calls, open_standin())
    print("\n".join(found.lines()))
    if marks:
        marked = ", ".join(mark(found.seen)) or "none"
        print(f"\nmarked as seen live: {marked}; renew the table of docs/explain/stand-in.md")
    return 0 if found.agrees else 1


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return _USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
