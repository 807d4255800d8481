"""Open SageMaker with the user's own AWS session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.recipe.resolve import Recipe

if TYPE_CHECKING:
    import boto3

    from toolkit.platforms.sagemaker.platform import SageMakerPlatform

_POLL = "TOOLKIT_POLL_SECONDS"
# Placeholder for the session's region in plans without credentials.
_SOME_REGION = "us-west-2"


class SageMakerSession:
    """Opens SageMaker with the credentials of the user's session. A scope is a region."""

    account_name = "an AWS account"
    unasked = "AWS (no credentials)"
    may_be_absent = False

    def scope(self, recipe: Recipe) -> str | None:
        return recipe.platform.region

    def scope_name(self, scope: str) -> str:
        return scope

    def can_be_asked(self) -> bool:
        from toolkit.platforms.sagemaker.credentials import has_credentials

        return has_credentials()

    def open(self, scope: str | None = None) -> SageMakerPlatform:
        return sagemaker_platform(scope)

    running = trainer = open

    def glance(self, scope: str | None = None) -> SageMakerPlatform:
        """The platform in that region, whose calls end after seconds. Raises PlatformError."""
        return sagemaker_platform(scope, attempts=2)

    def scope_of(self, endpoint: str) -> None:
        return

    def every_scope(self) -> Sequence[str | None]:
        return enabled_regions()

    def unread_account(self, scope: str | None) -> Account:
        return Account(NO_ACCOUNT, scope or _SOME_REGION)


SESSION = SageMakerSession()


def sagemaker_platform(region: str | None = None, attempts: int = 10) -> SageMakerPlatform:
    """SageMaker in `region`, or in the region of the user's profile or environment. Raises PlatformError.

    `attempts` is how often a throttled or lost call is made in all. $TOOLKIT_POLL_SECONDS is the interval between two
    polls of an endpoint, by default 5.
    """
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.errors import aws_errors
    from toolkit.platforms.sagemaker.platform import SageMakerPlatform

    with aws_errors("opening an AWS session"):
        return SageMakerPlatform(Clients(_session(region), attempts), poll_seconds=float(os.environ.get(_POLL, "5")))


def enabled_regions() -> list[str]:
    """The regions that are enabled in the account. Raises PlatformError."""
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.errors import aws_errors

    with aws_errors("listing regions"):
        answer = Clients(_session(None)).ec2.describe_regions()
    return sorted(item["RegionName"] for item in answer["Regions"])


def _session(region: str | None) -> boto3.Session:
    import boto3

    session = boto3.Session(region_name=region)
    # A client of any service fails without a region, with a message that says how to set one.
    session.client("sagemaker")
    return session
