"""boto3 clients, made when first used: each costs a tenth of a second."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from types_boto3_iam import IAMClient
    from types_boto3_logs import CloudWatchLogsClient
    from types_boto3_s3 import S3Client
    from types_boto3_sagemaker import SageMakerClient
    from types_boto3_sagemaker_runtime import SageMakerRuntimeClient
    from types_boto3_sts import STSClient

# A model may think for a minute before it answers (SageMaker's own limit), and asking twice would generate twice.
_RUNTIME = Config(read_timeout=70, retries={"total_max_attempts": 1})


@dataclass(frozen=True)
class Clients:
    """Clients of one session."""

    session: boto3.Session

    @cached_property
    def sagemaker(self) -> SageMakerClient:
        """Control plane: models, endpoint configurations, endpoints."""
        return self.session.client("sagemaker")

    @cached_property
    def runtime(self) -> SageMakerRuntimeClient:
        """Data plane: invocations."""
        return self.session.client("sagemaker-runtime", config=_RUNTIME)

    @cached_property
    def s3(self) -> S3Client:
        """Weights."""
        return self.session.client("s3")

    @cached_property
    def iam(self) -> IAMClient:
        """Execution roles."""
        return self.session.client("iam")

    @cached_property
    def sts(self) -> STSClient:
        """Who we are."""
        return self.session.client("sts")

    @cached_property
    def logs(self) -> CloudWatchLogsClient:
        """What containers wrote."""
        return self.session.client("logs")
