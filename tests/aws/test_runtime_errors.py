"""botocore's exceptions in the toolkit's words: what was being done, what AWS said, what helps."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions
from botocore.exceptions import BotoCoreError, ClientError
from botocore.retries.standard import ThrottledRetryableChecker

from toolkit.errors import PlatformError, Unavailable
from toolkit.platforms.sagemaker.errors import aws_errors


def said(error: Exception) -> PlatformError:
    with pytest.raises(PlatformError) as caught, aws_errors("create Model chat"):
        raise error
    return caught.value


def refused(code: str, message: str = "No.", operation: str = "CreateModel", status: int = 400) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, operation)


@pytest.mark.parametrize(
    ("code", "helps"),
    [
        ("ExpiredToken", "aws sso login"),
        ("ExpiredTokenException", "aws sso login"),
        ("RequestExpired", "clock"),
        ("RequestTimeTooSkewed", "clock"),
        ("InvalidClientTokenId", "aws configure list"),
        ("UnrecognizedClientException", "aws configure list"),
        ("SignatureDoesNotMatch", "aws configure list"),
        ("ThrottlingException", "Run the same command again in a minute"),
        ("Throttling", "Run the same command again in a minute"),
        ("RequestLimitExceeded", "Run the same command again in a minute"),
        ("ResourceLimitExceeded", "Service Quotas"),
        ("ServiceQuotaExceededException", "Service Quotas"),
    ],
)
def test_what_aws_answers(code: str, helps: str) -> None:
    error = said(refused(code))
    assert error.message == f"create Model chat: No. ({code})"
    assert helps in error.hint


@pytest.mark.parametrize("code", ["InvalidSignatureException", "SignatureDoesNotMatch"])
@pytest.mark.parametrize(
    "words", ["Signature expired: 20261122T090000Z is now earlier than", "Signature not yet current"]
)
def test_a_signature_of_another_time_hints_at_the_clock(code: str, words: str) -> None:
    assert "clock (date -u)" in said(refused(code, f"{words} 20261122T091500Z")).hint


def test_a_code_that_nobody_knows_has_no_hint() -> None:
    assert said(refused("SomethingNew")).hint == ""


@pytest.mark.parametrize("code", ["InternalFailure", "503"])
def test_a_fault_of_aws_or_of_a_proxy_says_to_try_again(code: str) -> None:
    """A proxy's page has no code of AWS: botocore gives the status."""
    assert "Run the same command again" in said(refused(code, "<html>", status=503)).hint


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation"])
def test_what_is_denied_is_named(code: str) -> None:
    message = "User: arn:aws:iam::1:user/u is not authorized to perform: sagemaker:CreateModel on resource: arn:aws:x"
    assert (
        said(refused(code, message)).hint == "Ask an administrator to allow sagemaker:CreateModel in your IAM policy."
    )


@pytest.mark.parametrize(
    ("code", "message", "operation", "action"),
    [
        ("AccessDenied", "Access Denied", "PutObject", "s3:PutObject"),
        ("AccessDenied", "Access Denied", "ListObjectsV2", "s3:ListBucket"),
        ("AccessDenied", "Access Denied", "AbortMultipartUpload", "s3:AbortMultipartUpload"),
        ("403", "Forbidden", "HeadBucket", "s3:ListBucket"),  # HEAD: no body tells more
        ("403", "Forbidden", "HeadObject", "s3:GetObject"),
    ],
)
def test_s3_may_say_no_more_than_that_access_is_denied(code: str, message: str, operation: str, action: str) -> None:
    hint = f"Ask an administrator to allow {action} in your IAM policy. Or the bucket is another account's."
    assert said(refused(code, message, operation)).hint == hint


@pytest.mark.parametrize(
    ("lacking", "where"),
    [
        ("identity-based policy", "your IAM policy"),
        ("permissions boundary", "the permissions boundary"),
        ("service control policy", "the service control policy"),
        ("session policy", "the session policy"),
        ("VPC endpoint policy", "the VPC endpoint policy"),
    ],
)
def test_what_is_denied_says_which_policy_lacks_it(lacking: str, where: str) -> None:
    """IAM user guide, troubleshoot_access-denied."""
    message = (
        "User: arn:aws:iam::1:user/u is not authorized to perform: sagemaker:CreateModel on resource: arn:aws:x "
        f"because no {lacking} allows the sagemaker:CreateModel action"
    )
    hint = f"Ask an administrator to allow sagemaker:CreateModel in {where}."
    assert said(refused("AccessDeniedException", message)).hint == hint


def test_what_botocore_calls_throttled_passes_but_for_that_by_which_services_mean_a_quota() -> None:
    codes = {*ThrottledRetryableChecker._THROTTLED_ERROR_CODES}
    assert {code for code in codes if not isinstance(said(refused(code)), Unavailable)} == {"LimitExceededException"}


def test_an_encoded_message_can_be_read() -> None:
    message = (
        "You are not authorized to perform this operation. User: arn:aws:iam::1:user/u is not authorized to perform: "
        "ec2:DescribeSubnets. Encoded authorization failure message: Zm9v"
    )
    assert "aws sts decode-authorization-message" in said(refused("UnauthorizedOperation", message)).hint


@pytest.mark.parametrize(
    ("code", "message", "helps"),
    [
        (
            "ResourceLimitExceeded",
            "The account-level service limit 'ml.g6e.xlarge for endpoint usage' is 0 Instances",
            "use another instance type",
        ),
        ("LimitExceeded", "Cannot exceed quota for RolesPerAccount: 1000", "remove what is not needed any more"),
        ("LimitExceededException", "Resource limit exceeded.", "remove what is not needed any more"),
        ("TooManyBuckets", "You have attempted to create more buckets than allowed", "remove what is not needed"),
    ],
)
def test_a_quota_is_not_always_one_of_instances(code: str, message: str, helps: str) -> None:
    hint = said(refused(code, message)).hint
    assert hint.startswith("Ask for a higher quota in Service Quotas")
    assert helps in hint


@pytest.mark.parametrize(
    "error",
    [
        refused("ThrottlingException"),
        refused("RequestThrottledException"),
        refused("InternalFailure", status=500),
        exceptions.EndpointConnectionError(endpoint_url="https://x"),
        exceptions.ReadTimeoutError(endpoint_url="https://x"),
    ],
)
def test_what_passes_by_itself_may_be_asked_again(error: Exception) -> None:
    assert isinstance(said(error), Unavailable)


@pytest.mark.parametrize(
    "error", [refused("ExpiredToken"), refused("ValidationException"), exceptions.NoCredentialsError()]
)
def test_what_does_not_pass_may_not(error: Exception) -> None:
    assert not isinstance(said(error), Unavailable)


def test_what_is_denied_on_purpose_is_not_asked_for() -> None:
    message = "not authorized to perform: sagemaker:CreateModel with an explicit deny in a service control policy"
    hint = said(refused("AccessDeniedException", message)).hint
    assert (
        hint == "A policy explicitly denies sagemaker:CreateModel: ask an administrator of the account or organization."
    )


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (exceptions.NoCredentialsError(), "aws sso login"),
        (exceptions.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), "aws configure"),
        (exceptions.SSOTokenLoadError(profile_name="p", error_msg="gone"), "aws sso login"),
        (exceptions.UnauthorizedSSOTokenError(), "aws sso login"),
        (exceptions.LoginTokenLoadError(error_msg="gone"), "aws login"),
        (exceptions.TokenRetrievalError(provider="sso", error_msg="gone"), "aws sso login"),
        (exceptions.ProfileNotFound(profile="nobody"), "aws configure list-profiles"),
        (exceptions.NoRegionError(), "AWS_DEFAULT_REGION"),
        (exceptions.EndpointConnectionError(endpoint_url="https://api.sagemaker.mars-1.amazonaws.com"), "the region"),
        (exceptions.ConnectionClosedError(endpoint_url="https://x"), "run the same command again"),
        (exceptions.ParamValidationError(report="x"), ""),
    ],
)
def test_what_never_came_to_aws(error: BotoCoreError, helps: str) -> None:
    told = said(error)
    assert told.message == f"create Model chat: {error}"
    assert helps in told.hint
    assert bool(told.hint) == bool(helps)


def test_no_session_token_gets_into_an_error() -> None:
    message = (
        "The request signature we calculated does not match the signature you provided.\n\nThe Canonical String for "
        "this request should have been\n'POST\n/\n\nx-amz-security-token:TOKEN"
    )
    assert "TOKEN" not in str(said(refused("InvalidSignatureException", message)))
