"""What a container writes, where SageMaker would put it."""

from __future__ import annotations

from pathlib import Path

from moto.logs.models import logs_backends

from toolkit.platforms.local.aws import ACCOUNT, HOME
from toolkit.platforms.local.container import LogStream

GROUP = "/aws/sagemaker/Endpoints/late"


def test_a_stream_begins_with_its_first_line(tmp_path: Path) -> None:
    """One that is made with the deployment is older than the endpoint, and its lines are taken for another's."""
    groups = logs_backends[ACCOUNT][HOME.name].groups
    log = LogStream("late", "only/i-1", tmp_path)
    assert GROUP not in groups

    log.write(b"no such head\n")

    page, _, _ = groups[GROUP].streams["only/i-1"].get_log_events(None, None, None, None, True)
    assert [event["message"] for event in page] == ["no such head"]
