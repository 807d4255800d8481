"""Facts about AWS's vLLM images for Trainium and Inferentia, by generation of the Neuron SDK.

Each function looks up one fact. What no source states is empty or None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from toolkit import documents
from toolkit.catalog import lookup
from toolkit.recipe.rules import Published
from toolkit.recipe.schema import EngineSection

ANY_ENGINE = "neuron"
"""The engine name with which a recipe lets the toolkit choose one of them."""


@dataclass(frozen=True)
class Method:
    """A drafting method. `targets` are the architectures (config.json) that it supports; empty if not documented.

    `unverified`: only for recipes that name the engine, with a warning.
    """

    default_num_speculative_tokens: int
    targets: tuple[str, ...]
    unverified: bool = False


@dataclass(frozen=True)
class Generation:
    """An engine version with its Neuron SDK.

    Fields:
        version: of the image; it begins with vLLM's version.
        runtime: version of the Neuron runtime library in its image.
        families: instance families that it runs on: `trn1`, `trn2`.
        drivers: by family, the oldest supported host driver (aws-neuronx-dkms), if documented.
        methods: by the recipe's `speculation.method`.
    """

    engine: str
    version: str
    sdk: str
    runtime: str
    families: tuple[str, ...]
    drivers: Mapping[str, str]
    methods: Mapping[str, Method]
    note: str

    def __str__(self) -> str:
        return f"{self.engine} {self.version} (Neuron SDK {self.sdk})"

    def serves(self, method: str, family: str) -> bool:
        """Whether it supports a method on an instance family. Every generation supports `none`, the baseline."""
        return family in self.families and (method == "none" or method in self.methods)

    def is_unverified(self, method: str) -> bool:
        return method in self.methods and self.methods[method].unverified


class AmiRelease(NamedTuple):
    """A release of EKS's AMI for Neuron, and the driver in it."""

    release: str
    driver: str

    def __str__(self) -> str:
        return f"{self.release} (driver {self.driver})"


class SeenDriver(NamedTuple):
    """A driver that somebody saw on a host of SageMaker's."""

    driver: str
    instance_type: str


@dataclass(frozen=True)
class NeuronFacts:
    """Facts about all generations.

    Fields:
        sagemaker_driver: driver of the only host image that SageMaker documents for Neuron.
        runtime_of_driver: the oldest runtime that a driver, and every newer one, works with.
        eks_ami_releases: the last release with each driver, newest first.
        compile_minutes_per_gb: for weights in bfloat16; an estimate.
        published: by method, the settings of its published numbers.
        generations: the newest first.
    """

    default_max_num_seqs: int
    sagemaker_driver: str
    sagemaker_driver_seen: SeenDriver
    runtime_of_driver: Mapping[str, str]
    eks_ami_releases: tuple[AmiRelease, ...]
    compile_minutes_per_gb: float
    published: Mapping[str, Published]
    generations: tuple[Generation, ...]


@cache
def facts() -> NeuronFacts:
    return documents.fit(NeuronFacts, lookup.read("engines/neuron.json"))


@cache
def generations(engine: str = ANY_ENGINE) -> tuple[Generation, ...]:
    """Every generation of the engine, the newest first."""
    return tuple(item for item in facts().generations if engine in (ANY_ENGINE, item.engine))


def generation_of(engine: EngineSection) -> Generation | None:
    """The generation of a recipe's engine; None for an unknown version."""
    return next((item for item in generations() if (item.engine, item.version) == (engine.name, engine.version)), None)


def newest(engine: str, method: str, family: str) -> Generation | None:
    """The newest generation that supports the method on that family; `engine` may be ANY_ENGINE."""
    able = (item for item in generations(engine) if item.serves(method, family))
    return next((item for item in able if engine != ANY_ENGINE or not item.is_unverified(method)), None)


def too_new_driver(generation: Generation) -> str | None:
    """The first driver version that needs a newer runtime than the generation's; None if none is known."""
    needed = facts().runtime_of_driver.items()
    return next((driver for driver, runtime in needed if lookup.older(generation.runtime, runtime)), None)


def driver_fits(generation: Generation, family: str, driver: str) -> bool:
    """Whether the generation's runtime works with that driver, as far as it is documented."""
    lowest, too_new = generation.drivers.get(family), too_new_driver(generation)
    return not (lowest and lookup.older(driver, lowest)) and (not too_new or lookup.older(driver, too_new))


def ami_release(generation: Generation, family: str) -> AmiRelease | None:
    """The newest release of EKS's AMI whose driver works with the generation; None if none is known."""
    return next((item for item in facts().eks_ami_releases if driver_fits(generation, family, item.driver)), None)
