"""Build with Docker: a local engine, or SageMaker Studio's, if an administrator has enabled it.

The legacy builder, because Studio's Docker has no other. The command, not the API: Studio's proxy refuses what
client libraries send first.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.errors import BuildError
from toolkit.images import command
from toolkit.images.auth import Credentials, anonymous
from toolkit.images.copy import find_image
from toolkit.images.docker_config import HUB_LOGIN, docker_folder, read_config
from toolkit.images.publish import publish, staging_reference
from toolkit.images.reference import DOCKER_HUB, Reference, parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ImageSpec

STUDIO_METADATA = Path("/opt/ml/metadata/resource-metadata.json")
"""File with the domain of a Studio space."""

_STUDIO_NETWORK = "sagemaker"  # the only network that Studio's Docker allows
_CONTAINERD_STORE = "io.containerd.snapshotter"
_ARM = ("aarch64", "arm64")
_PUSHED = re.compile(r"(?:.*: )?digest: (sha256:[0-9a-f]{64}) size: \d+")
_ROOM = "Make room where Docker keeps its images (docker system df, docker image prune), or build with append."


def unavailable() -> str | None:
    """Why Docker cannot be used here, None when it can."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    ended = command.run(["docker", "version", "--format", "{{.Server.Version}}"])
    return f"docker cannot reach its engine: {command.last_words(ended)}" if ended.code else None


@dataclass(frozen=True)
class DockerBuilder:
    """Builds and pushes with the `docker` command.

    `credentials` are asked for the base's registry and for the destination's; what `docker login` knows holds too.
    """

    credentials: Credentials = anonymous
    studio: Path = STUDIO_METADATA
    name: str = "docker"

    def build(self, spec: ImageSpec, destination: str, log: command.Log) -> str:
        base, target = parse(spec.base), parse(destination)
        if why := unavailable():
            raise BuildError(f"docker cannot build here: {why}", hint=_engine_hint(why))
        with command.build_context(spec) as context, logged_in(self.credentials, base, target) as folder:
            variables = {"DOCKER_BUILDKIT": "0", "DOCKER_CONFIG": str(folder)}
            engine = _engine(variables)
            pushed = staging_reference(target, secrets.token_hex(4)) if _CONTAINERD_STORE in engine else target
            network = ["--network", _STUDIO_NETWORK] if _in_studio(self.studio) else []
            platform = ["--platform", "linux/amd64"] if any(arm in engine for arm in _ARM) else []
            build = ["docker", "build", *network, *platform, *command.build_arguments(spec)]
            ended = command.run([*build, "--tag", str(pushed), str(context)], log, variables)
            if ended.code:
                raise command.build_failure("docker", ended, spec.base, _ROOM)
            ended = command.run(["docker", "push", str(pushed)], log, variables)
            if ended.code:
                raise command.push_failure("docker", ended, str(pushed), _ROOM)
        with Registry(target.registry, self.credentials) as registry:
            image = find_image(registry, replace(pushed, tag=None, digest=_pushed_digest(ended)))
            return publish(registry, target, image.as_schema_2())


@contextmanager
def logged_in(credentials: Credentials, *images: Reference) -> Iterator[Path]:
    """A folder for DOCKER_CONFIG: the user's own settings and contexts, and our logins, until the block ends."""
    own = docker_folder()
    with command.secret_folder() as folder:
        for entry in own.iterdir() if own.is_dir() else ():
            if entry.name != "config.json":
                (folder / entry.name).symlink_to(entry.resolve())
        config = read_config(own / "config.json")
        for registry, login in command.logins(credentials, images).items():
            key = HUB_LOGIN if registry == DOCKER_HUB else registry
            config["auths"] = {**(config.get("auths") or {}), key: login}
            # otherwise Docker asks a credential helper instead of this file
            config["credHelpers"] = {**(config.get("credHelpers") or {}), key: ""}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield folder


def _engine(variables: dict[str, str]) -> str:
    """The engine's architecture and the kind of its store; empty if asking is forbidden, as by Studio's proxy."""
    ended = command.run(
        ["docker", "info", "--format", "{{.Architecture}} {{json .DriverStatus}}"], environment=variables
    )
    return "" if ended.code else "\n".join(ended.lines)


def _pushed_digest(ended: command.Ended) -> str:
    for line in reversed(ended.lines):
        if match := _PUSHED.fullmatch(line):
            return match[1]
    message = f"docker push did not report the digest: {command.last_words(ended)}"
    raise BuildError(message, hint="Update docker, or build with another one (--builder).")


def _in_studio(metadata: Path) -> bool:
    """Whether this is a space of Studio: a notebook instance has the file too, but belongs to no domain."""
    try:
        return "DomainId" in documents.parse(dict[str, Any], documents.read_file(metadata))
    except (OSError, ValueError):
        return False


def _engine_hint(why: str) -> str:
    if "permission denied" in why.lower():
        way = "Add yourself to the group docker (sudo usermod -aG docker $USER) and log in again"
    elif "command" in why:
        way = "Install Docker"
    else:
        way = "Start Docker; in SageMaker Studio an admin must enable it (DockerSettings.EnableDockerAccess)"
    return f"{way}, or use another builder: append, buildah, codebuild."
