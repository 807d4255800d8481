"""Build with buildah, or with podman, which has the same builder: no daemon, and reproducible digests."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from toolkit.errors import BuildError
from toolkit.images import command
from toolkit.images.auth import Credentials, anonymous
from toolkit.images.publish import verify_pushed
from toolkit.images.reference import Reference, is_loopback, parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ImageSpec

# Not on x86-64, where it is the default and causes a warning about unused build arguments.
_PLATFORM = [] if platform.machine() in ("x86_64", "AMD64") else ["--platform", "linux/amd64"]
# OCI at first: only so neither a host's name nor a container's id gets in. The push makes schema 2 of it.
BUILD_OPTIONS = ["--format", "oci", "--timestamp", str(command.EPOCH), "--layers=false", *_PLATFORM]
"""How podman and buildah build the same image again."""
_ROOM = "Make room where images are kept (buildah info says where; buildah rmi --prune), or build with append."


def unavailable() -> str | None:
    """Why neither buildah nor podman can be used here, None when one can."""
    program = _program()
    if program is None:
        return "neither buildah nor podman is installed"
    ended = command.run([program, "info"])
    return f"{program} does not work here: {command.last_words(ended)}" if ended.code else None


@dataclass(frozen=True)
class BuildahBuilder:
    """Builds and pushes with `buildah` or `podman`.

    `credentials` are asked for the base's registry and for the destination's; where they know none, what
    `podman login` and `docker login` know holds.
    """

    credentials: Credentials = anonymous
    name: str = "buildah"

    def build(self, spec: ImageSpec, destination: str, log: command.Log) -> str:
        base, target = parse(spec.base), parse(destination)
        if why := unavailable():
            hint = "Install buildah or podman, or use another builder: append, docker, codebuild."
            raise BuildError(f"buildah cannot build here: {why}", hint=hint)
        program = _program() or self.name
        build = [program, "build", *BUILD_OPTIONS, *command.build_arguments(spec), "--tag", str(target)]
        with command.build_context(spec) as context:
            with access(self.credentials, base) as options:
                ended = command.run([*build, *options, "--file", str(context / "Dockerfile"), str(context)], log)
            if ended.code:
                raise command.build_failure(program, ended, spec.base, _ROOM)
            digest = context.parent / "digest"
            push = [program, "push", "--format", "v2s2", "--digestfile", str(digest)]
            with access(self.credentials, target) as options:
                ended = command.run([*push, *options, str(target), f"docker://{target}"], log)
            if ended.code:
                raise command.push_failure(program, ended, str(target), _ROOM)
            with Registry(target.registry, self.credentials) as registry:
                return verify_pushed(registry, target, digest.read_text(encoding="utf-8").strip())


def _program() -> str | None:
    return next((name for name in ("buildah", "podman") if shutil.which(name)), None)


@contextmanager
def access(credentials: Credentials, image: Reference) -> Iterator[list[str]]:
    """The options with which the image's registry can be used, until the block ends."""
    options = ["--tls-verify=false"] if is_loopback(image.registry) else []
    with command.secret_folder() as folder:
        if known := command.logins(credentials, [image]):
            path = folder / "auth.json"
            path.write_text(json.dumps({"auths": known}), encoding="utf-8")
            options += ["--authfile", str(path)]
        yield options
