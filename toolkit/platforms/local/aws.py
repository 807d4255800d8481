"""The account that the local platform pretends to be, and the error that its services answer with."""

from __future__ import annotations

import time

ACCOUNT = "123456789012"  # moto's account
REGION = "us-west-2"


def now() -> float:
    """Seconds since the epoch, cut to the millisecond, as AWS's timestamps are."""
    return int(time.time() * 1000) / 1000


def arn(kind: str, name: str) -> str:
    """ARN of a SageMaker resource; `kind` is "model", "endpoint-config" or "endpoint"."""
    return f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:{kind}/{name}"


def log_group(endpoint: str) -> str:
    """CloudWatch log group in which SageMaker keeps the logs of an endpoint's containers."""
    return f"/aws/sagemaker/Endpoints/{endpoint}"


def log_stream_arn(endpoint: str, stream: str) -> str:
    """ARN of one container's log stream."""
    return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{log_group(endpoint)}:log-stream:{stream}"


class ServiceError(Exception):
    """A request is refused. `code` is the AWS error code, the text is what the caller reads."""

    def __init__(self, message: str, code: str = "ValidationException") -> None:
        super().__init__(message)
        self.code = code
