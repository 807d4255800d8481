"""Training jobs on this machine: `python -m toolkit.training JOB_FOLDER` as a process, with its log in that folder.

The process holds a lock on its folder as long as it lives, so that a second command waits for it instead of starting
another one. What was interrupted goes on from its last checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.apply.training import TrainingJob
from toolkit.apply.waiter import LogLine
from toolkit.children import TRAINING, own_variables, python_command, start_process
from toolkit.errors import PlatformError, UsageError
from toolkit.files import for_owner, make_private_folder
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.local import machine
from toolkit.platforms.local.aws import ACCOUNT, REGION
from toolkit.platforms.local.folders import is_locked
from toolkit.recipe.recipe import Recipe
from toolkit.text import without_colours
from toolkit.training import job as train_job

LOG, _LOCK, _PID = "log.txt", "lock", "pid"
_STOP_SECONDS = 120.0
_PAUSE_SECONDS = 0.2
# Exit codes of the process, as those of `toolkit`.
_REASONS = {-signal.SIGKILL: "it was killed, perhaps for want of memory (SIGKILL)"}
_PROGRAM = tuple(python_command("-m", "toolkit.training"))
_PACKAGES = ("datasets", "speculators", "torch", "transformers")


@dataclass(frozen=True)
class LocalTrainer:
    """Training jobs of this user's home, each in a folder of `folder`.

    `program` gets the job's folder, and needs `packages`.
    """

    folder: Path
    program: Sequence[str] = _PROGRAM
    packages: Sequence[str] = _PACKAGES
    name: str = "local"
    poll_seconds: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)

    def account(self, recipe: Recipe | None = None) -> Account:
        return Account(ACCOUNT, REGION)

    def lease(self, endpoint: str) -> AbstractContextManager[Callable[[], None]]:
        """Nothing to hold: the job's folder has a lock of its own."""
        return nullcontext(lambda: None)

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        return Observed(tuple(self._existing(item) for item in desired if item.kind == "TrainingJob"))

    def execute(self, action: Action, progress: Progress) -> None:
        """Start the job; one that runs is left alone.

        Raises MissingPackage without the extra `train`, PlatformError where its folder cannot be written.
        """
        if action.verb != "create":
            return
        machine.require_packages(self.packages, "training on this machine", "train")
        folder = self.folder / action.name
        try:
            job = documents.fit(train_job.TrainingJob, action.request["Job"])
            make_private_folder(folder)
            job.write(folder)
            self._start(action.name, folder)
        except OSError as error:
            hint = "Make room, or set TOOLKIT_HOME to a folder of a disk that has it."
            raise PlatformError(f"{folder} cannot be written: {error.strerror}", hint=hint) from error

    def training_job(self, name: str) -> TrainingJob:
        folder, child = self.folder / name, self._started.get(name)
        began = (folder / train_job.FILE).stat().st_mtime
        if is_running(folder):
            return TrainingJob(name, "InProgress", "Training", "", began, began)
        code = child.wait() if child else None  # it has given up its lock, and ends
        ended = (folder / LOG).stat().st_mtime
        if _is_complete(folder):
            return TrainingJob(name, "Completed", "Completed", "", began, ended)
        if code in (-signal.SIGTERM, 128 + signal.SIGTERM) or (code is None and not child):
            return TrainingJob(name, "Stopped", "Stopped", "it ended before the head was trained", began, ended)
        reason = _error(folder) or _REASONS.get(code or 0, f"it ended with exit code {code}")
        return TrainingJob(name, "Failed", "Failed", reason, began, ended)

    def training_log(self, name: str, bookmarks: MutableMapping[str, str]) -> Iterator[LogLine]:
        """Whole lines that were written since the bookmark, which is an offset."""
        path = self.folder / name / LOG
        offset = int(bookmarks.get(name, "0"))
        with suppress(FileNotFoundError), path.open("rb") as stream:
            stream.seek(offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                yield LogLine(name, path.stat().st_mtime, without_colours(line.decode(errors="replace").rstrip()))
        bookmarks[name] = str(offset)

    def log_command(self, name: str) -> str:
        return f"cat {self.folder / name / LOG}"

    def leave(self, name: str, progress: Progress) -> str:
        """Have it save a checkpoint and end."""
        folder = self.folder / name
        pid = _pid(folder)
        if pid and is_running(folder):
            progress.say(f"{name}: saving a checkpoint")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + _STOP_SECONDS
            while is_running(folder) and time.monotonic() < deadline:
                self.sleep(_PAUSE_SECONDS)
        if is_running(folder):
            return f"{name} still runs (process {pid})"
        if child := self._started.get(name):
            child.wait()
        return f"{name} has stopped, and goes on from its last checkpoint"

    def fetch_head(self, job: Mapping[str, Any], folder: Path) -> None:
        head = self.folder / job["TrainingJobName"] / "head"
        try:
            shutil.copytree(head, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
        except (OSError, shutil.Error) as error:
            hint = f"Make room. The head stays in {head}; the same command goes on."
            raise PlatformError(f"the head cannot be copied to {folder}: {error}", hint=hint) from error

    def head_at(self, address: str) -> NoReturn:
        """Raises UsageError: on this machine heads are folders."""
        hint = "Set `speculation.model` to a folder, such as ./my-head."
        raise UsageError(f"a job on this machine cannot write to {address}", hint=hint)

    def put_head(self, folder: Path, address: str, progress: Progress) -> NoReturn:
        """Raises UsageError, too."""
        self.head_at(address)

    def publish_head(self, job: Mapping[str, Any], name: str, method: str) -> None:
        """Nothing to do: a deployment reads the folder of the head."""

    def _existing(self, item: Resource) -> Existing:
        folder = self.folder / item.name
        running = is_running(folder)
        jobs = [[item.name, "InProgress", ""]] if running else []
        kept = any((folder / "checkpoints").glob("*"))
        state = {"Complete": not running and _is_complete(folder), "Jobs": jobs, "Checkpoint": kept}
        return Existing(item.kind, item.name, True, (), state)

    def _start(self, name: str, folder: Path) -> None:
        with open(folder / _LOCK, "w", opener=for_owner) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return  # somebody else has started it since the plan
            # A session of its own: Ctrl-C is for this command, which then has it save a checkpoint. The process keeps
            # the lock, which is that of the open file.
            with open(folder / LOG, "wb", opener=for_owner) as log:
                command, given = [*self.program, str(folder)], _environment(own_variables(*TRAINING))
                self._started[name] = start_process(command, folder, given, stdout=log, pass_fds=[lock.fileno()])
            with open(folder / _PID, "w", opener=for_owner) as note:
                note.write(f"{self._started[name].pid}\n")


def _environment(given: Mapping[str, str]) -> dict[str, str]:
    """The user's environment, with lines that are written at once, and a core for others.

    On a busy machine with a thread for each core, a step takes many times as long: each thread waits for all others.
    """
    threads = {"OMP_NUM_THREADS": str(max(1, machine.cores() - 1))}
    return {**threads, **given, "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


def is_running(folder: Path) -> bool:
    return is_locked(folder / _LOCK)


def _is_complete(folder: Path) -> bool:
    return train_job.is_head(folder / "head")


def _pid(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int((folder / _PID).read_text())
    return None


def _error(folder: Path) -> str:
    """The last line of the log that begins with `error: `; empty without one."""
    with suppress(OSError):
        lines = (folder / LOG).read_text(errors="replace").splitlines()
        return next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), "")
    return ""
