"""Wait for training jobs, those that compile and those that train, show their progress, and report why one failed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Protocol

from toolkit.apply.diagnose import diagnose, last_error
from toolkit.apply.progress import Progress
from toolkit.apply.waiter import LogLine, Patience
from toolkit.display import minutes
from toolkit.errors import PlatformError, TrainingJobFailed, Unavailable
from toolkit.training.progress import parse

_LAST_LINES = 15
# Lines of the container's own program; all others, of which there are many, are from the engine and the compiler.
_COMPILER_NEWS = re.compile(r"compile: ")
_LONGEST_LINE = 80


@dataclass(frozen=True)
class TrainingJob:
    """A training job's status and secondary status in SageMaker's words; times are seconds since 1970.

    `began` is when the job was created, `entered` when its secondary status began.
    """

    name: str
    status: str
    stage: str
    reason: str
    began: float
    entered: float


class Trainer(Protocol):
    """What waiting for training jobs needs of a platform."""

    @property
    def name(self) -> str:
        """The platform's name in recipes."""

    @property
    def poll_seconds(self) -> float:
        """The interval between two polls of a job."""

    def training_job(self, name: str) -> TrainingJob:
        """The job now. Raises PlatformError."""

    def training_log(self, name: str, bookmarks: MutableMapping[str, str]) -> Iterator[LogLine]:
        """New lines of its log since the bookmarks, which are updated."""

    def log_command(self, name: str) -> str:
        """The command that shows a job's whole log."""

    def leave(self, name: str, progress: Progress) -> str:
        """What Ctrl-C means for the job, as a sentence without its full stop: it goes on, or it is stopped now."""


def wait_completed(
    platform: Trainer,
    jobs: Mapping[str, int],
    progress: Progress,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    *,
    again: str = "",
    done: str = "has compiled",
) -> None:
    """Return when every job is Completed. `jobs` maps names to expected seconds, 0 if unknown.

    `again` is the command that waits for them once more, `done` what a completed job has done. No timeout is needed: a
    job has a maximum runtime. Raises TrainingJobFailed, with cause and last lines; Unavailable if the platform does not
    answer for five minutes.
    """
    watches = [_Watch(platform, name, expected, progress, done, again) for name, expected in jobs.items()]
    try:
        while watches := [watch for watch in watches if not watch.poll(clock())]:
            progress.update(", ".join(watch.describe(clock()) for watch in watches))
            sleep(platform.poll_seconds)
    except KeyboardInterrupt:
        for name in jobs:
            progress.say(f"{platform.leave(name, progress)}. Go on: {again}")
        raise


class _Watch:
    """One job that is waited for, and its state so far."""

    def __init__(self, platform: Trainer, name: str, expected: int, progress: Progress, done: str, again: str) -> None:
        self._platform, self._name, self._expected, self._progress = platform, name, expected, progress
        self._done, self._again = done, again
        self._job: TrainingJob | None = None
        self._patience = Patience()
        self._bookmarks: dict[str, str] = {}
        self._lines: list[str] = []
        self._now = ""
        self._reports = False
        self._is_readable = True

    def poll(self, now: float) -> bool:
        """Poll it and report what is new. Raises TrainingJobFailed or Unavailable."""
        before = self._job
        job = self._patience.ask(lambda: self._platform.training_job(self._name), now)
        if isinstance(job, Unavailable):
            if before is None:  # there may be no such job
                raise job
            if self._patience.silent_since == now:
                self._progress.say(f"{self._name}: still waiting: {job.message}")
            return False
        self._job = job
        if before and before.stage != job.stage:
            self._progress.say(f"{self._name}: {_words(before.stage)} took {minutes(job.entered - before.entered)}")
        self._read()
        if job.status == "Completed":
            self._progress.say(f"{self._name} {self._done}, in {minutes(now - job.began)}")
            return True
        if job.status in ("Failed", "Stopped"):
            raise self._failure(job)
        return False

    def describe(self, now: float) -> str:
        assert self._job is not None
        of = f" of about {self._expected / 60:.0f} min" if self._expected else ""
        now_or_why = self._now or shorten(self._job.reason, _LONGEST_LINE, placeholder=" …", break_on_hyphens=False)
        line = f": {now_or_why}" if now_or_why else ""
        since = minutes(now - self._job.entered)
        return f"{self._name}: {_words(self._job.stage)} {since}, in total {minutes(now - self._job.began)}{of}{line}"

    def _read(self) -> None:
        try:
            for line in self._platform.training_log(self._name, self._bookmarks):
                progress = parse(line.text)
                self._lines.append(progress.text() if progress else line.text.rstrip())
                self._reports = self._reports or progress is not None
                if progress and not progress.held_out:  # else a log would have two lines in place of one a minute
                    self._now = progress.brief()
                elif not self._reports:  # who says how far it is says it better than its engine does
                    self._now = shorten(self._lines[-1], _LONGEST_LINE, placeholder=" …", break_on_hyphens=False)
                # Of training: the end of a stage, and what was measured on held-out data; the rest is for the live line
                is_news = progress and (progress.held_out or progress.done >= progress.total)
                if is_news or _COMPILER_NEWS.match(line.text):
                    self._progress.say(f"{self._name}: {self._lines[-1]}")
        except PlatformError as error:  # a user who may start jobs may lack the permission to read logs
            if self._is_readable:
                self._progress.say(f"{self._name}: cannot read its log: {error.message}")
            self._is_readable = False

    def _failure(self, job: TrainingJob) -> TrainingJobFailed:
        ended = "failed" if job.status == "Failed" else f"was stopped ({job.stage})"
        cause = diagnose(self._lines, job.reason, self._platform.name)
        why = cause.line if cause else job.reason or last_error(self._lines) or "no reason was given"
        unknown = "This is not a cause that the toolkit knows."
        hint = cause.hint if cause else f"To go on from its last checkpoint: {self._again}" if self._again else unknown
        whole = f"{hint}\n  For the whole log, run: {self._platform.log_command(job.name)}"
        return TrainingJobFailed(f"{job.name} {ended}: {why}", hint=whole, logs=self._lines[-_LAST_LINES:], cause=cause)


def _words(stage: str) -> str:
    """`DownloadingTrainingImage` as the words `downloading training image`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", stage).lower()
