"""What botocore says of a service is megabytes: each session of a process gives the same, not a copy of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolkit.platforms.local.clients import DaemonSession
from toolkit.platforms.local.credentials import create
from toolkit.platforms.local.daemon import LocalDaemon
from toolkit.platforms.sagemaker.session import SageMakerSession


def on_this_machine(key: Path) -> Any:
    create(key)
    url = "http://127.0.0.1:1"
    return DaemonSession(LocalDaemon(0, url, url, started_at=0, credentials_file=str(key))).client("sagemaker")


def on_aws(_: Path) -> Any:
    return SageMakerSession().open("us-west-2").clients.sagemaker


@pytest.mark.parametrize("client", [on_this_machine, on_aws])
def test_descriptions_of_services_are_shared(
    client: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    described = [client(tmp_path / name).meta.service_model.metadata for name in ("first", "second")]
    assert described[0] is described[1]
