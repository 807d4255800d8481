"""Kinds of AWS resources, one file for each or for a close family.

A file has everything about its kind: which resources a recipe needs, what to do with an existing one, how to read,
create, update and delete it with boto3, and its form in a CloudFormation template. A new kind is one file, and an entry
in the order below.
"""

from __future__ import annotations

from toolkit.platforms.sagemaker.rules.capabilities import Capabilities
from toolkit.platforms.sagemaker.rules.kinds.alarm import AlarmKind
from toolkit.platforms.sagemaker.rules.kinds.artifacts import ArtifactsKind
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
from toolkit.platforms.sagemaker.rules.kinds.training_job import TrainingJobKind
from toolkit.platforms.sagemaker.rules.kinds.weights import WeightsKind, WeightsReferenceKind

_KINDS: tuple[type[AwsKind], ...] = (
    BucketKind,
    RepositoryKind,
    ImageKind,
    WeightsReferenceKind,
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
"""In order of creation."""


def aws_kinds(capabilities: Capabilities) -> tuple[AwsKind, ...]:
    """All kinds on a platform with these capabilities, in order of creation."""
    return tuple(kind(capabilities) for kind in _KINDS)
