"""Signature Version 4 as the side that checks it sees it: signed headers, presigned URLs, SageMaker's bearer tokens.

By AWS's "Create a signed AWS API request". Only the secret key of this daemon can make a signature that passes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from botocore.utils import normalize_url_path

from toolkit.platforms.local.credentials import Credentials

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    rf"{_ALGORITHM} Credential=(?P<credential>[^,\s]+), ?SignedHeaders=(?P<signed>[^,\s]+), ?"
    r"Signature=(?P<value>[0-9a-f]{64})"
)
_TIME = "%Y%m%dT%H%M%SZ"
_TOKEN_PREFIX = "sagemaker-api-key-"  # noqa: S105
_TOKEN_HOST = "sagemaker.amazonaws.com"  # noqa: S105
_TOKEN_LIFETIME_S = 12 * 3600
_URL_LIFETIME_S = 7 * 86400
# How far the clocks of caller and service may differ.
_SKEW_S = 300
_SKEW_S3_S = 900
_BEARER = "Bearer "


class AccessError(Exception):
    """A request is not let in. `code` is one of AWS's common error codes."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Received:
    """A request as it came in: path and query still encoded, names of headers in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Signature:
    """What a request says about its own signature.

    `payload` is what it says about its body: a SHA-256, or one of AWS's names for a body that is not signed; None when
    it says nothing and the body's SHA-256 is meant. `lifetime_s` is None for a request that is signed in its headers.
    """

    access_key_id: str
    scope: str
    time: str
    signed_headers: tuple[str, ...]
    value: str
    payload: str | None
    lifetime_s: int | None = None

    @property
    def region(self) -> str:
        return self.scope.split("/")[1]

    @property
    def service(self) -> str:
        return self.scope.split("/")[2]


def signature_of(request: Received) -> Signature:
    """The signature of a request, not checked yet. Raises AccessError."""
    if authorization := request.headers.get("authorization"):
        header = _AUTHORIZATION.fullmatch(authorization)
        if header is None:
            raise AccessError("IncompleteSignature", f"The Authorization header is not one of {_ALGORITHM}.")
        payload = request.headers.get("x-amz-content-sha256")
        return _signature(header["credential"], request.headers.get("x-amz-date", ""), header, payload)
    query = dict(parse_qsl(request.query))
    if query.get("X-Amz-Algorithm") != _ALGORITHM:
        raise AccessError("MissingAuthenticationToken", "The request is not signed with the key of this daemon.")
    said = {"signed": query.get("X-Amz-SignedHeaders", ""), "value": query.get("X-Amz-Signature", "")}
    lifetime = query.get("X-Amz-Expires", "")
    if not re.fullmatch(r"\d{1,6}", lifetime):
        raise AccessError("IncompleteSignature", "X-Amz-Expires must be a number of seconds.")
    credential, time = query.get("X-Amz-Credential", ""), query.get("X-Amz-Date", "")
    payload = UNSIGNED_PAYLOAD if "/s3/" in credential else None
    return _signature(credential, time, said, payload, int(lifetime))


def bearer_request(token: str) -> Received:
    """The presigned request that a bearer token of SageMaker's runtime stands for. Raises AccessError."""
    try:
        decoded = base64.b64decode(token.removeprefix(_TOKEN_PREFIX), validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        decoded = ""
    host, _, query = decoded.partition("/?")
    named = dict(parse_qsl(query))
    if not token.startswith(_TOKEN_PREFIX) or host != _TOKEN_HOST or named.get("Action") != "CallWithBearerToken":
        raise AccessError("IncompleteSignature", "The bearer token is not one of SageMaker's.")
    if not named.get("X-Amz-Expires", "").isdigit() or int(named["X-Amz-Expires"]) > _TOKEN_LIFETIME_S:
        raise AccessError("IncompleteSignature", "A bearer token is valid for 12 hours at most.")
    return Received("POST", "/", query.removesuffix("&Version=1"), {"host": host})


def _signature(
    credential: str,
    time: str,
    said: Mapping[str, str] | re.Match[str],
    payload: str | None,
    lifetime_s: int | None = None,
) -> Signature:
    key_id, _, scope = credential.partition("/")
    parts = scope.split("/")
    if len(parts) != 4 or parts[3] != "aws4_request" or parts[0] != time[:8]:
        raise AccessError("IncompleteSignature", "The credential's scope is not <day>/<region>/<service>/aws4_request.")
    if payload is None and parts[2] == "s3":
        raise AccessError("IncompleteSignature", "A request to S3 needs the header x-amz-content-sha256.")
    return Signature(key_id, scope, time, tuple(said["signed"].split(";")), said["value"], payload, lifetime_s)


def _must_be_covered(request: Received, signature: Signature) -> None:
    """What decides about a request must be signed: its host, and AWS's own headers."""
    needed = {"host", *(name for name in request.headers if name.startswith("x-amz-"))}
    if missing := needed.difference(signature.signed_headers):
        raise AccessError("AccessDenied", f"These headers are not signed: {', '.join(sorted(missing))}.")


def _must_be_fresh(signature: Signature, now: float) -> None:
    try:
        signed_at = datetime.strptime(signature.time, _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise AccessError("IncompleteSignature", "X-Amz-Date is not a time such as 20260131T235959Z.") from None
    skew = _SKEW_S3_S if signature.service == "s3" else _SKEW_S
    lifetime = skew if signature.lifetime_s is None else min(signature.lifetime_s, _URL_LIFETIME_S)
    if not signed_at - skew <= now <= signed_at + lifetime:
        raise AccessError("RequestExpired", f"The request was signed at {signature.time} and is not valid now.")


def _canonical_request(request: Received, signature: Signature, payload: str) -> str:
    headers = [f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in signature.signed_headers]
    pairs = parse_qsl(request.query, keep_blank_values=True)
    query = sorted(tuple(quote(word, safe="-_.~") for word in pair) for pair in pairs if pair[0] != "X-Amz-Signature")
    return "\n".join(
        (
            request.method,
            _canonical_path(request.path, signature.service),
            "&".join(f"{name}={value}" for name, value in query),
            "".join(headers),
            ";".join(signature.signed_headers),
            payload,
        )
    )


def _canonical_path(path: str, service: str) -> str:
    """S3's paths are signed as they are, all others without dots and encoded twice."""
    if service == "s3":
        return quote(unquote_to_bytes(path), safe="/-_.~")
    return quote(normalize_url_path(path), safe="/-_.~")


@lru_cache(maxsize=32)
def _signing_key(secret: str, scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


class Guard:
    """Checks requests against the key of a daemon. `clock` gives seconds since the epoch."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float] = time.time) -> None:
        self._credentials = credentials
        self._clock = clock

    def must_know(self, request: Received, signature: Signature) -> None:
        """Raise AccessError for what no body can make valid, so that a stranger's is not read.

        The key's id is as random as its secret and in the same file, so only who may read that gets past this.
        """
        if not hmac.compare_digest(signature.access_key_id.encode(), self._credentials.access_key_id.encode()):
            message = "The request is signed with a key that this daemon does not know."
            raise AccessError("InvalidClientTokenId", message)
        _must_be_covered(request, signature)
        _must_be_fresh(signature, self._clock())

    def admit_signed(self, request: Received, signature: Signature, payload: str) -> None:
        """Raise AccessError unless the daemon's key signed the request; `payload` is what its body is signed as."""
        self.must_know(request, signature)
        canonical = _canonical_request(request, signature, payload)
        digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
        text = f"{_ALGORITHM}\n{signature.time}\n{signature.scope}\n{digest}"
        key = _signing_key(self._credentials.secret_access_key, signature.scope)
        expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signature.value.encode(), expected.encode()):
            raise AccessError("SignatureDoesNotMatch", "The signature does not match the request.")

    def admit_bearer(self, headers: Mapping[str, str], region: str) -> None:
        """Raise AccessError unless the request carries a bearer token for that region that is valid now."""
        authorization = headers.get("authorization", "")
        if not authorization.startswith(_BEARER):
            raise AccessError("MissingAuthenticationToken", "The request has no bearer token.")
        request = bearer_request(authorization.removeprefix(_BEARER))
        signature = signature_of(request)
        must_be_signed_for_sagemaker(region, signature)
        self.admit_signed(request, signature, EMPTY_SHA256)


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
