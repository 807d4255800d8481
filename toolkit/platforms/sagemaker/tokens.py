"""What OpenAI clients need of an endpoint: its base URL, and bearer tokens made from AWS credentials.

A token is a presigned request for CallWithBearerToken, which AWS's own `sagemaker.core.token_generator` (2.27.0) makes
the same way. It costs a tenth of a millisecond and no request, so every request gets a new one: none can expire, and
credentials that are renewed are used at once.
"""

from __future__ import annotations

import base64
from functools import partial

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import NoCredentialsError

from toolkit.endpoint.access import OpenAIAccess
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.refusal import on_openai_route

# The control plane's name without a region, in every partition; the region is in the signature.
_HOST = "sagemaker.amazonaws.com"
_LIFETIME_SECONDS = 900


def openai_access(clients: Clients, endpoint: str) -> OpenAIAccess:
    """Access to an endpoint, or `endpoint/component`. Raises PlatformError without credentials."""
    name, _, component = endpoint.partition("/")
    path = f"{name}/inference-components/{component}" if component else name
    with aws_errors("looking for credentials"):
        runtime = clients.runtime.meta  # knows the partition's domain, FIPS and endpoints of one's own
        credentials = clients.session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
    token = partial(bearer_token, credentials, runtime.region_name)
    return OpenAIAccess(f"{runtime.endpoint_url}/endpoints/{path}/openai/v1", token, explain=on_openai_route)


def bearer_token(credentials: Credentials, region: str, lifetime: int = _LIFETIME_SECONDS) -> str:
    """A token for requests in a region; `lifetime` is in seconds, at most 12 hours. Raises PlatformError."""
    request = AWSRequest("POST", f"https://{_HOST}/", {"host": _HOST}, params={"Action": "CallWithBearerToken"})
    with aws_errors("signing a token"):
        frozen = credentials.get_frozen_credentials()  # of one moment: they may be renewed while we sign
        SigV4QueryAuth(frozen, "sagemaker", region, expires=lifetime).add_auth(request)
    signed = str(request.url).removeprefix("https://") + "&Version=1"
    return f"sagemaker-api-key-{base64.b64encode(signed.encode()).decode()}"
