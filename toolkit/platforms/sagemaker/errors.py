"""Translate botocore's exceptions into the toolkit's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

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

from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.aws_errors import DENIED, THROTTLED

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
_NO_CODE = "Run it in a terminal, or give it a session that has the code already: aws configure export-credentials."
_QUOTA = "Ask for a higher quota in Service Quotas, or use another instance type."
_BUSY = "AWS takes fewer calls than were made just now. Run the same command again in a minute."
_HINTS = {
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "InvalidClientTokenId": _UNKNOWN,
    "InvalidSignatureException": _UNKNOWN,
    "SignatureDoesNotMatch": _UNKNOWN,
    "UnrecognizedClientException": _UNKNOWN,
    "LimitExceededException": _QUOTA,
    "ResourceLimitExceeded": _QUOTA,
    "ServiceQuotaExceededException": _QUOTA,
    **dict.fromkeys(THROTTLED, _BUSY),
}
_DENIED_ACTION = re.compile(r"not authorized to perform:? ([\w-]+:\w+)")


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
    ((SSLError,), _UNTRUSTED),  # a ConnectionError, too
    (
        (BotoConnectionError, HTTPClientError),
        "There is no answer: check the network and the region, and run the same command again.",
    ),
)


@contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Turn what boto3 raises inside into PlatformError: what was being done, AWS's own words, and a hint."""
    try:
        yield
    except PlatformError:  # WaitTimeout is an OSError too
        raise
    except ClientError as error:
        code = error.response["Error"]["Code"]
        # What follows the first line is the request as AWS would have signed it, session token and all.
        message = error.response["Error"]["Message"].split("\n\nThe Canonical String")[0]
        raise PlatformError(f"{doing}: {message} ({code})", hint=hint_for(error)) from error
    except (Boto3Error, BotoCoreError) as error:  # Boto3Error: what upload_file makes of a ClientError
        raise PlatformError(f"{doing}: {error}", hint=hint_for(error)) from error
    except EOFError as error:  # of getpass
        message = f"{doing}: the profile's role asks for an MFA code, and nobody is at a terminal to give it"
        raise PlatformError(message, hint=_NO_CODE) from error
    except OSError as error:
        raise PlatformError(f"{doing}: {error}", hint="Fix that file, then run the same command again.") from error


def hint_for(error: Boto3Error | BotoCoreError | ClientError) -> str:
    """What helps against it, empty when nothing is known to."""
    if not isinstance(error, ClientError):
        return next((hint for kinds, hint in _HINTS_BY_KIND if isinstance(error, kinds)), "")
    code = error.response["Error"]["Code"]
    if any(words in error.response["Error"]["Message"] for words in _WRONG_TIME):
        return _CLOCK
    return _hint_for_denial(error) if code in DENIED else _HINTS.get(code, "")


def _hint_for_denial(error: ClientError) -> str:
    """AWS's text mostly names the action; otherwise the call's name nearly is it."""
    message = error.response["Error"]["Message"]
    named = _DENIED_ACTION.search(message)
    action = named[1] if named else error.operation_name
    if "explicit deny" in message:
        return f"A policy explicitly denies {action}: ask an administrator of the account or organization."
    return f"Ask an administrator to allow {action} in your IAM policy."
