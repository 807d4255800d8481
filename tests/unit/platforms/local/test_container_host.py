"""What the local platform refuses to run in a container, with a podman that has every image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.container_host import ContainerHost


@pytest.fixture(autouse=True)
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.parametrize(("value", "taken"), [("one line", True), ("two\nlines", False)])
def test_podman_takes_variables_of_one_line(tmp_path: Path, value: str, taken: bool) -> None:
    nothing: Any = None  # no model data, no S3
    host = ContainerHost(tmp_path, tmp_path, lambda: nothing)
    container = {"Image": "localhost/toolkit/tiny:1", "Environment": {"TEMPLATE": value}}
    if taken:
        host.examine("CreateModel", {"PrimaryContainer": container})
        return
    with pytest.raises(ServiceError, match="take values of one line; these have several: TEMPLATE"):
        host.examine("CreateModel", {"PrimaryContainer": container})
