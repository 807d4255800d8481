"""SageMaker's own benchmark jobs: a workload's configuration, and a job that leaves AIPerf's profile in S3.

Lifecycle and names are those of botocore 1.44.5; the archive is the one that sagemaker-serve 1.27 reads. Messages are
unverified wordings.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.s3.models import s3_backends
from standin_account import AccountRules
from standin_http import Call
from standin_startup import AsRole

from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError, now


def archive(profile: Mapping[str, Any]) -> bytes:
    """What a job leaves."""
    content, text = io.BytesIO(), json.dumps(profile).encode()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        member = tarfile.TarInfo("artifacts/profile_export_aiperf.json")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    return content.getvalue()


@dataclass
class Benchmarks:
    """`profile` gives the figures of an endpoint, as bytes of an archive; `looks` is how often a job is InProgress."""

    account: AccountRules
    profile: Callable[[str], bytes] = lambda _: archive({})
    looks: int = 1
    workloads: dict[str, Any] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: list[dict[str, Any]] = field(default_factory=list)

    @property
    def operations(self) -> dict[str, Any]:
        """By their names in the journal."""
        return {
            "sagemaker:CreateAIWorkloadConfig": self._create_workload,
            "sagemaker:DeleteAIWorkloadConfig": self._delete_workload,
            "sagemaker:CreateAIBenchmarkJob": self._create,
            "sagemaker:DescribeAIBenchmarkJob": self._describe,
            "sagemaker:StopAIBenchmarkJob": self._stop,
            "sagemaker:DeleteAIBenchmarkJob": self._delete,
        }

    def leftovers(self) -> list[str]:
        """What exists here."""
        return [f"AIWorkloadConfig {name}" for name in self.workloads] + [
            f"AIBenchmarkJob {name}" for name in self.jobs
        ]

    def _create_workload(self, call: Call) -> object:
        name = call.request["AIWorkloadConfigName"]
        self.workloads[name] = json.loads(call.request["AIWorkloadConfigs"]["WorkloadSpec"]["Inline"])
        return {"AIWorkloadConfigArn": f"arn:aws:sagemaker:{call.region}:{ACCOUNT}:ai-workload-config/{name}"}

    def _delete_workload(self, call: Call) -> object:
        del self.workloads[call.request["AIWorkloadConfigName"]]
        return {}

    def _create(self, call: Call) -> object:
        request, name = call.request, call.request["AIBenchmarkJobName"]
        if request["AIWorkloadConfigIdentifier"] not in self.workloads:
            raise ServiceError(f"Could not find workload configuration {request['AIWorkloadConfigIdentifier']}.")
        self.started.append({**request, "Workload": self.workloads[request["AIWorkloadConfigIdentifier"]]})
        self.jobs[name] = {**request, "CreationTime": now(), "Left": self.looks, "Status": "InProgress"}
        return {"AIBenchmarkJobArn": _arn(call.region, name)}

    def _describe(self, call: Call) -> object:
        name = call.request["AIBenchmarkJobName"]
        job = self.jobs[name]
        if job["Status"] == "InProgress" and not job["Left"]:
            self._end(Region(call.region), job)
        job["Left"] = max(0, job["Left"] - 1)
        status = job["Status"]
        if status == "Stopping":
            job["Status"] = "Stopped"
        kept = ("AIBenchmarkJobName", "BenchmarkTarget", "OutputConfig", "AIWorkloadConfigIdentifier", "RoleArn")
        described = {key: job[key] for key in (*kept, "CreationTime")}
        reason = {"FailureReason": job["Reason"]} if "Reason" in job else {}
        return {**described, **reason, "AIBenchmarkJobArn": _arn(call.region, name), "AIBenchmarkJobStatus": status}

    def _end(self, region: Region, job: dict[str, Any]) -> None:
        """As its role: without the right to write, it fails."""
        uri = f"{job['OutputConfig']['S3OutputLocation']}{job['AIBenchmarkJobName']}/output/output.tar.gz"
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        if not AsRole(self.account.iam, region, job["RoleArn"]).write(uri, "1"):
            job |= {"Status": "Failed", "Reason": f"AccessDenied: s3:PutObject on {uri}"}
            return
        endpoint = job["BenchmarkTarget"]["Endpoint"]["Identifier"]
        s3_backends[ACCOUNT]["aws"].put_object(bucket, key, self.profile(endpoint))
        job["Status"] = "Completed"

    def _stop(self, call: Call) -> object:
        self.jobs[call.request["AIBenchmarkJobName"]]["Status"] = "Stopping"
        return {"AIBenchmarkJobArn": _arn(call.region, call.request["AIBenchmarkJobName"])}

    def _delete(self, call: Call) -> object:
        name = call.request["AIBenchmarkJobName"]
        if self.jobs[name]["Status"] in ("InProgress", "Stopping"):
            raise ServiceError(f"Job {name} is {self.jobs[name]['Status']}.")
        del self.jobs[name]
        return {}


def _arn(region: str, name: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:ai-benchmark-job/{name}"
