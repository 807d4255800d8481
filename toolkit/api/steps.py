"""The public functions that others are composed of. Tests put something else in their place, users never do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from toolkit.api.deployment import deploy
from toolkit.api.endpoint import Endpoint
from toolkit.api.handles import connect
from toolkit.api.measuring import bench
from toolkit.api.removal import destroy
from toolkit.api.training import train
from toolkit.api.training_run import TrainingRun
from toolkit.measure.report import BenchReport

_measure = partial(bench, _track=False)  # whoever measures several tracks them as one


@dataclass(frozen=True)
class Steps:
    """What `improve`, `tune`, `study` and `what_if` go through."""

    train: Callable[..., TrainingRun] = train
    connect: Callable[..., Endpoint] = connect
    deploy: Callable[..., Endpoint] = deploy
    measure: Callable[..., BenchReport] = _measure
    destroy: Callable[..., object] = destroy


STEPS = Steps()
