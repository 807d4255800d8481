"""CodeBuild's builds and their logs; its projects are moto's.

What a build's statuses, phases and log are like is from CodeBuild's API reference; that the answer to a token which
is known already is the earlier build is so too ("ensure the idempotency").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moto.codebuild.models import codebuild_backends
from standin_account import AccountRules
from standin_http import Call
from standin_startup import AsRole

from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError

_GROUPS = "/aws/codebuild/"
_PAGE_LINES = 3
_LOOKS_TO_STOP = 2  # a build that is stopped has not ended yet at the first look
_ORDER = ("SUBMITTED", "QUEUED", "PROVISIONING", "DOWNLOAD_SOURCE", "INSTALL", "PRE_BUILD", "BUILD", "POST_BUILD")


@dataclass
class BuildScript:
    """How builds go: each look shows the next phase, and after the last one `status`, which `phase` ended with.

    `log` is there once a machine is; its last line comes after the end, when somebody has already read up to it.
    """

    status: str = "SUCCEEDED"
    phase: str = "POST_BUILD"
    message: str = ""
    log: Sequence[str] = ("[Container] Entering phase BUILD",)

    @property
    def phases(self) -> Sequence[str]:
        """Those that come."""
        return _ORDER[1 : _ORDER.index(self.phase) + 1]


@dataclass
class _Build:
    id: str
    script: BuildScript
    request: dict[str, Any]
    looks: int = 0
    ended: str = ""
    is_read: bool = False
    is_run: bool = False
    stopped_at: int = 0


@dataclass
class CodeBuild:
    """`script` is how the next builds go; `started` are the requests of those that were started."""

    account: AccountRules
    script: BuildScript = field(default_factory=BuildScript)
    _builds: dict[str, _Build] = field(default_factory=dict)

    @property
    def operations(self) -> dict[str, Any]:
        """By their names in the journal."""
        return {
            "codebuild:CreateProject": self._create,
            "codebuild:StartBuild": self._start,
            "codebuild:BatchGetBuilds": self._get,
            "codebuild:StopBuild": self._stop,
            "codebuild:ListBuildsForProject": self._list,
            "logs:GetLogEvents": self._log,
        }

    @property
    def started(self) -> list[dict[str, Any]]:
        """Requests, in their order."""
        return [build.request for build in self._builds.values()]

    def run(self, region: str, machine: Callable[[Mapping[str, Any], Mapping[str, Any]], BuildScript]) -> None:
        """Have builds that are under way and were not run yet go as `machine` finds, which gets project and request."""
        for build in self._builds.values():
            if not (build.is_run or build.ended or build.script.status != "SUCCEEDED"):
                project = codebuild_backends[ACCOUNT][region].codebuild_projects[build.request["projectName"]]
                build.is_run, build.script = True, machine(project.project_metadata, build.request)

    def _list(self, call: Call) -> object:
        """The newest first, a page."""
        project = call.request["projectName"]
        if project not in codebuild_backends[ACCOUNT][call.region].codebuild_projects:
            raise ServiceError(f"Project cannot be found: {project}", code="ResourceNotFoundException")
        return {"ids": [name for name, item in self._builds.items() if item.request["projectName"] == project][::-1]}

    def _start(self, call: Call) -> object:
        name, token = call.request["projectName"], call.request.get("idempotencyToken")
        project = codebuild_backends[ACCOUNT][call.region].codebuild_projects.get(name)
        if project is None:
            raise ServiceError(f"Project cannot be found: {name}", code="ResourceNotFoundException")
        known = next((item for item in self._builds.values() if item.request.get("idempotencyToken") == token), None)
        if known and known.request != call.request:
            raise ServiceError("Parameter mismatch", code="InvalidInputException")  # unverified wording
        if known is None:
            script = self._as_its_role(call, project.service_role)
            known = _Build(f"{name}:{len(self._builds) + 1}", script, call.request)
            self._builds[known.id] = known
        return {"build": self._described(known, project.service_role)}

    def _as_its_role(self, call: Call, arn: str) -> BuildScript:
        """How the build goes: not well if its role may not do what it takes."""
        role = AsRole(self.account.iam, Region(call.region), arn)
        variables = {item["name"]: item["value"] for item in call.request.get("environmentVariablesOverride", [])}
        repository = variables.get("DESTINATION", "/").partition("/")[2].partition(":")[0]
        allowed = [
            role.get(f"s3://{call.request.get('sourceLocationOverride', '')}", "GetObject", "GetObjectVersion"),
            role.write_log(f"{_GROUPS}{call.request['projectName']}", "1", lists=False),
            not role.pull(variables.get("BASE_IMAGE", "")),
            not repository or not role.push(repository),
        ]
        return self.script if all(allowed) else BuildScript("FAILED", "DOWNLOAD_SOURCE", "AccessDenied")

    def _create(self, call: Call) -> object:
        """CodeBuild takes the role at once."""
        role = call.request["serviceRole"]
        if not self.account.iam.exists(role):
            message = f"CodeBuild is not authorized to perform: sts:AssumeRole on {role}"
            raise ServiceError(message, code="InvalidInputException")
        return _create(call)

    def _get(self, call: Call) -> object:
        found = [self._builds[identity] for identity in call.request["ids"]]
        project = codebuild_backends[ACCOUNT][call.region].codebuild_projects[found[0].request["projectName"]]
        for build in found:
            build.looks += 1
            if build.looks == build.stopped_at:
                build.ended = build.ended or "STOPPED"
            if build.looks > len(build.script.phases) and not build.ended:
                build.ended = build.script.status
        return {"builds": [self._described(build, project.service_role) for build in found]}

    def _stop(self, call: Call) -> object:
        build = self._builds.get(call.request["id"])
        if build is None:
            raise ServiceError(f"Build cannot be found: {call.request['id']}", code="ResourceNotFoundException")
        build.stopped_at = build.looks + _LOOKS_TO_STOP
        return {"build": {"id": build.id}}

    def _described(self, build: _Build, role: str) -> dict[str, Any]:
        """As BatchGetBuilds shows it. The log's name comes with the machine."""
        reached = build.script.phases[: max(1, build.looks)]
        phases: list[dict[str, Any]] = [{"phaseType": name, "phaseStatus": "SUCCEEDED"} for name in reached]
        if build.ended:
            contexts = [{"statusCode": "COMMAND_EXECUTION_ERROR", "message": build.script.message}]
            phases[-1] |= {"phaseStatus": build.ended, "contexts": contexts if build.script.message else []}
            phases.append({"phaseType": "COMPLETED"})
        else:
            del phases[-1]["phaseStatus"]
        log = {"groupName": _GROUPS + build.request["projectName"], "streamName": _stream(build)}
        return {
            "id": build.id,
            "projectName": build.request["projectName"],
            "buildStatus": build.ended or "IN_PROGRESS",
            "buildComplete": bool(build.ended),
            "currentPhase": phases[-1]["phaseType"],
            "phases": phases,
            "serviceRole": role,
            "source": {"type": "S3", "location": build.request.get("sourceLocationOverride", "")},
            "logs": log if "PROVISIONING" in reached else {},
        }

    def _log(self, call: Call) -> object:
        """A page of a few lines; the same token again says that it was the last."""
        if not call.request["logGroupName"].startswith(_GROUPS):
            return None
        (build,) = (item for item in self._builds.values() if _stream(item) == call.request["logStreamName"])
        if "INSTALL" not in build.script.phases[: build.looks] and not build.ended:
            raise ServiceError("The specified log stream does not exist.", code="ResourceNotFoundException")
        lines = build.script.log if build.is_read else build.script.log[:-1]
        start = int(call.request.get("nextToken", "f/0").removeprefix("f/"))
        build.is_read = bool(build.ended) and start == len(build.script.log) - 1
        page = lines[start : start + _PAGE_LINES]
        events = [{"timestamp": 0, "ingestionTime": 0, "message": f"{line}\n"} for line in page]
        token = f"f/{start + len(page)}"
        return {"events": events, "nextForwardToken": token, "nextBackwardToken": "b/0"}


def _stream(build: _Build) -> str:
    """A log stream has no colon in its name; CodeBuild takes what comes after the project's name."""
    return build.id.rpartition(":")[2]


def _create(call: Call) -> object:
    """A project, where moto wants a location that AWS does not: of no source, and of a pipeline's."""
    request = call.request
    if "location" in request["source"] and request["artifacts"]["type"] != "CODEPIPELINE":
        return None
    project = codebuild_backends[ACCOUNT][call.region].create_project(
        project_name=request["name"],
        description=request.get("description"),
        project_source=request["source"],
        artifacts=request["artifacts"],
        environment=request["environment"],
        service_role=request["serviceRole"],
        tags=request.get("tags"),
        cache=request.get("cache"),
        timeout=request.get("timeoutInMinutes"),
        queued_timeout=request.get("queuedTimeoutInMinutes"),
        source_version=request.get("sourceVersion"),
        logs_config=request.get("logsConfig"),
        vpc_config=request.get("vpcConfig"),
    )
    return {"project": project}
