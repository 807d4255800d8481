"""The stage of a container's start, read from its engine's log and its platform's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from toolkit.apply.causes import Words, words
from toolkit.apply.log_lines import LONGEST_LINE
from toolkit.display import minutes
from toolkit.recipe.starts import COMPILING, LOADING, PROVISIONING

QUEUED = "waiting for its turn to start"

PULLING = "pulling the image"

STARTING = "starting"
CONFIGURING = "reading its configuration, starting the engine's core"
STARTING_CORE = "starting the core's workers"
ANSWERING = "answering"
_NAMES = {
    "provisioning": PROVISIONING,
    "queued": QUEUED,
    "pulling": PULLING,
    "starting": STARTING,
    "configuring": CONFIGURING,
    "starting-core": STARTING_CORE,
    "loading": LOADING,
    "loading-drafter": "loading the drafter",
    "compiling": COMPILING,
    "warming-up": "warming up",
    "answering": ANSWERING,
}
"""All stages in order, by their names in causes.json."""

STAGES = tuple(_NAMES.values())

# In logs of vLLM 0.32 with one server on two CPU cores: each imports the engine in a new process (16 to 25 s).
_USUAL_SECONDS = {STARTING: 20.0, CONFIGURING: 20.0, STARTING_CORE: 20.0}
_SLOW = 2.0
_BEFORE_LOADING = (PROVISIONING, QUEUED, PULLING, STARTING, CONFIGURING, STARTING_CORE)


@dataclass
class Start:
    """A container's start as shown by its log. `entered` is when the stage began, by the caller's clock.

    `took` are the seconds of the stages that have ended, since its last beginning.
    """

    stage: str = PROVISIONING
    entered: float = 0.0
    count: str = ""
    took: dict[str, float] = field(default_factory=dict)
    words: Words = field(default_factory=words, repr=False)

    def read(self, line: str, now: float) -> str:
        """Process the next line, written at `now`. Returns a sentence when a stage has ended, else an empty string."""
        line = line[:LONGEST_LINE]
        for pattern, what in self.words.counts:
            if match := pattern.search(line):
                self.count = f"{match[1]} {what}".strip()
        marked = [_NAMES[name] for name, mark in self.words.stages if mark.search(line)]
        stage = min(marked, key=STAGES.index, default=STARTING)
        again = self.stage not in _BEFORE_LOADING and self.words.starts.search(line)
        if not again and STAGES.index(stage) <= STAGES.index(self.stage):
            return ""
        self.took = {} if again else self.took_until(now)
        took = f"{self.stage} took {minutes(now - self.entered)}" if now >= self.entered else ""
        said = f"it restarts, after {self.stage}" if again else took
        self.stage, self.entered, self.count = stage, now, ""
        return said

    def took_until(self, now: float) -> dict[str, float]:
        """Seconds of each stage so far."""
        return {**self.took, self.stage: max(0.0, now - self.entered)}

    def describe(self, now: float, expected: float | None) -> str:
        """The stage with its elapsed time, expected time and counter, and whether it takes unusually long."""
        usual, elapsed = expected or _USUAL_SECONDS.get(self.stage), now - self.entered
        of = f" of about {_roughly(usual)}" if usual else ""
        counted = f" ({self.count})" if self.count else ""
        slow = ", slower than usual" if usual and elapsed > _SLOW * usual else ""
        return f"{self.stage} {minutes(elapsed)}{of}{counted}{slow}"


def stage_of(lines: Iterable[str]) -> str:
    """The stage in which a log ends."""
    start = Start()
    for line in lines:
        start.read(line, 0.0)
    return start.stage


def _roughly(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
