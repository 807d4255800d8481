"""What builds an image and puts it into a registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from toolkit.images.spec import ImageSpec


class Builder(Protocol):
    """One way to build. `name` is the word for it on the command line."""

    @property
    def name(self) -> str:
        """`append`, `docker`, `buildah` or `codebuild`."""

    def build(self, spec: ImageSpec, destination: str, log: Callable[[str], None]) -> str:
        """Build, push to `destination` (registry/repository:tag), and give the pushed manifest's digest.

        The manifest is Docker schema 2: SageMaker refuses OCI. Raises BuildError.
        """
