"""The user's AWS configuration. Apart from the session, so that who has no credentials need not wait for boto3."""

from __future__ import annotations

import botocore.session
from botocore.exceptions import BotoCoreError, ProfileNotFound


def has_credentials() -> bool:
    """Whether there is anything to sign requests with; whether AWS takes it is another question.

    A profile that does not exist counts: opening a session with it says so.
    """
    try:
        return botocore.session.Session().get_credentials() is not None
    except ProfileNotFound:
        return True
    except BotoCoreError:
        return False


def configured_region() -> str | None:
    """The region of the user's environment or profile."""
    region: str | None = botocore.session.Session().get_config_variable("region")
    return region
