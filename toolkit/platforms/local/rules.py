"""The local platform's pure part: SageMaker's, with what this machine can do."""

from __future__ import annotations

from toolkit.catalog import lookup
from toolkit.platforms.image import ImageStore
from toolkit.platforms.local.checks import check_local
from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules
from toolkit.platforms.sagemaker.rules.capabilities import Capabilities

LOCAL_REGISTRY = "localhost"
"""What images are called by that are on this machine only."""

LOCAL = Capabilities(
    enhanced_metrics=False,
    instance_types=False,
    runs_programs=True,
    deployment_guardrails=False,
    compiles=False,
    monitors=False,
    outlasts=False,
    plan_notes=False,
    images=ImageStore(LOCAL_REGISTRY, "podman or docker", has_accelerators=False),
    endpoint_seconds=lookup.platform("local").endpoint_seconds,
)

RULES = AwsRules("local", LOCAL, check_local)
