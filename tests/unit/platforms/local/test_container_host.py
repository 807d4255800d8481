"""How the local platform runs a container, with a podman that has every image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolkit.platforms.local.container_host import ContainerHost
from toolkit.platforms.local.engine import command, gpu_options


@pytest.fixture(autouse=True)
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.parametrize("value", ["one line", "two\nlines"])
def test_variables_of_any_number_of_lines_reach_the_container(tmp_path: Path, value: str) -> None:
    nothing: Any = None  # no model data, no S3
    host = ContainerHost(tmp_path, tmp_path, lambda: nothing)
    container = {"Image": "localhost/toolkit/tiny:1", "Environment": {"TEMPLATE": value}}
    host.examine("CreateModel", {"PrimaryContainer": container})
    (tmp_path / "opt" / "ml").mkdir(parents=True)
    started = command("podman", "image", {"TEMPLATE": value}, tmp_path, 1)
    in_file = f"TEMPLATE={value}\n" in (tmp_path / "environment").read_text()
    named = ("--env", "TEMPLATE") in zip(started.arguments, started.arguments[1:], strict=False)
    assert (in_file, named) == ("\n" not in value, "\n" in value)
    assert started.environment.get("TEMPLATE") == (value if "\n" in value else None)


@pytest.mark.parametrize(
    ("text", "options"), [("", []), ('{"kind": "nvidia.com/gpu"}', ["--device", "nvidia.com/gpu=all"])]
)
def test_gpus_that_the_machine_names_are_given(tmp_path: Path, text: str, options: list[str]) -> None:
    (tmp_path / "nvidia.json").write_text(text)
    assert gpu_options([tmp_path, tmp_path / "missing"]) == options
