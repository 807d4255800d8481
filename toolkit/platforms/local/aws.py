"""The account and the regions that the local platform pretends to be, and the error that its services answer with."""

from __future__ import annotations

import time
from dataclasses import dataclass

from toolkit.planning.resources import partition_of

ACCOUNT = "123456789012"  # moto's account
REGION = "us-west-2"


@dataclass(frozen=True)
class Region:
    """A region of AWS, and how its resources are called."""

    name: str

    @property
    def partition(self) -> str:
        return partition_of(self.name)[0]

    def arn(self, kind: str, name: str) -> str:
        """ARN of a SageMaker resource; `kind` is such as "model", "endpoint-config" or "endpoint"."""
        return f"arn:{self.partition}:sagemaker:{self.name}:{ACCOUNT}:{kind}/{name}"

    def log_stream_arn(self, endpoint: str, stream: str) -> str:
        return f"arn:{self.partition}:logs:{self.name}:{ACCOUNT}:log-group:{log_group(endpoint)}:log-stream:{stream}"


HOME = Region(REGION)
"""Where the local platform is."""


def now() -> float:
    """Seconds since the epoch, cut to the millisecond, as AWS's timestamps are."""
    return int(time.time() * 1000) / 1000


def log_group(endpoint: str) -> str:
    """CloudWatch log group in which SageMaker keeps the logs of an endpoint's containers."""
    return f"/aws/sagemaker/Endpoints/{endpoint}"


class ServiceError(Exception):
    """A request is refused. `code` is the AWS error code, the text is what the caller reads."""

    def __init__(self, message: str, code: str = "ValidationException") -> None:
        super().__init__(message)
        self.code = code
