"""A saved plan: shown and reviewed by people, and applied only where its recipe still leads to it."""

from __future__ import annotations

import shlex
from pathlib import Path

from toolkit.api.context import RecipeLike
from toolkit.api.deployment import DeploymentPlan, plan
from toolkit.errors import StalePlanError, UsageError
from toolkit.loading import load, on_platform
from toolkit.planning.differences import differences, same_scope
from toolkit.planning.plan import Plan
from toolkit.recipe.recipe import Recipe

_MOST_SHOWN = 5


def read_plan(path: Path, recipe: RecipeLike | None = None, *, platform: str | None = None) -> DeploymentPlan:
    """A saved plan, made again from its recipe and from what runs now: what the file says gives no right to do it.

    `recipe` and `platform` say what the plan must be of: by default the recipe that it names, and that recipe's
    platform. Raises UsageError where the saved plan differs, StalePlanError where what runs has changed.
    """
    saved = Plan.read(path)
    loaded = on_platform(_recipe(saved, path, recipe), platform)
    if saved.platform != loaded.platform.name:
        message = f"{path} is for platform `{saved.platform}`, and {loaded.path} for `{loaded.platform.name}`"
        option = f"--platform {shlex.quote(saved.platform)}"
        raise UsageError(message, hint=f"If that is meant, add {option}; otherwise plan again.")
    with_baseline = len(saved.endpoints) > 1
    derived = plan(loaded, baseline=with_baseline)
    found, is_stale = differences(saved, derived), saved.fingerprint != derived.fingerprint
    if not (found or is_stale):
        return derived
    more = [f"and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    shown = "".join(f"\n  {line}" for line in (*found[:_MOST_SHOWN], *more))
    options = [*(["--platform", platform] if platform else []), *(["--baseline"] if with_baseline else [])]
    again = shlex.join(["toolkit", "plan", str(loaded.path), *options, "--out", str(path)])
    if is_stale and same_scope(saved, derived):
        raise StalePlanError(f"what runs now is not what {path} was made from{shown}", hint=f"Plan again: {again}")
    raise UsageError(f"{path} is not what {loaded.path} leads to{shown}", hint=f"Plan again: {again}")


def _recipe(saved: Plan, path: Path, recipe: RecipeLike | None) -> Recipe:
    if recipe is None and not Path(saved.recipe).is_file():
        hint = f"Name the recipe: toolkit deploy RECIPE --plan {shlex.quote(str(path))}"
        raise UsageError(f"{path} was made from {saved.recipe}, which is not a file on this machine", hint=hint)
    return load(saved.recipe if recipe is None else recipe)
