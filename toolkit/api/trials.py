"""Deploy settings one after the other, measure each against one baseline, and remove them again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from toolkit.api.context import exists, find_platform
from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import Steps
from toolkit.apply.progress import Progress
from toolkit.errors import UsageError
from toolkit.files import make_private_folder, write_whole
from toolkit.home import home_folder
from toolkit.measure.report import BenchReport, load_report
from toolkit.measure.settings import Setting, is_tuned
from toolkit.recipe.content import digest, manifest, manifest_digest
from toolkit.recipe.lock import lock_path
from toolkit.recipe.recipe import Recipe
from toolkit.version import __version__


class Trials:
    """The settings of a recipe that are measured. Leaving it as a context removes the baseline that it deployed.

    Each setting's report is kept below the toolkit's home, and used again while all that it depends on is the same; so
    the same call carries on where one was interrupted. What a process that was killed has deployed is removed first.
    `asked` is all that decides what is measured. A baseline that was in service before is used, and stays.
    """

    def __init__(self, recipe: Recipe, steps: Steps, asked: dict[str, Any], progress: Progress) -> None:
        self._recipe = recipe
        self._steps = steps
        self._asked = asked
        self._progress = progress
        self._folder = home_folder("tuning") / recipe.name
        self._deployed = self._folder / "deployed"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        make_private_folder(self._deployed)
        with ExitStack() as stack:
            try:
                stack.enter_context(FileLock(self._folder / "lock", timeout=0, mode=0o600))
            except Timeout as error:
                hint = "Wait until it has ended."
                raise UsageError(f"{self._recipe.name} is being tuned by another process", hint=hint) from error
            for name in sorted(filter(self._may_remove, (path.name for path in self._deployed.iterdir()))):
                self._progress.say(f"{name} remains of a process that was killed: it is removed")
                self._remove(replace(self._recipe, name=name))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def report(self, setting: Setting, measurement: int = 1) -> BenchReport:
        """What was measured of a setting, now or before. Raises KeyboardInterrupt if the user ended the measurement.

        Each `measurement` of a setting asks the prompts in an order of its own.
        """
        folder = self._folder / "others" if setting.is_other else self._folder  # `advise` reads the recipe's own
        path = folder / f"{digest({**self._content(setting.recipe), 'measurement': measurement})}.json"
        again = " again" if measurement > 1 else ""
        if (kept := self._read_kept(path)) is not None:
            self._progress.say(f"{setting.name}: measured{again} before")
            return kept
        self._progress.say(f"{setting.name}: deploy, measure{again}, remove")
        measured = self._measure(setting, measurement)
        report = replace(measured, setting={**measured.setting, **circumstances(setting.recipe)})
        make_private_folder(path.parent)
        write_whole(path, json.dumps(report.to_dict()), 0o600)
        return report

    def remains(self, setting: Setting) -> bool:
        """Whether it was deployed and could not be removed."""
        return (self._deployed / setting.recipe.name).exists()

    def _may_remove(self, name: str) -> bool:
        """Whether tuning made such an endpoint: a file alone shall not have another one removed."""
        return is_tuned(name, self._recipe) or name == self._recipe.baseline().name

    def _read_kept(self, path: Path) -> BenchReport | None:
        if not path.is_file():
            return None
        try:
            return load_report(path)
        except UsageError as error:
            self._progress.say(f"{error.message}: it is measured again")
            return None

    def _measure(self, setting: Setting, measurement: int) -> BenchReport:
        baseline = self._baseline
        try:
            report = self._steps.measure(self._deploy(setting.recipe), baseline=baseline, seed=measurement - 1)
        finally:
            self._remove(setting.recipe)
        if not report.complete:
            raise KeyboardInterrupt
        return report

    @cached_property
    def _baseline(self) -> Endpoint:
        twin = self._recipe.baseline()
        opened = find_platform(twin.name, twin, None, None)
        if opened and exists(opened, twin.name):
            return self._steps.connect(twin).wait(progress=self._progress)
        self._stack.callback(self._remove, twin)
        return self._deploy(twin)

    def _deploy(self, recipe: Recipe) -> Endpoint:
        (self._deployed / recipe.name).touch()
        return self._steps.deploy_uncompiled(recipe, progress=self._progress)

    def _remove(self, recipe: Recipe) -> None:
        self._steps.destroy(recipe, platform=recipe.platform.name, progress=self._progress)
        (self._deployed / recipe.name).unlink(missing_ok=True)

    def _content(self, recipe: Recipe) -> dict[str, Any]:
        """All that a measurement depends on."""
        named = [path for name in self._asked["workloads"] if (path := Path(name)).is_file()]
        return {
            **self._asked,
            **content(recipe),
            "prompts": [_sha256(path) for path in (*recipe.workloads.values(), *named)],
        }


def content(recipe: Recipe) -> dict[str, Any]:
    """All that a measurement of a recipe depends on, but for what it is asked."""
    lock = lock_path(recipe)
    return {
        "toolkit": __version__,
        "hardware": _hardware(recipe),
        "recipe": recipe.what_runs(),
        "models": [
            manifest_digest(manifest(source.folder)) if source.folder else [str(source), source.revision]
            for source in recipe.models.values()
        ],
        "lock": lock.read_text(encoding="utf-8") if lock.is_file() else "",
    }


def circumstances(recipe: Recipe) -> dict[str, str]:
    """What a measurement was made with, and the day: for the recipe's evidence."""
    return {
        "hardware": _hardware(recipe),
        "engine": f"{recipe.engine.name} {recipe.engine.version}",
        "toolkit": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _hardware(recipe: Recipe) -> str:
    if recipe.platform_rules.facts.has_instance_types:
        return " or ".join(recipe.platform.types)
    return f"{os.cpu_count()} CPU cores ({platform.machine()})"
