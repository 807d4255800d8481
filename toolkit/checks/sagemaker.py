"""Will SageMaker take the instance type, and will the container be up before its time-outs?"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.catalog.lookup import Instance
from toolkit.findings import Finding
from toolkit.recipe.lock import Lock, load_seconds
from toolkit.recipe.resolve import Recipe

_TYPES = "platform.instance_types"
_TIMEOUT = "platform.health_check_timeout"
# Compiling and capturing CUDA graphs, at the least; and SageMaker's limit.
_START_SECONDS, _LONGEST_SECONDS = 180, 3600
# Where no instance store is, SageMaker downloads to a volume of its own, whose size cannot be chosen above this.
_VOLUME_GB = 512


def check_sagemaker(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on instance types and time-outs; nothing for another platform."""
    if recipe.platform != "sagemaker":
        return
    for index, name in enumerate(recipe.instance_types):
        path = f"{_TYPES}.{index}"
        found = lookup.instance(name)
        if found is None:
            yield _unknown(name, path)
        elif not found.hostable:
            message = f"{name} cannot host endpoints"
            yield Finding("sagemaker.instance-type", message, path, hint="See: toolkit fit RECIPE")
        else:
            yield from _accelerator(recipe, found, path)
            if models:
                yield from _disk(models, found, path)
    if models:
        yield from _start(recipe, models)


def _unknown(name: str, path: str) -> Finding:
    near = difflib.get_close_matches(name, [instance.name for instance in lookup.instances()], n=1)
    hint = f"Did you mean `{near[0]}`?" if near else "See: toolkit fit RECIPE"
    return Finding("sagemaker.instance-type", f"{name} is no instance type that we know", path, hint=hint)


def _accelerator(recipe: Recipe, instance: Instance, path: str) -> Iterator[Finding]:
    """The engine's images are for NVIDIA GPUs."""
    if not instance.compute_capability:
        on = instance.accelerator or "CPUs"
        message = f"{recipe.engine.name} images of this platform run on NVIDIA GPUs, {instance.name} has {on}"
        yield Finding("sagemaker.accelerator", message, path, hint="Choose one of: toolkit fit RECIPE")


def _disk(models: Lock, instance: Instance, path: str) -> Iterator[Finding]:
    needed = _weight_bytes(models) / 1e9
    room = instance.local_nvme_gb or _VOLUME_GB
    if needed > room:
        message = f"{needed:.0f} GB of weights are more than the {room} GB of disk of {instance.name}"
        yield Finding("sagemaker.disk", message, path, hint="Choose a type with a larger instance store.")


def _start(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """A time-out that the recipe sets itself."""
    size = _weight_bytes(models)
    seconds = round(load_seconds(recipe, size)) + _START_SECONDS
    if recipe.health_check_timeout and recipe.health_check_timeout < min(seconds, _LONGEST_SECONDS):
        message = (
            f"{size / 1e9:.0f} GB of weights take up to {seconds} s to load (an estimate), "
            f"the container is given {recipe.health_check_timeout}"
        )
        yield Finding("sagemaker.health-check", message, _TIMEOUT, hint="Remove the key.", severity="warning")


def _weight_bytes(models: Lock) -> int:
    return (models.target.weight_bytes or 0) + (models.drafter.weight_bytes or 0 if models.drafter else 0)
