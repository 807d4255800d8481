"""The one place where botocore's exceptions become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from toolkit.errors import PlatformError

_CONNECTION = (BotoConnectionError, HTTPClientError)
_HINTS = {
    "AccessDeniedException": "Ask for that action in your IAM policy.",
    "AccessDenied": "Ask for that action in your IAM policy.",
    "ExpiredTokenException": "Log in again: your AWS credentials have expired.",
    "ResourceLimitExceeded": "Ask for a higher quota in Service Quotas, or use another instance type.",
    "ThrottlingException": "AWS is busy: the same command carries on.",
}


@contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Turn what boto3 raises inside into PlatformError: what was being done, AWS's own words, and a hint."""
    try:
        yield
    except PlatformError:  # WaitTimeout is an OSError too
        raise
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        raise PlatformError(f"{doing}: {message} ({code})", hint=_HINTS.get(code, "")) from error
    except (Boto3Error, BotoCoreError) as error:  # Boto3Error: what upload_file makes of a ClientError
        hint = "Nobody answers there any more. The same command carries on." if isinstance(error, _CONNECTION) else ""
        raise PlatformError(f"{doing}: {error}", hint=hint) from error
    except OSError as error:
        raise PlatformError(f"{doing}: {error}", hint="Mend that file, then run the same command again.") from error


def is_missing(error: ClientError) -> bool:
    """Whether AWS says that the thing does not exist; SageMaker says so in a ValidationException's text."""
    code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
    return code in ("NoSuchEntity", "NoSuchBucket", "404", "ResourceNotFoundException", "ResourceNotFound") or (
        code == "ValidationException" and "could not find" in message.lower()
    )
