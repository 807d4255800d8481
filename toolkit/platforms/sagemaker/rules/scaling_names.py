"""What Application Auto Scaling calls an endpoint's variants and inference components."""

from __future__ import annotations

from typing import Any

from toolkit.platforms.sagemaker.rules.arms import BASELINE, SPECULATIVE, VARIANT

TRACKING, FROM_ZERO = "concurrency", "from-zero"
"""Names of the policies."""

COMPONENT = "inference-component/"


def resource_ids(name: str) -> list[str]:
    """Every scalable target that an endpoint or an inference component of ours may have."""
    return [*(f"endpoint/{name}/variant/{variant}" for variant in (VARIANT, SPECULATIVE, BASELINE)), COMPONENT + name]


def scalable(resource_id: str) -> dict[str, Any]:
    """How Application Auto Scaling's requests name a target."""
    dimension = (
        "inference-component:DesiredCopyCount" if resource_id.startswith(COMPONENT) else "variant:DesiredInstanceCount"
    )
    return {"ServiceNamespace": "sagemaker", "ResourceId": resource_id, "ScalableDimension": f"sagemaker:{dimension}"}


def scale_from_zero_alarm(resource_id: str) -> str:
    """The alarm that starts the policy `from-zero`."""
    return f"toolkit-{resource_id.removeprefix(COMPONENT)}-{FROM_ZERO}"
