"""What AWS says went wrong. Looks at the answer alone, so that no SDK has to be imported for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients

# 403: an answer to HEAD has no body that could say more.
DENIED = ("403", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
# Those of botocore's standard retry mode, without LimitExceededException: what we call means a quota by it.
THROTTLED = (
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
)
_MISSING = (
    "NoSuchEntity",
    "NoSuchBucket",
    "NoSuchKey",
    "404",
    "ResourceNotFoundException",
    "ResourceNotFound",
    "RepositoryNotFoundException",
    "ImageNotFoundException",
    "ObjectNotFoundException",  # Application Auto Scaling's
)
# In a ValidationException; the second one is of training jobs (boto/boto3#2808).
_MISSING_WORDS = ("could not find", "requested resource not found")
_UNKNOWN_OPERATION = ("UnknownOperationException", "UnknownOperation", "InvalidAction")
_T = TypeVar("_T")


class Refusal(Protocol):
    """botocore's ClientError."""

    @property
    def response(self) -> Mapping[str, Any]:
        """AWS's answer."""


def code_of(error: Refusal) -> str:
    """AWS's name for what is wrong."""
    return str(error.response["Error"]["Code"])


def message_of(error: Refusal) -> str:
    """AWS's own words, empty where it has none."""
    return str(error.response["Error"].get("Message", ""))


def is_missing(error: Refusal) -> bool:
    """Whether AWS says that the thing does not exist; SageMaker says so in a ValidationException's text."""
    code = code_of(error)
    said = message_of(error).lower() if code == "ValidationException" else ""
    return code in _MISSING or any(words in said for words in _MISSING_WORDS)


def is_unknown_operation(error: Refusal) -> bool:
    """Whether the service lacks the operation, as in some regions; moto then answers 500 with a page of HTML."""
    is_page = code_of(error) == "500" and message_of(error).lower().startswith("<!doctype html")
    return code_of(error) in _UNKNOWN_OPERATION or is_page


def is_denied(error: Refusal) -> bool:
    """Whether AWS says that we may not do, or not see, it."""
    return code_of(error) in DENIED


def has_code(*codes: str) -> Callable[[Refusal], bool]:
    """Whether AWS's name for what is wrong is one of these."""
    return lambda error: code_of(error) in codes


def unless_missing(clients: Clients, ask: Callable[[], _T]) -> _T | None:
    """What `ask` returns, None where AWS says that the thing does not exist."""
    return unless(clients, ask, is_missing)


def unless(clients: Clients, ask: Callable[[], _T], *reasons: Callable[[Refusal], bool]) -> _T | None:
    """What `ask` returns, None where AWS refuses for one of the reasons, such as `is_denied`."""
    try:
        return ask()
    except clients.refusal as error:
        if any(is_reason(error) for is_reason in reasons):
            return None
        raise
