"""Build a recipe's image and bring it into the account's registry, with whichever builder there is.

CodeBuild is for who has no Docker: any Dockerfile, on a machine of AWS's, its log followed line by line.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from botocore.exceptions import ClientError

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
from toolkit.images.evidence import attach, sign, verify
from toolkit.images.inventory import bill_of_materials, described_wheels, provenance
from toolkit.images.publish import publish, staging_reference
from toolkit.images.reference import Reference, parse
from toolkit.images.referrers import Referrers
from toolkit.images.registry import Registry
from toolkit.images.spec import Builder, ImageSpec
from toolkit.platforms.image import spec_of
from toolkit.platforms.sagemaker import codebuild_project
from toolkit.platforms.sagemaker.aws_errors import is_denied, is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import PROJECT, SOURCES, ensure_project
from toolkit.platforms.sagemaker.images import ECR_HOST, registry_access, remove_staged
from toolkit.platforms.sagemaker.observe import log_pages
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.recipe.content import digest
from toolkit.text import without_colours

if TYPE_CHECKING:
    from types_boto3_codebuild.type_defs import BuildPhaseTypeDef, BuildTypeDef

    from toolkit.images.signing import PublicKey, SigningKey  # imports what only the extra `sign` has

# A build takes minutes, its log is to be read as it comes, and a look costs two calls of an account that has others.
_POLL_SECONDS = 5.0
_KEPT_LINES = 200
_SHOWN_LINES = 8
_TOKEN_CHARACTERS = 32
# AWS knows a token for five minutes; more failed builds of the same content than that do not fit in.
_REMEMBERED_BUILDS = 5
_AGENT = "[Container]"  # how lines begin that are CodeBuild's own
_REFUSED = re.compile(r"denied|not authorized|no basic auth|403 forbidden", re.I)
_ROOM = f"Give the project {PROJECT} a larger compute type, or make the image smaller."
_HINTS = {
    "TIMED_OUT": f"Give the project {PROJECT} more minutes (timeoutInMinutes), or do less in `container.dockerfile`.",
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
        ensure_project(self.clients, log, self.sleep)
        bucket = bucket_name(self.clients.account)
        with build_context(spec) as context:
            archive = context.parent / "source.zip"
            key = f"{SOURCES}{pack(context, archive)}.zip"
            self.clients.s3.upload_file(str(archive), bucket, key)
        request = {
            "projectName": PROJECT,
            "sourceLocationOverride": f"{bucket}/{key}",
            "environmentVariablesOverride": [{"name": name, "value": value} for name, value in variables.items()],
        }
        identity = self._start(request)
        tail = _Tail(self.clients, log)
        try:
            build = self._follow(identity, tail)
        except KeyboardInterrupt:
            self._stop(identity, log)
            self.clients.s3.delete_object(Bucket=bucket, Key=key)
            raise
        self.clients.s3.delete_object(Bucket=bucket, Key=key)
        if build["buildStatus"] != "SUCCEEDED":
            raise _failure(build, tuple(tail.lines), spec, target)
        with Registry(target.registry, self.credentials) as registry:
            pushed = find_image(registry, staging_reference(target, identity.rpartition(":")[2]))
            return publish(registry, target, pushed.as_schema_2())

    def _start(self, request: Mapping[str, Any]) -> str:
        """Start a build, or take up the one that an earlier try of the same content has started; its id."""
        codebuild, token, identity = self.clients.codebuild, digest(request), ""
        for _ in range(_REMEMBERED_BUILDS):
            answer = codebuild.start_build(**request, idempotencyToken=token[:_TOKEN_CHARACTERS])
            identity = answer["build"]["id"]
            build = self._look(identity)
            # None has ended at the first look: one that has is an earlier try's.
            if not build["buildComplete"] or build["buildStatus"] == "SUCCEEDED":
                break
            token = digest([token, identity])
        return identity

    def _follow(self, identity: str, tail: _Tail) -> BuildTypeDef:
        """The build when it has ended and its log has been read to the end."""
        while True:
            build = self._look(identity)
            tail.read(build)
            if build["buildComplete"]:
                break
            self.sleep(_POLL_SECONDS)
        self.sleep(_POLL_SECONDS)  # its last lines, which say why, come a little later than its end
        tail.read(build)
        return build

    def _look(self, identity: str) -> BuildTypeDef:
        (build,) = self.clients.codebuild.batch_get_builds(ids=[identity])["builds"]
        return build

    def _stop(self, identity: str, log: Log) -> None:
        try:
            self.clients.codebuild.stop_build(id=identity)
        except ClientError as error:
            log(f"cannot stop the build {identity}, which may still be running: {error}")


@dataclass
class _Tail:
    """A build's log: each line goes to `log` once, and the last ones are kept."""

    clients: Clients
    log: Log
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    _token: str | None = None
    _phase: str = ""
    _is_closed: bool = False

    def read(self, build: BuildTypeDef) -> None:
        """Take what is new, to the last page; before there is a log, the name of the phase."""
        log = build.get("logs", {})
        if build["currentPhase"] != self._phase:
            self._phase = build["currentPhase"]
            self.log(f"codebuild: {self._phase}")
        if self._is_closed or "streamName" not in log:
            return
        try:
            self._take(log["groupName"], log["streamName"])
        except ClientError as error:
            if is_denied(error):
                self._is_closed = True
                self.log("codebuild: you may not read its log (logs:GetLogEvents)")
            elif not is_missing(error):  # its stream comes with its machine
                raise

    def _take(self, group: str, stream: str) -> None:
        for page in log_pages(self.clients, group, stream, self._token):
            for line in [line for event in page["events"] for line in without_colours(event["message"]).splitlines()]:
                self.lines.append(line)
                self.log(line)
            self._token = page["nextForwardToken"]


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
    status, phase = build["buildStatus"], _failed_phase(build)
    said = [item.get("message", "") for item in phase.get("contexts", [])]
    ended = Ended(1, tuple(line for line in lines if line.strip() and not line.startswith(_AGENT)) or tuple(said))
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


def _failed_phase(build: BuildTypeDef) -> BuildPhaseTypeDef:
    went_well = (None, "SUCCEEDED", "IN_PROGRESS")
    none: BuildPhaseTypeDef = {}
    return next((item for item in build.get("phases", []) if item.get("phaseStatus") not in went_well), none)


def _role_hint(build: BuildTypeDef) -> str:
    role = build.get("serviceRole", f"the role of the project {PROJECT}").rpartition("/")[2]
    return (
        f"The build runs under {role}: let it pull the base and push to the repository. As the toolkit makes it, it "
        "pulls from this account and from AWS's registry of the region, and pushes to toolkit/*."
    )
