"""Trainium and Inferentia hardware: instance families, chips, and logical NeuronCores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from toolkit.catalog.lookup import Instance

TRAINING_FAMILIES = ("trn1", "trn1n", "trn2")
"""Families on which SageMaker runs training jobs, and so compile jobs (botocore 1.44.5: TrainingInstanceType)."""

DEVICE_GROUPS = (1, 4, 8, 16)
"""Group sizes of connected chips in Neuron's DRA driver (awsdocs-neuron, deploy/eks/dra)."""

DRA_TYPES = ("trn2.48xlarge",)
"""Instance types for which Neuron's DRA driver is documented (awsdocs-neuron, deploy/eks/dra: prerequisites)."""

# The chip: https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-hardware/trainium3.html.
# EC2's list is InstanceType of botocore 1.44.5; the driver's source and a contest of AWS's name sizes that it lacks.
UNSIZED = {
    "trn3": "AWS documents its chips (8 cores and 144 GiB each) and servers of 16 or 4 of them, but no instance type's "
    "vCPUs and host memory, and EC2's API lists none (2026-11-26): "
    "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-hardware/trn3-arch.html"
}
"""Families that exist, and why nothing can be sized for them yet."""

LOGICAL_CORES_VARIABLES = ("NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE")
"""Variables that set the physical cores per logical core (LNC: 1 or 2) on Trainium2 and newer; new and old name."""


def family(instance_type: str) -> str:
    """The instance family of a type, with or without the prefix `ml.`: `trn2` for `ml.trn2.48xlarge`."""
    return instance_type.removeprefix("ml.").partition(".")[0]


def logical_cores(instance: Instance, env: Mapping[str, str]) -> int:
    """Logical cores of an instance with the engine's environment; tensor parallelism counts them."""
    return instance.neuron_cores if grouped_cores(env) == "1" else instance.neuron_cores_logical


def grouped_cores(env: Mapping[str, str]) -> str | None:
    """The physical cores per logical core that the environment sets."""
    return next((env[name] for name in LOGICAL_CORES_VARIABLES if name in env), None)


def uses_dra(instance_types: Sequence[str], written: str | None) -> bool:
    """Whether pods on nodes of these types claim chips from the DRA driver; `written` is what the recipe says."""
    return written == "dra" or (written is None and all(name in DRA_TYPES for name in instance_types))


def chips(instance: Instance, env: Mapping[str, str], cores: int) -> int:
    """Chips that hold that many logical cores."""
    return math.ceil(cores * instance.accelerator_count / logical_cores(instance, env))
