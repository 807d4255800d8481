"""Build a recipe's image and bring it into the account's registry, with whichever builder there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toolkit.apply.progress import Progress
from toolkit.errors import BuildError
from toolkit.images import buildah, docker
from toolkit.images.append import AppendBuilder
from toolkit.images.docker_config import docker_credentials
from toolkit.images.registry import Registry
from toolkit.images.spec import Builder, ImageSpec
from toolkit.platforms.image import spec_of
from toolkit.platforms.sagemaker import codebuild_project
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild import CodeBuildBuilder
from toolkit.platforms.sagemaker.images import ECR_HOST, registry_access, remove_staged

_STAGING = ("docker", "codebuild")
"""Builders that may push under another tag first."""


def build_image(
    clients: Clients,
    request: Mapping[str, Any],
    progress: Progress,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Build what an `Image` request describes; the digest of what was pushed. Raises BuildError."""
    spec = spec_of(request)
    login = _Login(clients, registry_access(clients)[0])
    builder = _choose(spec, request["Builder"], login, sleep)
    progress.update(f"{builder.name} on {spec.base}")
    digest = builder.build(spec, f"{login.own}/{request['Repository']}:{request['Tag']}", progress.update)
    if builder.name in _STAGING:
        remove_staged(clients, request["Repository"], request["Tag"], progress.update)
    return digest


@dataclass(frozen=True)
class _Login:
    """User and password for a registry: ECR's short-lived ones, got anew each time, or what `docker login` has."""

    clients: Clients
    own: str

    def __call__(self, registry: str) -> tuple[str, str] | None:
        if registry == self.own:
            _, user, password = registry_access(self.clients)
            return user, password
        if ecr := ECR_HOST.fullmatch(registry):
            _, user, password = registry_access(self.clients, ecr[1])
            return user, password
        return docker_credentials(registry)


def _choose(spec: ImageSpec, wanted: str | None, login: _Login, sleep: Callable[[float], None]) -> Builder:
    builders: dict[str, Builder] = {
        "append": AppendBuilder(lambda host: Registry(host, login)),
        "docker": docker.DockerBuilder(login),
        "buildah": buildah.BuildahBuilder(login),
        "codebuild": CodeBuildBuilder(login.clients, login, sleep=sleep),
    }
    if wanted:
        return builders[wanted]
    if not spec.needs_run:
        return builders["append"]
    missing = {"docker": docker.unavailable(), "buildah": buildah.unavailable()}
    if all(missing.values()):
        # What does not exist yet, a project and a role, is made only for who asks for codebuild by name.
        missing["codebuild"] = codebuild_project.unavailable(login.clients)
    for name, why in missing.items():
        if why is None:
            return builders[name]
    whys = "; ".join(f"{name}: {why}" for name, why in missing.items())
    hint = (
        "Build with codebuild, which makes its project (toolkit build --with codebuild, or `container.builder`), "
        "install one of the others, or remove `container.dockerfile`, which needs them."
    )
    raise BuildError(f"no builder is available that can run the Dockerfile's instructions: {whys}", hint=hint)
