"""SageMaker's training jobs, each going as a script says, and what their containers leave in S3 and in the log.

Rules are those of the API reference of CreateTrainingJob and of botocore's model of it; messages whose wording could
not be verified are marked so. moto's jobs are Completed at once, and keep no environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moto.logs.models import logs_backends
from moto.s3.models import s3_backends
from standin_account import AccountRules
from standin_http import Call
from standin_startup import AsRole

from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError, now
from toolkit.platforms.local.resources import page

GROUP = "/aws/sagemaker/TrainingJobs"
_ENDED = ("Completed", "Failed", "Stopped", "MaxRuntimeExceeded")
_STATUS = {"Stopping": "Stopping", "MaxRuntimeExceeded": "Stopped", **{name: name for name in _ENDED[:3]}}

Container = Callable[[Mapping[str, str]], Mapping[str, bytes]]
"""Of a job's environment, the files that its container leaves in /opt/ml/checkpoints."""

Model = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Of the files in /opt/ml/checkpoints, those that its container leaves in /opt/ml/model."""


@dataclass(frozen=True)
class JobScript:
    """Secondary statuses in order, one more with each Describe; what the container writes; why it failed."""

    stages: Sequence[str] = ("Starting", "DownloadingTrainingImage", "Training", "Uploading", "Completed")
    log: Sequence[str] = ()
    reason: str = ""


@dataclass
class _Job:
    request: dict[str, Any]
    region: str
    script: JobScript
    created: float
    seen: list[tuple[str, float]]
    ahead: list[str]

    @property
    def stage(self) -> str:
        return self.seen[-1][0]

    @property
    def status(self) -> str:
        return _STATUS.get(self.stage, "InProgress")


@dataclass
class Training:
    """`script` is how the next jobs go, `container` and `model` what they leave.

    `started` are the requests of those there were.
    """

    account: AccountRules
    script: JobScript = field(default_factory=JobScript)
    container: Container = lambda _: {}
    model: Model = lambda _: {}
    _jobs: dict[tuple[str, str], _Job] = field(default_factory=dict)

    @property
    def operations(self) -> dict[str, Any]:
        """By their names in the journal."""
        return {
            "sagemaker:CreateTrainingJob": self._create,
            "sagemaker:DescribeTrainingJob": self._describe,
            "sagemaker:ListTrainingJobs": self._list,
            "sagemaker:StopTrainingJob": self._stop,
            "sagemaker:ListTags": self._tags,
        }

    @property
    def started(self) -> list[dict[str, Any]]:
        """Requests, in their order."""
        return [job.request for job in self._jobs.values()]

    @property
    def running(self) -> list[str]:
        """Names of jobs that cost money."""
        return [name for (_, name), job in self._jobs.items() if job.status == "InProgress"]

    def hurry(self) -> None:
        """Bring what trains near its end: the next Describe shows the stage after."""
        for job in self._jobs.values():
            job.ahead = [stage for stage in job.ahead if stage != "Training"]

    def _create(self, call: Call) -> object:
        request, region = call.request, Region(call.region)
        name = request["TrainingJobName"]
        if (call.region, name) in self._jobs:
            raise ServiceError(
                "Job name must be unique within an AWS account and region, and a training job with this name already "
                f"exists ({_arn(call.region, name)})",
                code="ResourceInUse",
            )
        container = {"Image": request["AlgorithmSpecification"]["TrainingImage"]}
        if "TrainingImageConfig" in request["AlgorithmSpecification"]:
            container["ImageConfig"] = {"RepositoryAccessMode": "Vpc"}
        self.account.examine_job(region, request["RoleArn"], container, _inputs(request))
        script = self._as_its_role(region, request)
        first, *ahead = script.stages
        self._jobs[call.region, name] = _Job(request, call.region, script, now(), [(first, now())], ahead)
        return {"TrainingJobArn": _arn(call.region, name)}

    def _as_its_role(self, region: Region, request: Mapping[str, Any]) -> JobScript:
        """How the job goes: not well if its role may not do what it takes. Checkpoints are read by the next attempt."""
        role = AsRole(self.account.iam, region, request["RoleArn"])
        output, resources = request["OutputDataConfig"], request["ResourceConfig"]
        checkpoints = [request["CheckpointConfig"]["S3Uri"]] if "CheckpointConfig" in request else []
        why = [
            role.pull(request["AlgorithmSpecification"]["TrainingImage"]),
            role.download([*_inputs(request), *checkpoints]),
            role.join(request.get("VpcConfig")),
            role.use_key(resources.get("VolumeKmsKeyId"), "CreateGrant"),
            # botocore, OutputDataConfig.KmsKeyId: "must include permissions to call kms:Encrypt"; S3: GenerateDataKey.
            role.use_key(output.get("KmsKeyId"), "Encrypt", "GenerateDataKey", "Decrypt"),
            *("Failed to upload." for uri in (_artifacts(request), *checkpoints) if not role.write(uri, "1")),
        ]
        role.publish()
        writes = role.write_log(GROUP, f"{request['TrainingJobName']}/algo-1-1")
        script = self.script if writes else replace(self.script, log=())
        reason = next(filter(None, why), "")
        return JobScript(("Starting", "Failed"), reason=f"ClientError: {reason}") if reason else script

    def _describe(self, call: Call) -> object:
        job = self._find(call)
        answer = _described(job)
        self._step(job)
        return answer

    def _list(self, call: Call) -> object:
        summaries = [_summary(job) for job in self._jobs.values() if job.region == call.region]
        found = page("TrainingJob", summaries, call.request)
        return {"TrainingJobSummaries": found.pop("TrainingJobs"), **found}

    def _stop(self, call: Call) -> object:
        job = self._find(call)
        if job.status != "InProgress":  # unverified wording
            raise ServiceError(f"The request was rejected because the training job is in status {job.status}.")
        job.seen.append(("Stopping", now()))
        job.ahead = ["Stopped"]
        return {}

    def _tags(self, call: Call) -> object:
        """None for what is no job: SageMaker's other tags are elsewhere."""
        kind, _, name = call.request["ResourceArn"].rpartition(":")[2].partition("/")
        job = self._jobs.get((call.region, name)) if kind == "training-job" else None
        return {"Tags": job.request.get("Tags", [])} if job else None

    def _find(self, call: Call) -> _Job:
        job = self._jobs.get((call.region, call.request["TrainingJobName"]))
        if job is None:
            raise ServiceError("Requested resource not found.")
        return job

    def _step(self, job: _Job) -> None:
        """The next stage: in Training the container writes its log, and its files are in S3 when it is over.

        An interrupted job on spot instances (Developer guide, "Managed Spot Training") leaves its checkpoints too.
        """
        if not job.ahead:
            return
        before, after = job.stage, job.ahead.pop(0)
        if before == after:
            return
        if before == "Training" and after in ("Interrupted", "Uploading", "Completed"):
            self._leave_files(job)
        if before == "Training" and after in ("Uploading", "Completed"):
            self._leave_model(job)
        job.seen.append((after, now()))
        if after == "Training":
            self._write_log(job)

    def _leave_files(self, job: _Job) -> None:
        bucket, _, prefix = job.request["CheckpointConfig"]["S3Uri"].removeprefix("s3://").partition("/")
        backend = s3_backends[ACCOUNT][Region(job.region).partition]
        for name, content in self.container(job.request.get("Environment", {})).items():
            backend.put_object(bucket, f"{prefix.rstrip('/')}/{name}", content)

    def _leave_model(self, job: _Job) -> None:
        """OutputDataConfig with CompressionType NONE: files below one prefix (API reference of OutputDataConfig)."""
        backend = s3_backends[ACCOUNT][Region(job.region).partition]
        bucket, _, prefix = job.request["CheckpointConfig"]["S3Uri"].removeprefix("s3://").partition("/")
        keys = [key for key in backend.get_bucket(bucket).keys.values() if key.name.startswith(prefix)]
        kept = {key.name.removeprefix(prefix).strip("/"): key.value for key in keys}
        bucket, _, prefix = _artifacts(job.request).removeprefix("s3://").partition("/")
        for name, content in self.model(kept).items():
            backend.put_object(bucket, f"{prefix}/{name}", content)

    def _write_log(self, job: _Job) -> None:
        backend, stream = logs_backends[ACCOUNT][job.region], f"{job.request['TrainingJobName']}/algo-1-1"
        if GROUP not in backend.groups:
            backend.create_log_group(GROUP, {})
        backend.create_log_stream(GROUP, stream)
        moment = int(now() * 1000)
        backend.put_log_events(GROUP, stream, [{"timestamp": moment, "message": line} for line in job.script.log])


def _described(job: _Job) -> dict[str, Any]:
    transitions = [{"Status": stage, "StartTime": began} for stage, began in job.seen]
    kept = {key: value for key, value in job.request.items() if key != "Tags"}
    reason = {"FailureReason": job.script.reason} if job.status == "Failed" else {}
    return {
        **kept,
        **_summary(job),
        **reason,
        "SecondaryStatusTransitions": transitions,
        "ModelArtifacts": {"S3ModelArtifacts": _artifacts(job.request)},
    }


def _inputs(request: Mapping[str, Any]) -> list[str]:
    """The addresses of a job's channels in S3."""
    data = [channel["DataSource"] for channel in request.get("InputDataConfig", [])]
    return [source["S3DataSource"]["S3Uri"] for source in data if "S3DataSource" in source]


def _artifacts(request: Mapping[str, Any]) -> str:
    end = "output/model" if request["OutputDataConfig"].get("CompressionType") == "NONE" else "output/model.tar.gz"
    return f"{request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/{end}"


def _summary(job: _Job) -> dict[str, Any]:
    name = job.request["TrainingJobName"]
    return {
        "TrainingJobName": name,
        "TrainingJobArn": _arn(job.region, name),
        "CreationTime": job.created,
        "TrainingJobStatus": job.status,
        "SecondaryStatus": job.stage,
    }


def _arn(region: str, name: str) -> str:
    return Region(region).arn("training-job", name)
