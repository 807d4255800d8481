"""Who gets in: programs that hold the daemon's key. Web pages never do, even on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from toolkit.platforms.local import sigv4
from toolkit.platforms.local.credentials import Credentials
from toolkit.platforms.local.sigv4 import AccessError, Received, Signature

_BEARER = "Bearer "


class Guard:
    """Checks requests against the key of a daemon. `clock` gives seconds since the epoch."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float] = time.time) -> None:
        self._credentials = credentials
        self._clock = clock

    def admit_signed(self, request: Received, signature: Signature, payload: str) -> None:
        """Raise AccessError unless the daemon's key signed the request; `payload` is what its body is signed as."""
        sigv4.verify(request, signature, payload, self._credentials, self._clock())

    def admit_bearer(self, headers: Mapping[str, str], region: str) -> None:
        """Raise AccessError unless the request carries a bearer token for that region that is valid now."""
        authorization = headers.get("authorization", "")
        if not authorization.startswith(_BEARER):
            raise AccessError("MissingAuthenticationToken", "The request has no bearer token.")
        request = sigv4.bearer_request(authorization.removeprefix(_BEARER))
        signature = sigv4.signature_of(request)
        must_be_signed_for_sagemaker(region, signature)
        self.admit_signed(request, signature, sigv4.EMPTY_SHA256)


def must_be_signed_for_sagemaker(region: str, signature: Signature) -> None:
    """Raise AccessError when the request was signed for another service or region."""
    if (signature.service, signature.region) != ("sagemaker", region):
        raise AccessError("SignatureDoesNotMatch", f"Credential should be scoped to sagemaker in {region}.")


def must_be_a_program(headers: Mapping[str, str], port: int) -> None:
    """Raise AccessError for what a web page may have sent: another name of this machine, another origin.

    A page whose name was pointed at this machine (DNS rebinding) still sends its own name as `Host`.
    """
    if headers.get("host", "").lower() not in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        raise AccessError("AccessDenied", "Requests must be to 127.0.0.1 or localhost.")
    if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
        raise AccessError("AccessDenied", "Requests of web pages are refused.")
