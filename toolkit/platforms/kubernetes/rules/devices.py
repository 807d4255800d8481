"""Which nodes a pod goes to, by EC2's names and prices, and what it gets of one: accelerators, CPUs, memory.

A pod gets the share of its node that its accelerators are, so that the other half of a trn2.48xlarge can serve the
baseline. Not tried on a cluster; shapes are those of Neuron's and Kubernetes' own documentation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolkit.catalog import lookup
from toolkit.catalog.trainium import DEVICE_GROUPS, logical_cores, uses_dra
from toolkit.planning.names import content_name
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import cluster
from toolkit.platforms.kubernetes.rules.metadata import manifest
from toolkit.recipe.recipe import Recipe

CLAIM = "neurons"
"""Name of the pod's claim on Trainium chips, and of the request in it."""

GPU, NEURON = "nvidia.com/gpu", "aws.amazon.com/neuron"
"""Resources of the device plugins, and keys of the taints that such nodes usually have."""

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_DRA_DRIVER = "neuron.aws.com"
# The rest is the node's own: 90 of 96 CPUs in the manifests of aws-neuron-eks-samples.
_CPU_SHARE, _MEMORY_SHARE = 0.9375, 0.85
# 128 of 1,024 GiB in the same manifests.
_SHARED_MEMORY_SHARE = 0.125
_DISK_MARGIN = 1.2
SAGEMAKER_PREFIX = "ml."


def ec2_name(name: str) -> str:
    return name.removeprefix(SAGEMAKER_PREFIX)


def node_type(name: str) -> lookup.Instance | None:
    hardware = lookup.instance(f"{SAGEMAKER_PREFIX}{name}")
    return _as_node(hardware) if hardware else None


def node_types() -> Sequence[lookup.Instance]:
    return tuple(map(_as_node, lookup.instances()))


def _as_node(instance: lookup.Instance) -> lookup.Instance:
    return replace(instance, name=ec2_name(instance.name), prices=instance.ec2_prices, no_price=instance.no_ec2_price)


def instances(recipe: Recipe) -> list[lookup.Instance]:
    """The hardware of the recipe's instance types, which the checks have found known."""
    return [instance for name in recipe.platform.types if (instance := node_type(name))]


def on_trainium(recipe: Recipe) -> bool:
    """Whether the nodes have Trainium or Inferentia chips."""
    return bool(instances(recipe)[0].neuron_cores)


def accelerators(recipe: Recipe) -> int:
    """GPUs or Trainium chips of one pod; 0 on instances that have none."""
    first = instances(recipe)[0]
    if not first.accelerator_count:
        return 0
    needed = math.ceil(recipe.engine_rules.accelerators(recipe, first) / recipe.nodes)
    if not first.neuron_cores:
        return needed
    return min(next((size for size in DEVICE_GROUPS if size >= needed), needed), first.accelerator_count)


def claim_template(recipe: Recipe) -> Resource | None:
    """The claim that DRA makes for each pod; None for GPUs and for the device plugin.

    It cannot be changed once it is made, so its name says its content.
    """
    if not claims_chips(recipe):
        return None
    count = accelerators(recipe)
    exactly = {
        "deviceClassName": _DRA_DRIVER,
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": [{"cel": {"expression": _selector(recipe)}}],
    }
    devices: dict[str, Any] = {"requests": [{"name": CLAIM, "exactly": exactly}]}
    if count in DEVICE_GROUPS[1:]:
        devices["constraints"] = [{"requests": [CLAIM], "matchAttribute": f"resource.aws.com/devicegroup{count}_id"}]
    if grouped := _cores_in_group(recipe):
        parameters = {"apiVersion": f"{_DRA_DRIVER}/v1", "kind": "NeuronConfig", "logicalNeuronCore": grouped}
        devices["config"] = [{"requests": [CLAIM], "opaque": {"driver": _DRA_DRIVER, "parameters": parameters}}]
    spec = {"spec": {"devices": devices}}
    return manifest(recipe, "ResourceClaimTemplate", content_name(recipe.name, spec), spec=spec)


def _selector(recipe: Recipe) -> str:
    """The devices that will do, as an expression on their attributes (awsdocs-neuron, deploy/eks/dra)."""
    attributes = f"device.attributes['{_DRA_DRIVER}']"
    types = " || ".join(f"{attributes}.instanceType == '{name}'" for name in recipe.platform.types)
    driver = cluster(recipe).neuron_driver
    if driver is None:
        return types
    return f"({types}) && {attributes}.neuronDriverVersion == '{driver}'"


def claims(recipe: Recipe) -> dict[str, Any]:
    """The pod's part of it."""
    template = claim_template(recipe)
    return {"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": template.name}]} if template else {}


def disk_gib(recipe: Recipe, *, compiles: bool) -> int:
    """What a pod needs of its node's disk, with a margin; 0 where the size of the weights is not known."""
    fetched = (recipe.weight_bytes or 0) if recipe.platform.weights == "hub" else 0
    compilation = recipe.engine_rules.compilation
    compiled = compilation.disk_bytes(recipe, fetched, ahead=compiles) if compilation else 0
    return math.ceil(_DISK_MARGIN * (fetched + compiled) / 2**30)


def container_resources(recipe: Recipe, *, compiles: bool) -> dict[str, Any]:
    """Requests and limits. CPUs have no limit, which would slow the engine down where others leave them unused."""
    count, memory = accelerators(recipe), f"{math.floor(_memory_gib(recipe) * _MEMORY_SHARE)}Gi"
    cpu = min(instance.vcpus * _share(recipe, instance) for instance in instances(recipe))
    requests = {"cpu": str(max(1, math.floor(cpu * _CPU_SHARE))), "memory": memory}
    if disk := disk_gib(recipe, compiles=compiles):  # a pod that fills its node's disk up is evicted half way
        requests["ephemeral-storage"] = f"{disk}Gi"
    limits = {"memory": memory}
    if claims_chips(recipe):
        return {"requests": requests, "limits": limits, "claims": [{"name": CLAIM}]}
    device = {NEURON if on_trainium(recipe) else GPU: str(count)} if count else {}
    return {"requests": {**requests, **device}, "limits": {**limits, **device}}


def shared_memory(recipe: Recipe) -> str:
    """How large /dev/shm may become, through which the processes of a tensor-parallel engine talk."""
    return f"{max(1, math.floor(_memory_gib(recipe) * _SHARED_MEMORY_SHARE))}Gi"


def placement(recipe: Recipe) -> dict[str, Any]:
    """On nodes of the recipe's types, also where those are kept free for pods that use their accelerators."""
    types = list(recipe.platform.types)
    fields: dict[str, Any] = {"nodeSelector": {INSTANCE_TYPE: types[0]}}
    if len(types) > 1:
        expression = {"key": INSTANCE_TYPE, "operator": "In", "values": types}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        fields = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    if accelerators(recipe):
        key = NEURON if on_trainium(recipe) else GPU
        fields["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]
    return fields


def claims_chips(recipe: Recipe) -> bool:
    """Whether the pods get their chips from Neuron's DRA driver."""
    return on_trainium(recipe) and uses_dra(recipe.platform.types, cluster(recipe).neuron_devices)


def _cores_in_group(recipe: Recipe) -> int | None:
    """Physical cores in a logical one; None on chips that do not group them (Trainium 1, Inferentia)."""
    first = instances(recipe)[0]
    if first.neuron_cores == first.neuron_cores_logical:
        return None
    return first.neuron_cores // logical_cores(first, recipe.engine.env)


def _share(recipe: Recipe, instance: lookup.Instance) -> float:
    return accelerators(recipe) / instance.accelerator_count if instance.accelerator_count else 1.0


def _memory_gib(recipe: Recipe) -> float:
    return min(instance.host_memory_gib * _share(recipe, instance) for instance in instances(recipe))
