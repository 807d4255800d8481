"""What the toolkit keeps on this machine: below its home and its cache, by what it is for."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from toolkit.errors import PlatformError, ToolkitError
from toolkit.home import cache, home
from toolkit.planning.retention import Found, Leftover
from toolkit.registry import session_of

_LOCAL = "local"
# What is named after an endpoint: its kind, its folder and how its name ends.
_OF_ENDPOINTS = (("record", "records", ".jsonl"), ("attempt", "improvements", ".json"), ("study", "studies", ""))


@dataclass(frozen=True)
class HomeCleaner:
    """A Cleaner of this user's home. `endpoints` are those that exist anywhere; `clock` is in seconds since 1970."""

    endpoints: Collection[str]
    clock: Callable[[], float] = time.time

    def find(self) -> Found:
        """Every file or folder that has an age of its own."""
        items: list[Leftover] = []
        unread: list[str] = []
        for look in (self._of_endpoints, self._answers, self._trials, self._trainings, self._local, self._caches):
            try:
                items += look()
            except OSError as error:
                unread.append(f"{error.filename}: {error.strerror}")
        return Found(tuple(items), tuple(unread))

    def remove(self, item: Leftover) -> None:
        path = Path(item.name)
        try:
            if item.kind == "local platform":
                self._clear_local()
            elif item.kind == "training folder" and (why := _runs(path)):
                raise PlatformError(f"{path} stays: {why}")
            elif item.kind == "trial":
                self._remove_trial(path)
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise PlatformError(f"{error.filename or path} cannot be removed: {error.strerror}") from error

    def _leftover(self, kind: str, path: Path, needed: str = "") -> Leftover:
        size, newest = _size_and_newest(path)
        return Leftover(kind, str(path), max(self.clock() - newest, 0.0), size, needed)

    def _of_endpoints(self) -> Iterator[Leftover]:
        for kind, folder, ending in _OF_ENDPOINTS:
            for path in _in(home() / folder):
                name = path.name.removesuffix(ending)
                yield self._leftover(kind, path, f"endpoint {name} exists" if name in self.endpoints else "")

    def _answers(self) -> Iterator[Leftover]:
        yield from (self._leftover("engine answer", path) for path in _in(home() / "asked"))
        yield from (self._leftover("catalogue update", path) for path in _in(home() / "catalog"))

    def _trials(self) -> Iterator[Leftover]:
        for folder in _in(home() / "tuning"):
            deployed = [path.name for path in _in(folder / "deployed")]
            remains = f"{', '.join(deployed)} of it was deployed; `toolkit tune` of its recipe removes that first"
            yield self._leftover("trial", folder, remains if deployed else "" if _is_free(folder) else "it is running")

    def _trainings(self) -> Iterator[Leftover]:
        for folder in _in(home() / "training"):
            yield self._leftover("training folder", folder, _runs(folder))

    def _local(self) -> Iterator[Leftover]:
        for folder in _in(home() / _LOCAL / "endpoints"):
            yield self._leftover("local platform", folder, "the local platform runs" if self._local_runs() else "")

    def _caches(self) -> Iterator[Leftover]:
        for folder in _in(cache()):
            yield self._leftover("cache", folder, "the local platform runs" if self._local_runs() else "")

    def _local_runs(self) -> bool:
        """A daemon that lives but cannot be reached runs too."""
        try:
            return session_of(_LOCAL).running(None) is not None
        except ToolkitError:
            return True

    def _clear_local(self) -> None:
        if self._local_runs():
            raise PlatformError("the local platform was started meanwhile")
        from toolkit.platforms.local.daemon import stop  # of systems that have it

        stop(home() / _LOCAL)

    def _remove_trial(self, folder: Path) -> None:
        try:
            with FileLock(folder / "lock", timeout=0, mode=0o600):
                for path in _in(folder):
                    if path.name != "lock":
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
        except Timeout as error:
            raise PlatformError(f"{folder} stays: it is being tuned by another process") from error
        shutil.rmtree(folder)


def _in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_free(folder: Path) -> bool:
    """Whether nobody tunes there; asking makes no file."""
    if not (folder / "lock").exists():
        return True
    try:
        with FileLock(folder / "lock", timeout=0, mode=0o600):
            return True
    except Timeout:
        return False


def _runs(folder: Path) -> str:
    session = session_of(_LOCAL)
    if not session.can_be_asked():
        return ""
    from toolkit.platforms.local.trainer import is_running  # of systems that have it

    return "its job runs" if is_running(folder) else ""


def _size_and_newest(path: Path) -> tuple[int, float]:
    """The bytes of a file or folder, and when the newest of it was read or written. What goes meanwhile counts not."""
    size, newest = 0, 0.0
    for one in (path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())):
        try:
            stat = one.lstat()
        except FileNotFoundError:
            continue
        size += stat.st_size if one.is_symlink() or one.is_file() else 0
        newest = max(newest, stat.st_mtime, stat.st_atime if path.parent == cache() and one.is_file() else 0.0)
    return size, newest
