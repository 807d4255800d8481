"""Deploy settings one after the other, measure each against one baseline, and remove them again."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toolkit.api.context import exists, find_platform
from toolkit.api.deployment import deploy
from toolkit.api.endpoint import Endpoint
from toolkit.api.handles import connect
from toolkit.api.removal import destroy
from toolkit.apply.progress import Progress
from toolkit.files import write_whole
from toolkit.home import home
from toolkit.measure.report import BenchReport
from toolkit.measure.saved_report import read_report
from toolkit.measure.settings import Setting
from toolkit.recipe.content import digest, manifest, manifest_digest
from toolkit.recipe.lock import lock_path
from toolkit.recipe.resolve import Recipe
from toolkit.version import __version__

Measure = Callable[[Endpoint, Endpoint], BenchReport]
"""Measures an endpoint against the baseline's."""


class Trials:
    """The settings of a recipe that are measured. Leaving it as a context removes the baseline that it deployed.

    Each setting's report is kept below the toolkit's home, and used again while all that it depends on is the same; so
    the same call carries on where one was interrupted. `asked` is all that decides what is measured. A baseline that
    was in service before is used, and stays.
    """

    def __init__(self, recipe: Recipe, measure: Measure, asked: dict[str, Any], progress: Progress) -> None:
        self._recipe = recipe
        self._measure = measure
        self._asked = asked
        self._progress = progress
        self._folder = home() / "tuning" / recipe.name
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def report(self, setting: Setting) -> BenchReport:
        """What was measured of a setting, now or before. Raises KeyboardInterrupt if the user ended the measurement."""
        path = self._folder / f"{digest(self._content(setting.recipe))}.json"
        if path.is_file():
            self._progress.say(f"{setting.name}: measured before")
            return read_report(path)
        self._progress.say(f"{setting.name}: deploy, measure, remove")
        measured = self._measured(setting)
        report = replace(measured, setting={**measured.setting, **circumstances(setting.recipe)})
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(report.to_dict()))
        return report

    def _measured(self, setting: Setting) -> BenchReport:
        baseline = self._baseline
        try:
            report = self._measure(deploy(setting.recipe, progress=self._progress), baseline)
        finally:
            self._remove(setting.recipe)
        if not report.complete:
            raise KeyboardInterrupt
        return report

    @cached_property
    def _baseline(self) -> Endpoint:
        twin, deployed_here = self._recipe.baseline(), self._folder / "baseline-deployed"
        found = find_platform(twin.name, twin, None, None)
        if found and exists(found, twin.name) and not deployed_here.exists():
            return connect(twin).wait(progress=self._progress)
        deployed_here.parent.mkdir(parents=True, exist_ok=True)
        deployed_here.touch()  # if this process is killed, the next one knows whose it is
        self._stack.callback(self._remove_baseline, twin, deployed_here)
        return deploy(twin, progress=self._progress)

    def _remove_baseline(self, twin: Recipe, deployed_here: Path) -> None:
        self._remove(twin)
        deployed_here.unlink(missing_ok=True)

    def _remove(self, recipe: Recipe) -> None:
        destroy(recipe, platform=recipe.platform.name, progress=self._progress)

    def _content(self, recipe: Recipe) -> dict[str, Any]:
        """All that a measurement depends on."""
        lock = lock_path(recipe)
        named = [path for name in self._asked["workloads"] if (path := Path(name)).is_file()]
        return {
            **self._asked,
            "toolkit": __version__,
            "hardware": _hardware(recipe),
            "recipe": {key: value for key, value in recipe.to_dict().items() if key != "description"},
            "schedule": recipe.speculation.schedule if recipe.speculation else (),
            "models": [
                manifest_digest(manifest(source.folder)) if source.folder else [str(source), source.revision]
                for source in recipe.models.values()
            ],
            "lock": lock.read_text(encoding="utf-8") if lock.is_file() else "",
            "prompts": [sha256(path.read_bytes()).hexdigest() for path in (*recipe.workloads.values(), *named)],
        }


def circumstances(recipe: Recipe) -> dict[str, str]:
    """What a measurement was made with, and the day: for the recipe's evidence."""
    return {
        "hardware": _hardware(recipe),
        "engine": f"{recipe.engine.name} {recipe.engine.version}",
        "toolkit": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _hardware(recipe: Recipe) -> str:
    if recipe.platform.rules.has_instance_types:
        return " or ".join(recipe.platform.instance_types)
    return f"{os.cpu_count()} CPU cores ({platform.machine()})"
