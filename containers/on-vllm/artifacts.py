"""The folder of what an engine compiled at an earlier start: its record, and files in and out of it.

Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from entrypoint import ServeError

ARTIFACTS = "TOOLKIT_ARTIFACTS"
KEY = "TOOLKIT_ARTIFACTS_KEY"
PARTS = "TOOLKIT_ARTIFACTS_PARTS"
RECORD = "artifacts.json"
LONGEST_RECORD = 1024**2
TIMES = "times.json"
LONGEST_TIMES = 64 * 1024**2
LATEST = 2**63  # a file's time in nanoseconds
LONGEST_SHOWN = 500


def recorded(folder: Path) -> dict[str, Any]:
    """What `compile` wrote of the artifacts there, empty where it has not finished."""
    record = _read(folder / RECORD, LONGEST_RECORD)
    return record if isinstance(record.get("parts", {}), dict) else {}


def different(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The parts that differ, as far as both are known."""
    names = sorted(name for name in wanted if found.get(name) != wanted[name])
    return "".join(f"\n  {name}: {found.get(name)!r}, and {wanted[name]!r} is wanted" for name in names)


def json_object(env: Mapping[str, str], name: str) -> dict[str, Any]:
    """The JSON object in that variable, empty without one. Raises ServeError."""
    try:
        value = json.loads(env.get(name) or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ServeError(f"{name} is not a JSON object: {env[name][:LONGEST_SHOWN]!r}")
    return value


def files_of(folder: Path) -> Iterator[Path]:
    """Its files at any depth. A link is none, and leads nowhere."""
    for path in sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from files_of(path)
        elif path.is_file():
            yield path


def copy_files(source: Path, target: Path, times: Mapping[str, int] = {}) -> None:
    """Contents only, as a mounted bucket knows no modes and times; `times` says when files were changed."""
    for file in files_of(source):
        name = file.relative_to(source)
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
        if changed := times.get(str(name)):
            os.utime(copy, ns=(changed, changed))


def record_times(source: Path, folder: Path) -> None:
    """Writes into the folder of artifacts when the files of `source` were changed.

    ninja, which builds FlashInfer's kernels, compares that with its log, to the nanosecond, and builds what differs.
    """
    times = {str(file.relative_to(source)): file.stat().st_mtime_ns for file in files_of(source)}
    (folder / TIMES).write_text(json.dumps(times), encoding="utf-8")


def recorded_times(folder: Path) -> dict[str, int]:
    """When the files there were changed where they were made, as far as it is known."""
    times = _read(folder / TIMES, LONGEST_TIMES)
    return {name: time for name, time in times.items() if isinstance(time, int) and 0 < time < LATEST}


def _read(file: Path, longest: int) -> dict[str, Any]:
    """The JSON object in a file, empty where there is none."""
    try:
        with file.open("rb") as stream:
            found = json.loads(stream.read(longest))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def remove_files(folder: Path) -> None:
    """Mountpoint for S3 does not let folders of the bucket be removed; such a folder is gone with its last file."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.rmdir()
        else:
            path.unlink(missing_ok=True)
