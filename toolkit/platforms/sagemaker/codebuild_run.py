"""Builds of CodeBuild: started, or taken up again, and followed with their log to the end."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.images.command import Log
from toolkit.platforms.sagemaker.aws_errors import is_denied, is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.observe import log_pages
from toolkit.platforms.sagemaker.rules.names import bucket_name
from toolkit.recipe.content import digest
from toolkit.text import without_colours

if TYPE_CHECKING:
    from types_boto3_codebuild.type_defs import BuildPhaseTypeDef, BuildTypeDef

# A build takes minutes, its log is to be read as it comes, and a look costs two calls of an account that has others.
_POLL_SECONDS = 5.0
_KEPT_LINES = 200
_TOKEN_CHARACTERS = 32
# AWS knows a token for five minutes; more failed builds of the same content than that do not fit in.
_REMEMBERED_BUILDS = 5
_AGENT = "[Container]"  # how lines begin that are CodeBuild's own


@dataclass(frozen=True)
class Builds:
    """Builds of the project of a name. `log` gets their lines, `sleep` waits between two looks at one."""

    clients: Clients
    project: str
    log: Log
    sleep: Callable[[float], None] = time.sleep

    @property
    def bucket(self) -> str:
        """Where their sources are."""
        return bucket_name(self.clients.account)

    def start(self, source: str) -> str:
        """Start a build of that object; its id."""
        return self._start(self._of(source), uuid.uuid4().hex)

    def start_once(self, source: str, variables: Mapping[str, str]) -> str:
        """Start a build of that object, or take up what an earlier try of the same has started or done; its id."""
        request = {
            **self._of(source),
            "environmentVariablesOverride": [{"name": name, "value": value} for name, value in variables.items()],
        }
        token, identity = digest(request), ""
        for _ in range(_REMEMBERED_BUILDS):
            identity = self._start(request, token[:_TOKEN_CHARACTERS])
            build = self._look(identity)
            # None has ended at the first look: one that has is an earlier try's.
            if not build["buildComplete"] or build["buildStatus"] == "SUCCEEDED":
                break
            token = digest([token, identity])
        return identity

    def under_way(self, source: str) -> str | None:
        """The id of a build of that object that has not ended yet, however long ago it was started."""
        try:
            newest = self.clients.codebuild.list_builds_for_project(projectName=self.project, sortOrder="DESCENDING")
        except ClientError as error:
            if is_missing(error):  # the project, and its builds with it
                return None
            raise
        if not newest["ids"]:
            return None
        builds = self.clients.codebuild.batch_get_builds(ids=newest["ids"])["builds"]
        wanted = f"{self.bucket}/{source}"
        running = (build for build in builds if not build["buildComplete"])
        return next((build["id"] for build in running if build["source"].get("location") == wanted), None)

    def follow(self, identity: str, source: str) -> tuple[BuildTypeDef, tuple[str, ...]]:
        """The build when it has ended, and the last lines of its log. Its source is removed.

        Ctrl-C stops the build. Whatever else ends us lets it go on.
        """
        tail = _Tail(self.clients, self.log)
        try:
            build = self._to_its_end(identity, tail)
        except KeyboardInterrupt:
            self._stop(identity)
            self.clients.s3.delete_object(Bucket=self.bucket, Key=source)
            raise
        self.clients.s3.delete_object(Bucket=self.bucket, Key=source)
        return build, tuple(tail.lines)

    def end(self, identity: str) -> None:
        """Stop a build, and return when it does nothing more."""
        self.clients.codebuild.stop_build(id=identity)
        while not self._look(identity)["buildComplete"]:
            self.sleep(_POLL_SECONDS)

    def _of(self, source: str) -> dict[str, Any]:
        return {"projectName": self.project, "sourceLocationOverride": f"{self.bucket}/{source}"}

    def _start(self, request: Mapping[str, Any], token: str) -> str:
        """Start a build. Of a request whose answer was lost, AWS knows the token when boto3 sends it again."""
        return self.clients.codebuild.start_build(**request, idempotencyToken=token)["build"]["id"]

    def _to_its_end(self, identity: str, tail: _Tail) -> BuildTypeDef:
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

    def _stop(self, identity: str) -> None:
        try:
            self.clients.codebuild.stop_build(id=identity)
        except ClientError as error:
            self.log(f"cannot stop the build {identity}, which may still be running: {error}")


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


def failed_phase(build: BuildTypeDef) -> BuildPhaseTypeDef:
    """The phase that a build ended in, an empty one where none says so."""
    went_well = (None, "SUCCEEDED", "IN_PROGRESS")
    none: BuildPhaseTypeDef = {}
    return next((item for item in build.get("phases", []) if item.get("phaseStatus") not in went_well), none)


def own_lines(build: BuildTypeDef, lines: tuple[str, ...]) -> tuple[str, ...]:
    """What was written in the build; where nothing was, what CodeBuild says of the phase that failed."""
    said = [item.get("message", "") for item in failed_phase(build).get("contexts", [])]
    return tuple(line for line in lines if line.strip() and not line.startswith(_AGENT)) or tuple(said)
