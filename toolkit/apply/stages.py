"""How far a container has come, read from what its engine logs as it starts, and its platform says of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from toolkit.apply.causes import Words, words

PROVISIONING = "waiting for an instance, weights and image"
"""Before the container's first line. SageMaker does not tell which of the three it is about; Kubernetes does."""

PULLING = "pulling the image"

STARTING = "starting"
LOADING = "loading the target"
COMPILING = "compiling and capturing graphs"
ANSWERING = "answering"
_NAMES = {
    "provisioning": PROVISIONING,
    "pulling": PULLING,
    "starting": STARTING,
    "loading": LOADING,
    "loading-drafter": "loading the drafter",
    "compiling": COMPILING,
    "warming-up": "warming up",
    "answering": ANSWERING,
}
"""All stages in their order, by their names in causes.json."""

STAGES = tuple(_NAMES.values())

# Of published logs: an instance and its image take three to six minutes, compiling and graphs one to three.
_INSTANCE_SECONDS, _COMPILE_SECONDS = 270.0, 120.0


def expected_seconds(download: float, load: float) -> dict[str, float]:
    """How long the long stages are thought to take, for weights that take so many seconds to fetch and to load."""
    return {PROVISIONING: _INSTANCE_SECONDS + download, LOADING: load, COMPILING: _COMPILE_SECONDS}


@dataclass
class Start:
    """A container's start as its lines tell it. `entered` is when the stage began, by the caller's clock."""

    stage: str = PROVISIONING
    entered: float = 0.0
    count: str = ""
    words: Words = field(default_factory=words, repr=False)

    def read(self, line: str, now: float) -> str:
        """Take in the next line, written at `now`; a sentence when a stage is over, else an empty text."""
        for pattern, what in self.words.counts:
            if found := pattern.search(line):
                self.count = f"{found[1]} {what}".strip()
        marked = [_NAMES[name] for name, mark in self.words.stages if mark.search(line)]
        stage = min(marked, key=STAGES.index, default=STARTING)
        again = self.stage not in (PROVISIONING, PULLING, STARTING) and self.words.starts.search(line)
        if not again and STAGES.index(stage) <= STAGES.index(self.stage):
            return ""
        took = f"{self.stage} took {minutes(now - self.entered)}" if now >= self.entered else ""
        said = f"it starts again, after {self.stage}" if again else took
        self.stage, self.entered, self.count = stage, now, ""
        return said

    def tell(self, now: float, expected: float | None) -> str:
        """The stage with its elapsed time, the time that it is expected to take, and what is counted in it."""
        of = f" of about {_roughly(expected)}" if expected else ""
        counted = f" ({self.count})" if self.count else ""
        return f"{self.stage} {minutes(now - self.entered)}{of}{counted}"


def stage_of(lines: Iterable[str]) -> str:
    """The stage that a log breaks off in."""
    start = Start()
    for line in lines:
        start.read(line, 0.0)
    return start.stage


def minutes(seconds: float) -> str:
    """Minutes and seconds, as in 2:10."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"


def _roughly(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
