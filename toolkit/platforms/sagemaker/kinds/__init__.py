"""Kinds of AWS resources, one file for each or for a close family.

A file has everything about its kind: which resources a recipe needs, what to do with an existing one, how to read,
create, update and delete it with boto3, and its form in a CloudFormation template. A new kind is one file, and an entry
in the order below.
"""

from __future__ import annotations

from toolkit.platforms.sagemaker.kinds.base import AwsKind
from toolkit.platforms.sagemaker.kinds.bucket import BucketKind, WeightsKind, WeightsReferenceKind
from toolkit.platforms.sagemaker.kinds.endpoint import EndpointConfigKind, EndpointKind
from toolkit.platforms.sagemaker.kinds.image import ImageKind, RepositoryKind
from toolkit.platforms.sagemaker.kinds.inference_component import InferenceComponentKind
from toolkit.platforms.sagemaker.kinds.log_group import LogGroupKind, MetricFilterKind
from toolkit.platforms.sagemaker.kinds.model import ModelKind
from toolkit.platforms.sagemaker.kinds.model_package import ModelPackageGroupKind, ModelPackageKind
from toolkit.platforms.sagemaker.kinds.monitoring import AlarmKind, DashboardKind
from toolkit.platforms.sagemaker.kinds.role import RoleKind, RolePolicyKind
from toolkit.platforms.sagemaker.kinds.scaling import ScalableTargetKind, ScalingPolicyKind
from toolkit.platforms.sagemaker.kinds.training_job import ArtifactsKind, TrainingJobKind

KINDS: tuple[type[AwsKind], ...] = (
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
    ModelPackageGroupKind,
    ModelPackageKind,
)
"""In order of creation."""

ORDER = tuple(kind.kind for kind in KINDS)
"""Their names, in that order."""
