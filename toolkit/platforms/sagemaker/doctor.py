"""Say which AWS account, region, role and bucket SageMaker would be used with from here, such as in Studio."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from toolkit.errors import ToolkitError
from toolkit.planning.resources import Account
from toolkit.platforms.examined import Examined
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.credentials import has_credentials
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.role import ROLE_VARIABLE, STUDIO_METADATA, find_role
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.platforms.sagemaker.session import SESSION


def examine(open_clients: Callable[[], Clients] = lambda: SESSION.glance().clients) -> Examined:
    """What there is of AWS; the local platform needs nothing of it."""
    if not has_credentials():
        return Examined("aws", True, "no credentials; only SageMaker needs them")
    try:
        return Examined("aws", True, session_text(open_clients(), os.environ))
    except ToolkitError as error:
        return Examined("aws", False, error.message, error.hint, needed=False)


def session_text(clients: Clients, environ: Mapping[str, str], studio_metadata: Path = STUDIO_METADATA) -> str:
    """Account, region, execution role and bucket of recipes that name none of them. Raises PlatformError."""
    with aws_errors("reading the AWS identity"):
        account = Account(clients.account_id, clients.session.region_name)
    found = find_role(clients, written=None, environ=environ, studio_metadata=studio_metadata)
    role = f"{found.arn} ({found.source})" if found else f"no role: set ${ROLE_VARIABLE}, or write `role: create`"
    return f"account {account.id}, {account.region}; endpoints run as {role}; weights in s3://{bucket_name(account)}"
