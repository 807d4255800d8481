"""Application Auto Scaling's names for an endpoint's variants and inference components."""

from __future__ import annotations

from typing import Any

from toolkit.platforms.sagemaker.rules.arms import BASELINE, SPECULATIVE, VARIANT

TRACKING, FROM_ZERO = "concurrency", "from-zero"
"""Names of the policies."""

COMPONENT = "inference-component/"


def resource_ids(name: str) -> list[str]:
    """Resource ids of all scalable targets that an endpoint or inference component may have."""
    return [*(f"endpoint/{name}/variant/{variant}" for variant in (VARIANT, SPECULATIVE, BASELINE)), COMPONENT + name]


def variant_of(endpoint: str, name: str) -> str:
    """The variant of the endpoint that a target or policy of that name scales; empty if it scales something else."""
    prefix = f"endpoint/{endpoint}/variant/"
    return name.removeprefix(prefix).partition("/")[0] if name.startswith(prefix) else ""


def scalable(resource_id: str) -> dict[str, Any]:
    """The fields that identify a target in Application Auto Scaling's requests."""
    dimension = (
        "inference-component:DesiredCopyCount" if resource_id.startswith(COMPONENT) else "variant:DesiredInstanceCount"
    )
    return {"ServiceNamespace": "sagemaker", "ResourceId": resource_id, "ScalableDimension": f"sagemaker:{dimension}"}


def scale_from_zero_alarm(resource_id: str) -> str:
    """Name of the alarm that triggers the policy `from-zero`."""
    return f"toolkit-{resource_id.removeprefix(COMPONENT)}-{FROM_ZERO}"
