"""Kinds of AWS resources, one file for each or for a close family.

A file holds all that there is to say of its kind: what a recipe wants of it, what becomes of one that exists, how it is
read, made, changed and removed with boto3's clients, and what it is in a CloudFormation template. A new kind is one
file, and its place in the order below.
"""

from __future__ import annotations

from toolkit.platforms.sagemaker.rules.capabilities import Capabilities
from toolkit.platforms.sagemaker.rules.kinds.alarm import AlarmKind
from toolkit.platforms.sagemaker.rules.kinds.base import AwsKind
from toolkit.platforms.sagemaker.rules.kinds.bucket import BucketKind
from toolkit.platforms.sagemaker.rules.kinds.dashboard import DashboardKind
from toolkit.platforms.sagemaker.rules.kinds.endpoint import EndpointKind
from toolkit.platforms.sagemaker.rules.kinds.endpoint_config import EndpointConfigKind
from toolkit.platforms.sagemaker.rules.kinds.image import ImageKind
from toolkit.platforms.sagemaker.rules.kinds.inference_component import InferenceComponentKind
from toolkit.platforms.sagemaker.rules.kinds.log_group import LogGroupKind, MetricFilterKind
from toolkit.platforms.sagemaker.rules.kinds.model import ModelKind
from toolkit.platforms.sagemaker.rules.kinds.repository import RepositoryKind
from toolkit.platforms.sagemaker.rules.kinds.role import RoleKind, RolePolicyKind
from toolkit.platforms.sagemaker.rules.kinds.scaling import ScalableTargetKind, ScalingPolicyKind
from toolkit.platforms.sagemaker.rules.kinds.training_job import ArtifactsKind, TrainingJobKind
from toolkit.platforms.sagemaker.rules.kinds.weights import WeightsKind, WeightsUseKind

_KINDS: tuple[type[AwsKind], ...] = (
    BucketKind,
    RepositoryKind,
    ImageKind,
    WeightsUseKind,
    WeightsKind,
    RoleKind,
    RolePolicyKind,
    TrainingJobKind,
    ArtifactsKind,
    ModelKind,
    EndpointConfigKind,
    LogGroupKind,
    MetricFilterKind,
    AlarmKind,
    DashboardKind,
    EndpointKind,
    InferenceComponentKind,
    ScalableTargetKind,
    ScalingPolicyKind,
)
"""In the order in which they are made."""


def aws_kinds(capabilities: Capabilities) -> tuple[AwsKind, ...]:
    """All kinds, as a platform of those capabilities has them, in the order in which they are made."""
    return tuple(kind(capabilities) for kind in _KINDS)
