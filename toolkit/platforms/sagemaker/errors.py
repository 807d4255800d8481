"""Translate botocore's exceptions into the toolkit's."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from boto3.exceptions import Boto3Error
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    CredentialRetrievalError,
    HTTPClientError,
    InvalidConfigError,
    InvalidRegionError,
    LoginError,
    MissingDependencyException,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from toolkit.documents import NO_PROXY
from toolkit.errors import PlatformError, Unavailable
from toolkit.platforms.sagemaker.aws_errors import DENIED, THROTTLED, code_of, message_of
from toolkit.platforms.sagemaker.rules.access import S3_ACTIONS

NOT_LOGGED_IN = (
    CredentialRetrievalError,
    LoginError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
"""What boto3 raises that has nothing to sign with."""

_LOG_IN = "Log in: aws sso login, aws login or aws configure; AWS_PROFILE chooses a profile."
_LOG_IN_OTHERWISE = (
    'Install it beside the toolkit: pip install "botocore[crt]". Or log in another way: aws sso login, aws configure.'
)
_UNTRUSTED = (
    "Behind a proxy that opens connections, let AWS_CA_BUNDLE name a file with your organisation's certificates. Where "
    "it, REQUESTS_CA_BUNDLE or the profile's ca_bundle names one already, correct that."
)
_EXPIRED = "The AWS credentials have expired. Log in again: aws sso login, or get new keys the way you got these."
_UNKNOWN = (
    "AWS does not know these credentials: see where they come from with aws configure list. A region that is "
    "not enabled in the account gives the same error."
)
_CLOCK = "AWS found the request's time wrong: compare this machine's clock (date -u) and set it, or log in again."
# In messages of InvalidSignatureException and SignatureDoesNotMatch.
_WRONG_TIME = ("Signature expired", "Signature not yet current")
# Of urllib3 (LocationParseError, ProxySchemeUnknown, and its SOCKS proxies), as botocore hands them on.
_NO_PROXYS = ("Failed to parse: ", "Proxy URL had unsupported scheme", "Missing dependencies for SOCKS support")
_NO_CODE = "Run it in a terminal, or give it a session that has the code already: aws configure export-credentials."
_QUOTA = "Ask for a higher quota in Service Quotas, or "
_NOT_YET = "Another change of the same thing is under way, of a bucket its deletion: try again in some minutes."
_BUSY = "AWS takes fewer calls than were made just now. Run the same command again in a minute."
_FAULT = "AWS has a fault, or a proxy between answers in its place. Run the same command again in a minute."
_HINTS = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "OperationAborted": _NOT_YET,
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "InvalidClientTokenId": _UNKNOWN,
    "InvalidSignatureException": _UNKNOWN,
    "SignatureDoesNotMatch": _UNKNOWN,
    "UnrecognizedClientException": _UNKNOWN,
    **dict.fromkeys(THROTTLED, _BUSY),
}
_QUOTAS = (
    "AccountLimitExceededException",
    "LimitExceeded",
    "LimitExceededException",
    "ResourceLimitExceeded",
    "ServiceQuotaExceededException",
    "TooManyBuckets",
)
_DENIED_ACTION = re.compile(r"not authorized to perform:? ([\w-]+:\w+)")
# IAM user guide, troubleshoot_access-denied: "because no permissions boundary allows the s3:GetObject action".
_LACKING_IN = re.compile(r"because no (?!identity-based)([\w -]+) allows the ")
_ENCODED = "Encoded authorization failure message"
_UNANSWERED = (BotoConnectionError, HTTPClientError)
_HINTS_BY_KIND: tuple[tuple[tuple[type[Exception], ...], str], ...] = (
    (NOT_LOGGED_IN, _LOG_IN),
    ((MissingDependencyException,), _LOG_IN_OTHERWISE),
    ((ProfileNotFound,), "See: aws configure list-profiles"),
    (
        (ConfigParseError, InvalidConfigError),
        "Correct it in your AWS configuration, or name another profile: AWS_PROFILE.",
    ),
    ((NoRegionError,), "Set AWS_DEFAULT_REGION, or `platform.region` in the recipe."),
    ((InvalidRegionError,), "Correct AWS_DEFAULT_REGION, the profile's region, or `platform.region` in the recipe."),
    (
        _UNANSWERED,
        "There is no answer: check the network and the region, and run the same command again.",
    ),
)


@contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Turn what boto3 raises inside into PlatformError: what was being done, AWS's own words, and a hint.

    It is Unavailable where the same again may work.
    """
    try:
        yield
    except PlatformError:  # WaitTimeout is an OSError too
        raise
    except ClientError as error:
        code = error.response["Error"]["Code"]
        # What follows the first line is the request as AWS would have signed it, session token and all.
        message = error.response["Error"]["Message"].split("\n\nThe Canonical String")[0]
        raise _kind(error)(f"{doing}: {message} ({code})", hint=hint_for(error)) from error
    except (Boto3Error, BotoCoreError) as error:  # Boto3Error: what upload_file makes of a ClientError
        # urllib3 would tell a piece of the proxy's password.
        said = "the proxy of the environment cannot be used" if _is_of_proxy(error) else error
        raise _kind(error)(f"{doing}: {said}", hint=hint_for(error)) from error
    except EOFError as error:
        if not any(Path(frame.filename).name == "getpass.py" for frame in traceback.extract_tb(error.__traceback__)):
            raise
        message = f"{doing}: the profile's role asks for an MFA code, and nobody is at a terminal to give it"
        raise PlatformError(message, hint=_NO_CODE) from error
    except OSError as error:
        raise PlatformError(f"{doing}: {error}", hint="Fix that file, then run the same command again.") from error


def _kind(error: Exception) -> type[PlatformError]:
    if isinstance(error, ClientError):
        passes = (
            code_of(error) in THROTTLED or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500
        )
    else:
        passes = isinstance(error, _UNANSWERED) and not (_is_untrusted(error) or _is_of_proxy(error))
    return Unavailable if passes else PlatformError


def _is_untrusted(error: Exception) -> bool:
    """Whether it is the certificate; other errors of TLS are those of connections that break off."""
    return isinstance(error, SSLError) and "certificate verify failed" in str(error).lower()


def _is_of_proxy(error: Exception) -> bool:
    """Whether the address of a proxy is none that can be asked through."""
    return isinstance(error, HTTPClientError) and any(words in str(error) for words in _NO_PROXYS)


def hint_for(error: Boto3Error | BotoCoreError | ClientError) -> str:
    """What helps against it, empty when nothing is known to."""
    if _is_untrusted(error):
        return _UNTRUSTED
    if _is_of_proxy(error):
        return NO_PROXY
    if not isinstance(error, ClientError):
        return next((hint for kinds, hint in _HINTS_BY_KIND if isinstance(error, kinds)), "")
    code, message = code_of(error), message_of(error)
    if any(words in message for words in _WRONG_TIME):
        return _CLOCK
    if code in _QUOTAS:
        is_of_instances = "instance" in message.lower()
        return _QUOTA + ("use another instance type." if is_of_instances else "remove what is not needed any more.")
    if code in DENIED:
        return _hint_for_denial(error)
    return _HINTS.get(code, _FAULT if _kind(error) is Unavailable else "")


def _hint_for_denial(error: ClientError) -> str:
    """AWS's text mostly names the action; S3 often says no more than "Access Denied"."""
    message, operation = message_of(error), error.operation_name
    named = _DENIED_ACTION.search(message)
    action = named[1] if named else S3_ACTIONS.get(operation, operation)
    if "explicit deny" in message:
        return f"A policy explicitly denies {action}: ask an administrator of the account or organization."
    lacking = _LACKING_IN.search(message)
    hint = f"Ask an administrator to allow {action} in {f'the {lacking[1]}' if lacking else 'your IAM policy'}."
    if _ENCODED in message:
        hint += " To read the encoded message: aws sts decode-authorization-message --encoded-message MESSAGE"
    if named is None and operation in S3_ACTIONS:
        hint += " Or the bucket is another account's."
    return hint
