"""Signatures are checked as AWS does: what botocore signs passes, whatever is changed after it does not."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlsplit

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from toolkit.platforms.local.credentials import Credentials
from toolkit.platforms.local.sigv4 import AccessError, Guard, Received, must_be_a_program, signature_of
from toolkit.platforms.sagemaker.runtime import bearer_token

KEY = Credentials("LOCALKEY", "the secret of this daemon")
BOTO = BotoCredentials(KEY.access_key_id, KEY.secret_access_key)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOST = "127.0.0.1:4566"


@pytest.fixture(autouse=True, scope="module")
def _signed_at_noon() -> None:
    """botocore's signers think that it is noon."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("botocore.auth.get_current_datetime", lambda: NOON.replace(tzinfo=None))
        yield


def guard(after: timedelta = timedelta()) -> Guard:
    return Guard(KEY, lambda: (NOON + after).timestamp())


def signed(
    service: str = "sagemaker",
    method: str = "POST",
    target: str = "/",
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    key: BotoCredentials = BOTO,
) -> Received:
    """What comes over the wire when botocore signs that in its headers."""
    request = AWSRequest(method, f"http://{HOST}{target}", dict(headers or {}), data=body)
    signer = auth.S3SigV4Auth if service == "s3" else auth.SigV4Auth
    signer(key, service, "us-west-2").add_auth(request)
    return on_the_wire(request)


def presigned(signer: Callable[..., auth.SigV4QueryAuth], service: str, expires: int = 60) -> Received:
    request = AWSRequest("GET", f"http://{HOST}/models/a%20key?x-id=GetObject", {})
    signer(BOTO, service, "us-west-2", expires=expires).add_auth(request)
    return on_the_wire(request)


def on_the_wire(request: AWSRequest) -> Received:
    prepared = request.prepare()
    url = urlsplit(prepared.url)
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Received(request.method, url.path, url.query, {"host": HOST, "user-agent": "any", **headers})


def admit(request: Received, body: bytes = b"", after: timedelta = timedelta()) -> None:
    signature = signature_of(request)
    guard(after).admit_signed(request, signature, signature.payload or hashlib.sha256(body).hexdigest())


keys = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12)


@given(
    service=st.sampled_from(["sagemaker", "s3", "iam"]),
    method=st.sampled_from(["GET", "POST", "PUT"]),
    path=st.lists(keys, max_size=3),
    query=st.dictionaries(keys, keys, max_size=3),
    body=st.binary(max_size=20),
    value=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=9),
)
def test_whatever_botocore_signs_gets_in(
    service: str, method: str, path: list[str], query: dict[str, str], body: bytes, value: str
) -> None:
    request = AWSRequest(method, f"http://{HOST}/", {"X-Amz-Meta-Odd": f" {value}  {value}"}, body, query)
    request.url += "/".join(quote(part, safe="~") for part in path)
    (auth.S3SigV4Auth if service == "s3" else auth.SigV4Auth)(BOTO, service, "us-west-2").add_auth(request)
    admit(on_the_wire(request), body)


@pytest.mark.parametrize("service", ["sagemaker", "s3"])
@pytest.mark.parametrize(
    "change",
    [
        lambda request: replace(request, method="DELETE"),
        lambda request: replace(request, path="/models/other"),
        lambda request: replace(request, query="versionId=1"),
        lambda request: replace(request, headers={**request.headers, "host": "127.0.0.1:1"}),
        lambda request: replace(request, headers={**request.headers, "content-type": "text/html"}),
        lambda request: replace(request, headers={**request.headers, "x-amz-copy-source": "/other/key"}),
        lambda request: replace(request, headers={**request.headers, "x-amz-date": "20261120T120001Z"}),
    ],
    ids=["method", "path", "query", "host", "header", "new-header", "time"],
)
def test_whatever_is_changed_after_signing_is_refused(service: str, change: Callable[[Received], Received]) -> None:
    request = signed(service, "PUT", "/models/key", b"content", {"Content-Type": "text/plain"})
    admit(request, b"content")
    with pytest.raises(AccessError):
        admit(change(request), b"content")


def test_a_body_that_was_not_signed_is_refused() -> None:
    with pytest.raises(AccessError, match="does not match"):
        admit(signed(body=b"content"), b"other content")


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (BotoCredentials("LOCALOTHER", KEY.secret_access_key), "does not know"),
        (BotoCredentials(KEY.access_key_id, "guessed"), "does not match"),
    ],
)
def test_another_key_is_refused(key: BotoCredentials, why: str) -> None:
    with pytest.raises(AccessError, match=why):
        admit(signed(key=key))


@pytest.mark.parametrize(("service", "skew"), [("sagemaker", 5), ("s3", 15)])
def test_a_signature_is_good_for_minutes_only(service: str, skew: int) -> None:
    request = signed(service)
    for minutes in (-skew, skew):
        admit(request, after=timedelta(minutes=minutes))
        with pytest.raises(AccessError, match="not valid now"):
            admit(request, after=timedelta(minutes=minutes * 1.01))


@pytest.mark.parametrize(
    ("signer", "service"), [(auth.S3SigV4QueryAuth, "s3"), (auth.SigV4QueryAuth, "sts")], ids=["s3", "sts"]
)
def test_a_presigned_url_gets_in_until_it_expires(signer: Callable[..., auth.SigV4QueryAuth], service: str) -> None:
    request = presigned(signer, service, expires=60)
    admit(request, after=timedelta(seconds=60))
    with pytest.raises(AccessError, match="not valid now"):
        admit(request, after=timedelta(seconds=61))
    with pytest.raises(AccessError, match="does not match"):
        admit(replace(request, query=request.query.replace("X-Amz-Expires=60", "X-Amz-Expires=600")))


def test_a_presigned_url_is_good_for_a_week_at_most_whatever_it_says() -> None:
    request = presigned(auth.S3SigV4QueryAuth, "s3", expires=999_999)
    admit(request, after=timedelta(days=7))
    with pytest.raises(AccessError, match="not valid now"):
        admit(request, after=timedelta(days=7, seconds=1))


def test_a_presigned_url_covers_what_it_says_only() -> None:
    request = presigned(auth.S3SigV4QueryAuth, "s3")
    with pytest.raises(AccessError, match="not signed: x-amz-acl"):
        admit(replace(request, headers={**request.headers, "x-amz-acl": "public-read"}))


def test_a_bearer_token_is_good_until_it_expires() -> None:
    bearer = {"authorization": f"Bearer {bearer_token(BOTO, 'us-west-2', 900)}"}
    guard(timedelta(seconds=900)).admit_bearer(bearer, "us-west-2")
    with pytest.raises(AccessError, match="not valid now"):
        guard(timedelta(seconds=901)).admit_bearer(bearer, "us-west-2")
    with pytest.raises(AccessError, match="scoped to sagemaker in eu-west-1"):
        guard().admit_bearer(bearer, "eu-west-1")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer ",
        "Bearer any",
        "Basic bG9jYWw6bG9jYWw=",
        "Bearer sagemaker-api-key-",
        "Bearer sagemaker-api-key-AAAA",
        f"Bearer {bearer_token(BotoCredentials('LOCALOTHER', 'other'), 'us-west-2')}",
        f"Bearer {bearer_token(BotoCredentials(KEY.access_key_id, 'guessed'), 'us-west-2')}",
    ],
)
def test_what_is_no_token_of_ours_is_refused(authorization: str) -> None:
    with pytest.raises(AccessError):
        guard().admit_bearer({"authorization": authorization}, "us-west-2")


def test_a_bearer_token_is_good_for_twelve_hours_at_most() -> None:
    for seconds in (43_200, 43_201):
        bearer = {"authorization": f"Bearer {bearer_token(BOTO, 'us-west-2', seconds)}"}
        with pytest.raises(AccessError, match="12 hours") if seconds > 43_200 else nullcontext():
            guard().admit_bearer(bearer, "us-west-2")


def test_a_presigned_url_is_no_bearer_token() -> None:
    """The owner may hand a URL for one object to somebody; it must open nothing else."""
    request = presigned(auth.SigV4QueryAuth, "sagemaker")
    token = base64.b64encode(f"{HOST}/?{request.query}".encode()).decode()
    with pytest.raises(AccessError, match="not one of SageMaker's"):
        guard().admit_bearer({"authorization": f"Bearer sagemaker-api-key-{token}"}, "us-west-2")


@given(st.text(max_size=80))
def test_any_text_as_authorization_is_an_error_that_is_meant(text: str) -> None:
    for headers in ({"authorization": text}, {"authorization": f"AWS4-HMAC-SHA256 {text}"}):
        with pytest.raises(AccessError):
            signature_of(Received("GET", "/", "", headers))
    with pytest.raises(AccessError):
        guard().admit_bearer({"authorization": f"Bearer sagemaker-api-key-{text}"}, "us-west-2")
    with pytest.raises(AccessError):
        signature_of(Received("GET", "/", f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={text}", {}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "evil.example"},
        {"host": "evil.example:4566"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1:80"},
        {"host": "127.0.0.1.evil.example:4566"},
        {"host": HOST, "origin": "http://127.0.0.1:8000"},
        {"host": HOST, "origin": "null"},
        {"host": HOST, "sec-fetch-site": "cross-site"},
        {"host": HOST, "sec-fetch-site": "same-site"},
        {"host": HOST, "sec-fetch-site": "same-origin"},
    ],
)
def test_web_pages_and_other_names_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(AccessError):
        must_be_a_program(headers, 4566)


@pytest.mark.parametrize("host", [HOST, "localhost:4566", "LOCALHOST:4566", "[::1]:4566"])
def test_programs_on_this_machine_get_in(host: str) -> None:
    must_be_a_program({"host": host}, 4566)
