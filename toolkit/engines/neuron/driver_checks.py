"""Does the image's Neuron runtime work with the driver of the hosts?

A driver has an oldest runtime, and a runtime an oldest driver. The driver is the host's: no image can bring its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog.lookup import Instance
from toolkit.catalog.trainium import family
from toolkit.engines.neuron.generations import (
    Generation,
    ami_release,
    at_least,
    driver_fits,
    facts,
    too_new_driver,
)
from toolkit.engines.neuron.keys import cluster_of
from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe

_DRIVER = "platform.kubernetes.neuron_driver"


def check_driver(recipe: Recipe, generation: Generation, instance: Instance, path: str) -> Iterator[Finding]:
    """Findings on the driver of hosts of that type."""
    on = family(instance.name)
    if on not in generation.families:  # another finding says so
        return
    if cluster := cluster_of(recipe):
        yield from _cluster(cluster.neuron_driver, generation, on, path)
    elif recipe.platform.name == "sagemaker":
        yield from _sagemaker(generation, on, path)


def _cluster(driver: str | None, generation: Generation, on: str, path: str) -> Iterator[Finding]:
    too_new = too_new_driver(generation)
    if driver and not driver_fits(generation, on, driver):
        message = f"{generation} has Neuron runtime {generation.runtime}, which {_range(generation, on)}, not {driver}"
        yield Finding("neuron.driver", message, _DRIVER, hint=_choose_ami(generation, on))
    elif too_new and not driver:
        message = (
            f"{generation} has Neuron runtime {generation.runtime}, which does not start on nodes with driver "
            f"{too_new} or newer, such as those of EKS's current AMI"
        )
        release = ami_release(generation, on)
        driver = release.driver if release else "the nodes' driver"
        hint = f"{_choose_ami(generation, on)} Then write `kubernetes: {{neuron_driver: {driver}}}`."
        yield Finding("neuron.driver", message, path, hint=hint, severity="warning")


def _range(generation: Generation, on: str) -> str:
    lowest, too_new = generation.drivers.get(on), too_new_driver(generation)
    needs = f"needs driver {lowest} or newer" if lowest else "needs a driver"
    return f"{needs}, and older than {too_new}" if too_new else needs


def _choose_ami(generation: Generation, on: str) -> str:
    release = ami_release(generation, on)
    return f"Choose release {release} of EKS's AMI for Neuron for the nodes." if release else "Choose another AMI."


def _sagemaker(generation: Generation, on: str, path: str) -> Iterator[Finding]:
    host, seen, lowest = facts().sagemaker_driver, facts().sagemaker_driver_seen, generation.drivers.get(on)
    if not lowest or at_least(host, lowest):
        if on == family(seen.instance_type):
            fits = "works" if driver_fits(generation, on, seen.driver) else "does not work"
            message = f"a user saw Neuron driver {seen.driver} on {seen.instance_type}: {generation} {fits} with it"
            yield Finding("neuron.driver", message, path, severity="info")
        return
    message = (
        f"unverified: {generation} needs Neuron driver {lowest} on {on}, and the only driver that SageMaker documents "
        f"for its hosts is {host}; a user saw {seen.driver} on {seen.instance_type}"
    )
    hint = "The first line of the container's log shows the driver. Until then, Kubernetes is the safer platform."
    yield Finding("neuron.driver", message, path, hint=hint, severity="warning")
