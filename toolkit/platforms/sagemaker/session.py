"""Open SageMaker with the user's own AWS session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkit.errors import UsageError
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.platforms.sagemaker.rules.in_account import is_in_aws
from toolkit.platforms.sagemaker.rules.names import own_bucket
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    import boto3

    from toolkit.platforms.rules import AwsSession
    from toolkit.platforms.sagemaker.cleaning import AwsCleaner
    from toolkit.platforms.sagemaker.platform import SageMakerPlatform

_POLL = "TOOLKIT_POLL_SECONDS"
# Region of plans without credentials, where none is configured.
_SOME_REGION = "us-west-2"


@dataclass(frozen=True)
class SageMakerSession:
    """Opens SageMaker with the credentials of `login`, or of the user's profile or environment. A scope is a region."""

    login: AwsSession | None = field(default=None, repr=False)

    account_name = "an AWS account"
    unasked = "AWS (no credentials)"
    may_be_absent = False
    is_this_machine = False

    def logged_in(self, login: AwsSession) -> SageMakerSession:
        """The same with this AWS session."""
        return SageMakerSession(login)

    def scope(self, recipe: Recipe) -> str | None:
        return recipe.region

    def scope_name(self, scope: str) -> str:
        return scope

    def can_be_asked(self) -> bool:
        return self.login is not None or has_credentials()

    def open(self, scope: str | None = None, attempts: int = 10) -> SageMakerPlatform:
        """SageMaker in that region, or in the session's own. Raises UsageError or PlatformError.

        `attempts` is how often a throttled or lost call is made in all. $TOOLKIT_POLL_SECONDS is the interval between
        two polls of an endpoint, by default 5.
        """
        from toolkit.platforms.sagemaker.clients import Clients
        from toolkit.platforms.sagemaker.errors import aws_errors
        from toolkit.platforms.sagemaker.platform import SageMakerPlatform

        with aws_errors("opening an AWS session"):
            clients = Clients(self._session(scope), attempts, own_bucket(os.environ))
            return SageMakerPlatform(clients, poll_seconds=_poll_seconds())

    running = trainer = open

    def glance(self, scope: str | None = None) -> SageMakerPlatform:
        """The platform in that region, whose calls end after seconds. Raises PlatformError."""
        return self.open(scope, attempts=2)

    def scope_of(self, endpoint: str) -> None:
        return

    def every_scope(self) -> Sequence[str | None]:
        from toolkit.platforms.sagemaker.clients import Clients
        from toolkit.platforms.sagemaker.errors import aws_errors

        with aws_errors("listing regions"):
            answer = Clients(self._session(None)).ec2.describe_regions()
        return sorted(item["RegionName"] for item in answer["Regions"])

    def unread_account(self, scope: str | None) -> Account:
        import botocore.session

        configured = botocore.session.Session().get_config_variable("region")
        region, far = scope or configured or _SOME_REGION, not is_in_aws()
        return Account(NO_ACCOUNT, region, bucket=own_bucket(os.environ), is_far=far)

    def cleaner(self, scope: str | None) -> AwsCleaner:
        from toolkit.platforms.sagemaker.cleaning import AwsCleaner

        return AwsCleaner(self.open(scope).clients)

    def _session(self, region: str | None) -> boto3.Session:
        import boto3

        from toolkit.platforms.sagemaker.clients import new_session, open_client

        if self.login is None:
            session = boto3.Session(region_name=region, botocore_session=new_session())
        else:
            session = _unwrap(self.login, region)
        # A client of any service fails without a region, with a message that says how to set one.
        open_client(session, "sagemaker")
        return session


def has_credentials() -> bool:
    """Whether there is anything to sign requests with; whether AWS takes it is another question.

    A login that is configured and broken counts, as a profile that does not exist: opening a session with it says what
    is wrong. Else `status` would list nothing, and `destroy` find nothing, of what is there. boto3 is not imported for
    it: who has no credentials need not wait for that.
    """
    import botocore.session
    from botocore.exceptions import BotoCoreError, ConnectionError, HTTPClientError

    try:
        return botocore.session.Session().get_credentials() is not None
    except (ConnectionError, HTTPClientError):  # no metadata service answers, which a machine in AWS has
        return False
    except (BotoCoreError, OSError):  # OSError: there is no such `credential_process`
        return True


def _poll_seconds() -> float:
    text = os.environ.get(_POLL) or "5"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if 0 <= seconds < float("inf"):
        return seconds
    raise UsageError(f"{_POLL}={text}: not a number of seconds", hint=f"Write for example {_POLL}=5, or unset it.")


def _unwrap(login: AwsSession, region: str | None) -> boto3.Session:
    """The boto3 session that a user passed, by itself or in a session of the SageMaker SDK."""
    import boto3

    if getattr(login, "local_mode", False):  # with it the SDK runs everything here
        hint = 'Deploy on this machine: platform="local". Or pass a Session of the SDK.'
        raise UsageError(f"session: a {type(login).__name__} is for the SDK's local mode, and AWS is asked", hint=hint)
    session = getattr(login, "boto_session", login)
    if not isinstance(session, boto3.Session):
        hint = "Pass a boto3.Session, or a Session of the SageMaker SDK."
        raise UsageError(f"session: {type(login).__name__} is no AWS session", hint=hint)
    if region and session.region_name != region:
        message = f"session: it is in region {session.region_name}, and {region} is asked for"
        raise UsageError(message, hint=f"Pass one that is made with region_name={region!r}.")
    return session


SESSION = SageMakerSession()
