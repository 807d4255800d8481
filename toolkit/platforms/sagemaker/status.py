"""Status of an endpoint as waiting needs it, with what SageMaker does meanwhile."""

from __future__ import annotations

from toolkit.apply.waiter import EndpointStatus

# 30 minutes: what users report of InsufficientInstanceCapacity. No log: aws/deep-learning-containers#6187.
NO_LOG_REASON = (
    "SageMaker looks for a free instance (and gives up after about 30), or the image does not start on that type, "
    "which leaves no log"
)


def endpoint_status(
    endpoint: str, status: str, config: str, failure_reason: str = "", began: float = 0.0
) -> EndpointStatus:
    """What SageMaker says of an endpoint or component, and what a user should know of one in that status."""
    return EndpointStatus(endpoint, status, config, failure_reason, began, NO_LOG_REASON, _hopeless(endpoint, status))


def _hopeless(endpoint: str, status: str) -> str:
    meanwhile = "; the old configuration continues to serve" if status == "Updating" else ", and bills"
    return (
        f"It is still {status}{meanwhile}: its container is started again until the time for the health check is up, "
        "and before that SageMaker lets nobody change or delete it. `toolkit deploy` of the corrected recipe and "
        f"`toolkit destroy {endpoint}` wait for it."
    )
