"""The very commands of the buildspec, run by bash on what CodeBuild would unpack, with a real engine and registry."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from build_tools import blobs_with, our_image, tool
from loopback_registry import running, set_password
from small_images import config_of, layers_of
from standin_base import push_shell

from toolkit.errors import BuildError
from toolkit.images.buildspec import buildspec, pack
from toolkit.images.command import build_context
from toolkit.images.manifest import SCHEMA_2
from toolkit.images.registry import Registry
from toolkit.images.spec import ImageSpec

REGION = "eu-central-1"
BUILD = "toolkit-image-build:0a1b"
PUSHED = "1-staged-0a1b"
# It knows the password of one region only.
AWS = f"""#!/bin/sh
[ "$*" = "ecr get-login-password --region {REGION}" ] && echo first && exit
echo "no credentials for: $*" >&2
exit 253
"""


pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(scope="module")
def base(host: str) -> str:
    with Registry(host) as registry:
        return push_shell(registry, "standin/buildspec")


@pytest.fixture(autouse=True)
def _aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of that name, and a login of Docker for this test alone."""
    program = tmp_path / "bin" / "aws"
    program.parent.mkdir()
    program.write_text(AWS)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


def run(spec: ImageSpec, folder: Path, destination: str, **variables: str) -> tuple[str, str]:
    """As CodeBuild does, phase by phase: the command that failed, "" when none did, and all that was said."""
    (folder / "source").mkdir()
    with build_context(spec) as context:
        pack(context, folder / "source.zip")
    tool("unzip", "-q", str(folder / "source.zip"), "-d", str(folder / "source"))
    known = {
        "AWS_REGION": REGION,
        "CODEBUILD_BUILD_ID": BUILD,
        "DESTINATION": destination,
        "BASE_IMAGE": spec.base,
        **variables,
    }
    return _run(folder / "source", known)


def _run(folder: Path, variables: Mapping[str, str]) -> tuple[str, str]:
    said = ""
    for phase in json.loads(buildspec())["phases"].values():
        for command in phase["commands"]:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            said += done.stdout
            if done.returncode:
                return command, said
    return "", said


def test_the_image_arrives_beside_its_tag_and_as_schema_2(
    base: str, host: str, name: str, registry: Registry, tmp_path: Path
) -> None:
    failed, said = run(our_image(base, "RUN echo built > /built\n"), tmp_path, f"{host}/{name}:1")
    assert failed == "", said
    manifest = registry.find_manifest(name, PUSHED)
    assert manifest is not None
    assert manifest.media_type == SCHEMA_2
    assert any("built" in layer for layer in layers_of(registry, name, manifest.digest))
    assert registry.find_manifest(name, "1") is None


def test_files_have_their_modes_and_belong_to_root(
    base: str, host: str, name: str, registry: Registry, tmp_path: Path
) -> None:
    failed, said = run(our_image(base), tmp_path, f"{host}/{name}:1")
    assert failed == "", said
    manifest = registry.find_manifest(name, PUSHED)
    assert manifest is not None
    layers = layers_of(registry, name, manifest.digest)[1:]
    ours = {path.removeprefix("opt/toolkit/"): entry for layer in layers for path, entry in layer.items()}
    modes = [stat.S_IMODE(ours[path].mode) for path in ("serve", "deep/er/note", "deep")]
    assert modes == [0o755, 0o640, 0o755]
    assert {(entry.uid, entry.gid) for entry in ours.values()} == {(0, 0)}


def test_a_failing_step_fails_the_build_and_nothing_is_pushed(
    base: str, host: str, name: str, registry: Registry, tmp_path: Path
) -> None:
    failed, said = run(our_image(base, "RUN exit 3\n"), tmp_path, f"{host}/{name}:1")
    assert "docker build" in failed
    assert "Step " in said
    assert "returned a non-zero code: 3" in said
    assert registry.find_manifest(name, PUSHED) is None


def test_after_a_failed_phase_no_other_comes() -> None:
    """CodeBuild runs post_build even after a build that failed, unless it is told not to."""
    phases = json.loads(buildspec())["phases"]
    assert {phase["on-failure"] for phase in phases.values()} == {"ABORT"}


def test_it_logs_in_to_the_bases_registry_too(
    host: str, name: str, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_password(tmp_path / "passwords", "first")
    with running(tmp_path, tmp_path / "passwords") as private:
        with Registry(private, lambda _: ("AWS", "first")) as theirs:
            base = push_shell(theirs, "base")
        failed, said = run(our_image(base), tmp_path, f"{host}/{name}:1", BASE_REGISTRY=private, BASE_REGION=REGION)
    assert failed == "", said
    assert registry.find_manifest(name, PUSHED) is not None
    assert "first" not in said


def test_where_aws_gives_no_password_it_ends_at_the_login(base: str, host: str, name: str, tmp_path: Path) -> None:
    failed, said = run(our_image(base), tmp_path, f"{host}/{name}:1", AWS_REGION="us-west-2")
    assert "docker login" in failed
    assert "no credentials" in said


def test_no_login_gets_into_the_image(base: str, name: str, tmp_path: Path) -> None:
    set_password(tmp_path / "passwords", "first")
    with running(tmp_path, tmp_path / "passwords") as private:
        failed, said = run(our_image(base, "RUN :\n"), tmp_path, f"{private}/{name}:1")
    assert failed == "", said
    assert blobs_with(tmp_path, "a note")
    assert blobs_with(tmp_path, "AWS:first", "QVdTOmZpcnN0") == []


def test_a_dockerfile_that_asks_for_the_time_gets_it(
    base: str, host: str, name: str, registry: Registry, tmp_path: Path
) -> None:
    step = "ARG SOURCE_DATE_EPOCH\nENV TIME=${SOURCE_DATE_EPOCH}\n"
    failed, said = run(our_image(base, step), tmp_path, f"{host}/{name}:1", SOURCE_DATE_EPOCH="0")
    assert failed == "", said
    manifest = registry.find_manifest(name, PUSHED)
    assert manifest is not None
    assert "TIME=0" in config_of(registry, name, manifest.digest)["config"]["Env"]


def test_what_is_in_a_variable_is_never_a_command(base: str, host: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run(our_image(base), tmp_path, f"{host}/a:$(touch {mark}); touch {mark} #`touch {mark}`")
    assert not mark.exists()


def test_the_same_context_has_the_same_digest(base: str, tmp_path: Path) -> None:
    digests = []
    for _ in range(2):
        with build_context(our_image(base)) as context:
            digests.append(pack(context, tmp_path / "source.zip"))
    assert digests[0] == digests[1]


def test_a_full_disk_is_told(base: str, tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with (
        build_context(our_image(base)) as context,
        pytest.raises(BuildError, match=r"cannot pack the build context: .*space"),
    ):
        pack(context, tmp_path / "full")
