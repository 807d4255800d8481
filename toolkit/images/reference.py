"""The name of an image in a registry: `registry/repository:tag@digest`, and Docker Hub's short forms."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from toolkit.errors import UsageError

DOCKER_HUB = "docker.io"

_HOST = r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::\d+)?"
_PATH = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<registry>{_HOST})/(?P<repository>{_PATH}(?:/{_PATH})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")


@dataclass(frozen=True)
class Reference:
    """An image of a registry, or, with neither tag nor digest, a repository."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def selector(self) -> str:
        """The digest, or else the tag, or else `latest`."""
        return self.digest or self.tag or "latest"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.registry}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")


def parse(text: str) -> Reference:
    """The reference that a user wrote. Raises UsageError."""
    first, slash, _ = text.partition("/")
    is_host = slash and (first == "localhost" or any(letter in first for letter in ".:["))
    parts = _REFERENCE.fullmatch(text if is_host else f"{DOCKER_HUB}/{text}")
    if parts is None:
        message = f"{text!r} is not an image reference"
        hint = "Write registry/repository:tag or registry/repository@sha256:…, with the repository in lower case."
        raise UsageError(message, hint=hint)
    reference = Reference(parts["registry"], parts["repository"], parts["tag"], parts["digest"])
    if reference.registry not in (DOCKER_HUB, f"index.{DOCKER_HUB}"):
        return reference
    repository = reference.repository if "/" in reference.repository else f"library/{reference.repository}"
    return replace(reference, registry=DOCKER_HUB, repository=repository)


def same_repository(image: str, other: str) -> bool:
    """Whether two images differ in nothing but tag and digest."""
    first, second = parse(image), parse(other)
    return (first.registry, first.repository) == (second.registry, second.repository)


def is_loopback(registry: str) -> bool:
    """Whether the registry is on this machine, where plain HTTP is as good as TLS."""
    return _LOOPBACK.fullmatch(registry) is not None
