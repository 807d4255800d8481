"""Bearer tokens and base URLs for OpenAI clients."""

from __future__ import annotations

import base64
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.credentials import Credentials
from botocore.session import Session

from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.runtime import bearer_token, openai_access

# What `_generate_token` of sagemaker-core 2.27.0 (sagemaker.core.token_generator) gave at noon of 2026-11-20 UTC for
# region us-west-2 and 900 seconds, with these keys.
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
OF_A_USER = (
    "sagemaker-api-key-c2FnZW1ha2VyLmFtYXpvbmF3cy5jb20vP0FjdGlvbj1DYWxsV2l0aEJlYXJlclRva2VuJlgtQW16LUFsZ29yaXRobT1BV1M0"
    "LUhNQUMtU0hBMjU2JlgtQW16LUNyZWRlbnRpYWw9QUtJREVYQU1QTEUlMkYyMDI2MTEyMCUyRnVzLXdlc3QtMiUyRnNhZ2VtYWtlciUyRmF3czRfcm"
    "VxdWVzdCZYLUFtei1EYXRlPTIwMjYxMTIwVDEyMDAwMFomWC1BbXotRXhwaXJlcz05MDAmWC1BbXotU2lnbmVkSGVhZGVycz1ob3N0JlgtQW16LVNp"
    "Z25hdHVyZT02YmQxNGIxNDVmZjYyNjlhNTkyMjA5MWEyMmY2N2Q2ZDg2MTRhNTFlMDEyOGU4MmU0OTQzMTNlYmNkNDljNDFjJlZlcnNpb249MQ=="
)
OF_A_ROLE = (
    "sagemaker-api-key-c2FnZW1ha2VyLmFtYXpvbmF3cy5jb20vP0FjdGlvbj1DYWxsV2l0aEJlYXJlclRva2VuJlgtQW16LUFsZ29yaXRobT1BV1M0"
    "LUhNQUMtU0hBMjU2JlgtQW16LUNyZWRlbnRpYWw9QVNJQUVYQU1QTEUlMkYyMDI2MTEyMCUyRnVzLXdlc3QtMiUyRnNhZ2VtYWtlciUyRmF3czRfcm"
    "VxdWVzdCZYLUFtei1EYXRlPTIwMjYxMTIwVDEyMDAwMFomWC1BbXotRXhwaXJlcz05MDAmWC1BbXotU2lnbmVkSGVhZGVycz1ob3N0JlgtQW16LVNl"
    "Y3VyaXR5LVRva2VuPXNlc3Npb24lMkZ0b2tlbiUyQndpdGglM0RzaWducyZYLUFtei1TaWduYXR1cmU9MjZmODczMmMzNGVmMmVkYzU1ZTZmZTg5OG"
    "VkYTA4ZTlhZDRkMGI5OTYxMzAyZWM2ZDkwZjM2YWU4ZjY3MDA2NSZWZXJzaW9uPTE="
)


def clients(region: str = "us-west-2") -> Clients:
    return Clients(boto3.Session("AKIDEXAMPLE", SECRET, region_name=region))


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore's signers think that it is noon of 2026-11-20."""
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: datetime(2026, 11, 20, 12))


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize(
    ("credentials", "token"),
    [
        (Credentials("AKIDEXAMPLE", SECRET), OF_A_USER),
        (Credentials("ASIAEXAMPLE", SECRET, "session/token+with=signs"), OF_A_ROLE),
    ],
)
def test_tokens_are_those_of_awss_own_generator(credentials: Credentials, token: str) -> None:
    assert bearer_token(credentials, "us-west-2", 900) == token


def test_a_token_holds_no_secret() -> None:
    token = bearer_token(Credentials("AKIDEXAMPLE", SECRET), "us-west-2")
    decoded = base64.b64decode(token.removeprefix("sagemaker-api-key-")).decode()
    assert SECRET not in decoded
    assert parse_qs(urlsplit(f"https://{decoded}").query)["X-Amz-Expires"] == ["900"]


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-west-2", "runtime.sagemaker.us-west-2.amazonaws.com"),
        ("cn-north-1", "runtime.sagemaker.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "runtime.sagemaker.us-gov-west-1.amazonaws.com"),
    ],
)
def test_the_base_url_is_that_of_the_region(region: str, host: str) -> None:
    assert openai_access(clients(region), "chat").base_url == f"https://{host}/endpoints/chat/openai/v1"


def test_a_component_has_a_base_url_of_its_own() -> None:
    url = openai_access(clients(), "chat/part").base_url
    assert url.endswith("/endpoints/chat/inference-components/part/openai/v1")


def test_the_token_is_for_the_region_and_made_when_it_is_asked_for() -> None:
    access = openai_access(clients("eu-west-1"), "chat")
    decoded = base64.b64decode(access.token().removeprefix("sagemaker-api-key-")).decode()
    assert "%2Feu-west-1%2Fsagemaker%2Faws4_request" in decoded
    assert decoded.startswith("sagemaker.amazonaws.com/?Action=CallWithBearerToken&")


def test_renewed_credentials_are_used_at_once() -> None:
    renewed = Credentials("AKIDEXAMPLE", SECRET)
    before = bearer_token(renewed, "us-west-2")
    renewed.access_key = "AKIDRENEWED"
    after = bearer_token(renewed, "us-west-2")
    keys = [base64.b64decode(token.removeprefix("sagemaker-api-key-")).split(b"%2F")[0] for token in (before, after)]
    assert [key.rpartition(b"=")[2] for key in keys] == [b"AKIDEXAMPLE", b"AKIDRENEWED"]


def test_without_credentials_one_learns_how_to_log_in() -> None:
    nobody = Session(session_vars={"credentials_file": (None, None, "/dev/null", None)})
    nobody.get_component("credential_provider").providers.clear()
    without = Clients(boto3.Session(region_name="us-west-2", botocore_session=nobody))
    with pytest.raises(PlatformError, match="aws sso login"):
        openai_access(without, "chat")
