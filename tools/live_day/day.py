"""The day itself: steps in order, where it goes on, and that nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

import toolkit
from toolkit.apply.progress import Progress
from toolkit.errors import ToolkitError
from toolkit.files import write_whole
from toolkit.registry import open_platform, session_of
from tools.live_day.recording import Recorder
from tools.live_day.steps import RECIPES, Means, Step

NAME = "live-day"
"""How the names of all that the day makes begin."""

_ROOT = Path(__file__).parents[2]
_OURS = Path(__file__).parent / "recipes"
DONE, FAILED, INTERRUPTED = 0, 1, 130
REMOVE = "remove"
"""The step that ends each run, and may be asked for alone."""


@dataclass
class Day:
    """A day whose calls, recipes and finished steps are in the folder `out`. `again` is the command that runs it."""

    session: boto3.Session
    out: Path
    recorder: Recorder
    progress: Progress
    pause: Callable[[float], object]
    say: Callable[[str], object]
    steps: Sequence[Step]
    again: str

    def __post_init__(self) -> None:
        recipes = self.out / "recipes"
        recipes.mkdir(parents=True, exist_ok=True)
        for path in _OURS.glob("*.yaml"):
            text = path.read_text(encoding="utf-8").replace("../../../recipes", str(_ROOT / "recipes"))
            write_whole(recipes / path.name, text)
        self.means = Means(self.session, recipes, self.progress, self.pause)

    @property
    def finished(self) -> list[str]:
        """The names of steps that went well in this folder, in this run or before."""
        return json.loads(self._marks.read_text(encoding="utf-8")) if self._marks.exists() else []

    def todo(self, only: str | None = None) -> list[Step]:
        """The steps to run now, with those that they need: `only` one, or all that have not gone well yet.

        What a step needs is done again: after each run nothing is left of it.
        """
        done = self.finished
        wanted = {step.name for step in self.steps if (step.name == only if only else step.name not in done)}
        for step in reversed(self.steps):  # what is needed stands before
            if step.name in wanted:
                wanted.update(step.needs)
        return [step for step in self.steps if step.name in wanted]

    def plan(self, steps: Sequence[Step]) -> Iterator[str]:
        """The steps with their prices, and what they cost together. Raises ToolkitError without a price."""
        self.recorder.step = "plan"
        hourly = toolkit.plan(self.means.recipe("capture"), session=self.session).price_per_hour
        if hourly is None:
            raise ToolkitError(f"no price of the day's instance type is known in {self.session.region_name}")
        for step in steps:
            yield f"{step.name:10} {step.price(hourly):5.2f} $  {step.does}"
        total = sum(step.price(hourly) for step in steps)
        yield f"{'together':10} {total:5.2f} $  an estimate from above, with {hourly:.2f} $ an hour for each instance"
        yield "At the end all of it is removed, also if a step fails or is interrupted."

    def run(self, steps: Sequence[Step]) -> int:
        """Run the steps until one fails, remove everything, and say what is left. The exit code."""
        code = DONE
        try:
            for step in steps:
                self.recorder.step = step.name
                self.say(f"== {step.name}: {step.does}")
                step.run(self.means)
                self._mark(step)
        except (ToolkitError, BotoCoreError, ClientError) as error:
            self.say(f"{step.name} failed: {error}")
            code = FAILED
        except KeyboardInterrupt:
            self.say(f"{step.name} was interrupted; what was made is removed first")
            code = INTERRUPTED
        finally:
            is_clean = self.remove()
        if code:
            self.say(f"To go on: {self.again}")
        return code if is_clean else code or FAILED

    def remove(self) -> bool:
        """Remove all that the day made; whether nothing is left."""
        self.recorder.step = REMOVE
        self.say(f"== {REMOVE}: everything that was made")
        for name in RECIPES:
            try:
                self.means.destroy(name)
            except ToolkitError as error:
                self.say(f"{self.means.recipe(name)} could not be removed: {error}")
        try:
            self._remove_what_stays()
            left = list(self.left())
        except ToolkitError as error:
            left = [f"it could not be read: {error}"]
        tried = f"left; try again: {self.again} --only {REMOVE}"
        self.say("\n  ".join([tried, *left]) if left else "nothing is left")
        return not left

    def left(self) -> Iterator[str]:
        """What the toolkit finds that bears the day's name, or that it made for it."""
        platform = open_platform("sagemaker", None, self.session)
        names = [toolkit.load(self.means.recipe(name)).name for name in RECIPES]
        for item in platform.observe((), [*names, *(f"{name}-baseline" for name in names)]).existing:
            if item.kind != "Bucket":  # goes with the last endpoint; others may use it
                yield f"{item.kind} {item.name}"
        kept = toolkit.clean(dry_run=True, platform="sagemaker", session=self.session)
        yield from (f"{thing.kind} {thing.name}" for thing in kept.items if NAME in thing.name)
        yield from (f"perhaps more: {why}" for why in kept.unread)

    def _remove_what_stays(self) -> None:
        """What `toolkit destroy` keeps on purpose: logs, captured requests, the image and output of the training."""
        cleaner = session_of("sagemaker", self.session).cleaner(None)
        assert cleaner
        for _ in range(2):  # a repository is empty once its images have gone
            for item in cleaner.find().items:
                if NAME in item.name and not item.needed:
                    self.say(f"{item.kind} {item.name} is removed")
                    cleaner.remove(item)

    def _mark(self, step: Step) -> None:
        if step.name not in self.finished:
            write_whole(self._marks, json.dumps([*self.finished, step.name]))

    @property
    def _marks(self) -> Path:
        return self.out / "finished.json"
