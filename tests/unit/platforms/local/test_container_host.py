"""How the local platform runs a container, with a podman that has every image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolkit.catalog import lookup
from toolkit.errors import PlatformError
from toolkit.platforms.local.container_host import ContainerHost
from toolkit.platforms.local.engine import command, gpu_options, limits_of
from toolkit.platforms.local.spare import Spares


@pytest.fixture(autouse=True)
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho '[cpuset memory pids]'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


@pytest.mark.parametrize("value", ["one line", "two\nlines"])
def test_variables_of_any_number_of_lines_reach_the_container(tmp_path: Path, value: str) -> None:
    nothing: Any = None  # no model data, no S3
    host = ContainerHost(tmp_path, tmp_path, lambda: nothing, Spares(tmp_path, 0))
    container = {"Image": "localhost/toolkit/tiny:1", "Environment": {"TEMPLATE": value}}
    host.examine("CreateModel", {"PrimaryContainer": container})
    (tmp_path / "opt" / "ml").mkdir(parents=True)
    started = command("podman", "image", {"TEMPLATE": value}, ["--memory", "8g"], tmp_path, 1)
    assert ("--memory", "8g") in zip(started.arguments, started.arguments[1:], strict=False)
    in_file = f"TEMPLATE={value}\n" in (tmp_path / "environment").read_text()
    named = ("--env", "TEMPLATE") in zip(started.arguments, started.arguments[1:], strict=False)
    assert (in_file, named) == ("\n" not in value, "\n" in value)
    assert started.environment.get("TEMPLATE") == (value if "\n" in value else None)


CDI = '{"kind": "nvidia.com/gpu"}'
ALL = ["--device", "nvidia.com/gpu=all"]


@pytest.mark.parametrize(
    ("text", "instance", "options"),
    [("", None, []), (CDI, None, ALL), ("", "ml.g6.xlarge", []), (CDI, "ml.g6.xlarge", ALL), (CDI, "ml.c7i.large", [])],
)
def test_gpus_that_the_machine_names_are_given_to_types_that_have_some(
    tmp_path: Path, text: str, instance: str | None, options: list[str]
) -> None:
    (tmp_path / "nvidia.json").write_text(text)
    known = lookup.instance(instance) if instance else None
    assert gpu_options(known, [tmp_path, tmp_path / "missing"], tmp_path / "no driver") == options


def test_gpus_that_no_container_can_be_given_are_told_with_the_remedy(tmp_path: Path) -> None:
    driver = tmp_path / "version"
    driver.write_text("NVRM version")
    with pytest.raises(PlatformError, match=r"ml\.g6\.xlarge has GPUs, and no CDI file in .* names those") as refused:
        gpu_options(lookup.instance("ml.g6.xlarge"), [tmp_path], driver)
    assert "nvidia-ctk cdi generate" in refused.value.hint
    assert gpu_options(lookup.instance("ml.c7i.large"), [tmp_path], driver) == []


def test_the_memory_and_cores_of_the_type_are_the_limits_as_far_as_they_can_be_set() -> None:
    """The podman of this test may limit memory, and no cores."""
    assert limits_of("podman", lookup.instance("ml.c7i.large")) == ["--memory", "4g"]
    assert limits_of("docker", lookup.instance("ml.c7i.large"))[2] == "--cpus"
    assert limits_of("podman", None) == []
