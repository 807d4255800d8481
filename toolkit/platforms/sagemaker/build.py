"""Build a recipe's image and bring it into the account's registry, with whichever builder there is.

CodeBuild is for who has no Docker: any Dockerfile, on a machine of AWS's, its log followed line by line.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.apply.progress import Progress
from toolkit.errors import BuildError
from toolkit.images import buildah, docker
from toolkit.images.append import AppendBuilder
from toolkit.images.auth import Credentials
from toolkit.images.base import require_runnable
from toolkit.images.buildspec import pack
from toolkit.images.command import Ended, Log, build_arguments, build_context, build_failure, last_words, push_failure
from toolkit.images.copy import find_image
from toolkit.images.docker_config import docker_credentials
from toolkit.images.evidence import Referrers, attach, sign, verify
from toolkit.images.inventory import bill_of_materials, described_wheels, provenance
from toolkit.images.publish import publish, staging_reference
from toolkit.images.reference import Reference, parse
from toolkit.images.registry import Registry
from toolkit.images.spec import Builder, ImageSpec
from toolkit.platforms.image import spec_of
from toolkit.platforms.sagemaker import codebuild_project
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import ensure_project
from toolkit.platforms.sagemaker.codebuild_run import Builds, failed_phase, own_lines
from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
from toolkit.platforms.sagemaker.images import ECR_HOST, registry_access, remove_staged

if TYPE_CHECKING:
    from types_boto3_codebuild.type_defs import BuildTypeDef

    from toolkit.images.signing import PublicKey, SigningKey  # imports what only the extra `sign` has

_SHOWN_LINES = 8
_REFUSED = re.compile(r"denied|not authorized|no basic auth|403 forbidden", re.I)
_PROJECT = IMAGE_PROJECT.name
_ROOM = f"Give the project {_PROJECT} a larger compute type, or make the image smaller."
_HINTS = {
    "TIMED_OUT": f"Give the project {_PROJECT} more minutes (timeoutInMinutes), or do less in `container.dockerfile`.",
    "STOPPED": "Somebody stopped it. Run the same command to build again.",
    "FAULT": "CodeBuild itself failed. Run the same command to build again.",
}

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
    require_runnable(spec, builder.name, lambda host: Registry(host, login), progress.update, progress.say)
    progress.update(f"{builder.name} on {spec.base}")
    pushed = builder.build(spec, f"{login.own}/{request['Repository']}:{request['Tag']}", progress.update)
    _attach(login, spec, builder.name, request, pushed, progress)
    if builder.name in _STAGING:
        remove_staged(clients, request["Repository"], request["Tag"], progress.update)
    return pushed


def verify_image(clients: Clients, repository: str, tag: str, key: PublicKey | None) -> dict[str, str]:
    """Digests of what lies beside an image: bill of materials and provenance of this very image. Raises BuildError.

    With a key, image and documents must be signed with it.
    """
    with _beside(clients, repository, tag) as (beside, base):
        return {"image": beside.image.digest, **verify(beside, base, key)}


def sign_image(clients: Clients, repository: str, tag: str, key: SigningKey) -> None:
    """Sign an image and what lies beside it. Raises BuildError."""
    with _beside(clients, repository, tag) as (beside, base):
        sign(beside, base, key)


@contextmanager
def _beside(clients: Clients, repository: str, tag: str) -> Iterator[tuple[Referrers, str | None]]:
    """What lies beside an image, until the block ends, and the digest of the base that the image names."""
    login = _Login(clients, registry_access(clients)[0])
    with Registry(login.own, login) as registry:
        image = find_image(registry, Reference(login.own, repository, tag))
        labels = (image.config.get("config") or {}).get("Labels") or {}
        yield Referrers(registry, repository, image.manifest), labels.get("org.opencontainers.image.base.digest")


def _attach(
    login: _Login, spec: ImageSpec, builder: str, request: Mapping[str, Any], digest: str, progress: Progress
) -> None:
    """Put the bill of materials and the provenance beside the image. A registry without room for them is no failure."""
    repository = request["Repository"]
    try:
        wheels = described_wheels(spec.wheels, spec.python)
        sbom = bill_of_materials(spec.base, spec.files, wheels)
        statement = provenance(spec, builder, f"{login.own}/{repository}", digest, wheels, sbom)
        with Registry(login.own, login) as registry:
            image = registry.find_manifest(repository, digest)
            if image is not None:
                attach(Referrers(registry, repository, image), sbom, statement)
    except BuildError as error:
        progress.say(f"no bill of materials and no provenance lie beside the image: {error.message}")


@dataclass(frozen=True)
class _Login:
    """User and password for a registry: ECR's short-lived ones, got anew each time, or what `docker login` has."""

    clients: Clients
    own: str

    def __call__(self, registry: str) -> tuple[str, str] | None:
        if registry == self.own:
            return registry_access(self.clients)[1:]
        if ecr := ECR_HOST.fullmatch(registry):
            return registry_access(self.clients, ecr[1])[1:]
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
        missing["codebuild"] = codebuild_project.unavailable(login.clients, IMAGE_PROJECT)
    for name, why in missing.items():
        if why is None:
            return builders[name]
    whys = "; ".join(f"{name}: {why}" for name, why in missing.items())
    hint = (
        "Build with codebuild, which makes its project (toolkit build --with codebuild, or `container.builder`), "
        "install one of the others, or remove `container.dockerfile`, which needs them."
    )
    raise BuildError(f"no builder is available that can run the Dockerfile's instructions: {whys}", hint=hint)


@dataclass(frozen=True)
class CodeBuildBuilder:
    """Builds in the project `toolkit-image-build`, which is made if it is not there.

    `credentials` are asked for the destination's registry, where what was pushed gets its tag. `sleep` waits between
    two looks at a build.
    """

    clients: Clients
    credentials: Credentials
    sleep: Callable[[float], None] = time.sleep
    name: ClassVar[str] = "codebuild"

    def build(self, spec: ImageSpec, destination: str, log: Log) -> str:
        """Build, push to `destination`, and give the digest. Raises BuildError, and UsageError for a wrong name.

        Ctrl-C stops the build. Whatever else ends us lets it go on: within five minutes the same build is taken up.
        """
        target = parse(destination)
        variables = _variables(spec, target)
        ensure_project(self.clients, IMAGE_PROJECT, log, self.sleep)
        builds = Builds(self.clients, IMAGE_PROJECT.name, log, self.sleep)
        with build_context(spec) as context:
            archive = context.parent / "source.zip"
            source = f"{IMAGE_PROJECT.sources}{pack(context, archive)}.zip"
            self.clients.s3.upload_file(str(archive), builds.bucket, source)
        identity = builds.start_once(source, variables)
        build, lines = builds.follow(identity, source)
        if build["buildStatus"] != "SUCCEEDED":
            raise _failure(build, lines, spec, target)
        with Registry(target.registry, self.credentials) as registry:
            pushed = find_image(registry, staging_reference(target, identity.rpartition(":")[2]))
            return publish(registry, target, pushed.as_schema_2())


def _variables(spec: ImageSpec, target: Reference) -> dict[str, str]:
    """What the buildspec asks for."""
    base = parse(spec.base)
    arguments = dict(option.split("=", 1) for option in build_arguments(spec)[1::2])
    values = {"DESTINATION": str(target), **arguments}
    if (ecr := ECR_HOST.fullmatch(base.registry)) and base.registry != target.registry:
        values |= {"BASE_REGISTRY": base.registry, "BASE_REGION": ecr[1]}
    return values


def _failure(build: BuildTypeDef, lines: tuple[str, ...], spec: ImageSpec, target: Reference) -> BuildError:
    """Why a build ended without an image: the phase, the step, the last lines, and what to do."""
    status, phase = build["buildStatus"], failed_phase(build)
    said = [item.get("message", "") for item in phase.get("contexts", [])]
    ended = Ended(1, own_lines(build, lines))
    phase_name = phase.get("phaseType", build["currentPhase"])
    what = f"codebuild, {status} in {phase_name}"
    if (status, phase_name) == ("FAILED", "BUILD"):
        error = build_failure(what, ended, spec.base, _ROOM)
    elif (status, phase_name) == ("FAILED", "POST_BUILD"):
        error = push_failure(what, ended, str(target), _ROOM)
    else:
        words = next(filter(None, said), "") or last_words(ended)
        error = BuildError(f"{what}: {words}", hint=_HINTS.get(status, ""))
    # A step of the recipe's own may be denied anything, which says nothing of the role.
    words = "\n".join((error.message, *(() if phase_name == "BUILD" else (*said, *ended.lines))))
    hint = _role_hint(build) if _REFUSED.search(words) else error.hint
    return BuildError("\n  | ".join((error.message, *ended.lines[-_SHOWN_LINES:])), hint=hint)


def _role_hint(build: BuildTypeDef) -> str:
    role = build.get("serviceRole", f"the role of the project {_PROJECT}").rpartition("/")[2]
    return (
        f"The build runs under {role}: let it pull the base and push to the repository. As the toolkit makes it, it "
        "pulls from this account and from AWS's registry of the region, and pushes to toolkit/*."
    )
