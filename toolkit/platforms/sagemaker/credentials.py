"""Whether the user has credentials. Apart from the session, so that who has none need not wait for boto3."""

from __future__ import annotations

import botocore.session
from botocore.exceptions import BotoCoreError


def has_credentials() -> bool:
    """Whether there is anything to sign requests with; whether AWS takes it is another question."""
    try:
        return botocore.session.Session().get_credentials() is not None
    except BotoCoreError:
        return False
