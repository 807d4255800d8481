"""What a container writes, where SageMaker would put it."""

from __future__ import annotations

from moto.logs.models import logs_backends

from toolkit.platforms.local.aws import ACCOUNT, HOME
from toolkit.platforms.local.container import LogStream

GROUP = "/aws/sagemaker/Endpoints/late"


def test_a_stream_begins_with_its_first_line() -> None:
    """One that is made with the deployment is older than the endpoint, and its lines are taken for another's."""
    groups = logs_backends[ACCOUNT][HOME.name].groups
    log = LogStream("late", "only/i-1")
    assert GROUP not in groups

    log.write(b"no such head\n")

    assert [event.message for event in groups[GROUP].streams["only/i-1"].events] == ["no such head"]
