"""The user's own AWS session."""

from __future__ import annotations

import os

import boto3

from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.platform import SageMakerPlatform

_POLL = "TOOLKIT_POLL_SECONDS"


def sagemaker_platform(region: str | None = None) -> SageMakerPlatform:
    """SageMaker in `region`, or in the region of the user's profile or environment. Raises PlatformError.

    $TOOLKIT_POLL_SECONDS is the pause between two looks at an endpoint, 5 if it is not set.
    """
    with aws_errors("opening an AWS session"):
        return SageMakerPlatform(Clients(_session(region)), poll_seconds=float(os.environ.get(_POLL, "5")))


def enabled_regions() -> list[str]:
    """The regions that the account has enabled. Raises PlatformError."""
    with aws_errors("listing regions"):
        answer = Clients(_session(None)).ec2.describe_regions()
    return sorted(item["RegionName"] for item in answer["Regions"])


def _session(region: str | None) -> boto3.Session:
    session = boto3.Session(region_name=region)
    # A client of any service asks for the region, and says how to give one when there is none.
    session.client("sagemaker")
    return session
