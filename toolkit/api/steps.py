"""The public functions that others are composed of. Tests put something else in their place, users never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from toolkit.api.deployment import deploy
from toolkit.api.endpoint import Endpoint
from toolkit.api.handles import connect
from toolkit.api.measuring import bench
from toolkit.api.removal import destroy
from toolkit.api.training import train
from toolkit.api.training_run import TrainingRun
from toolkit.errors import NotCompiled
from toolkit.measure.report import BenchReport
from toolkit.planning.artifacts import compiling_at_start
from toolkit.recipe.recipe import Recipe

_measure = partial(bench, _track=False)  # whoever measures several tracks them as one


@dataclass(frozen=True)
class Steps:
    """What `improve`, `tune`, `study` and `what_if` go through."""

    train: Callable[..., TrainingRun] = train
    connect: Callable[..., Endpoint] = connect
    deploy: Callable[..., Endpoint] = deploy
    measure: Callable[..., BenchReport] = _measure
    destroy: Callable[..., object] = destroy

    def deploy_uncompiled(self, recipe: Recipe, **options: Any) -> Endpoint:
        """Deploy it also if nothing is compiled for it yet, where its containers can compile when they start."""
        try:
            return self.deploy(recipe, **options)
        except NotCompiled:
            cold = compiling_at_start(recipe)
            if cold is recipe:
                raise
            return self.deploy(cold, **options)


STEPS = Steps()
