"""SageMaker's own benchmark of an endpoint: a job that asks it with synthetic prompts, by a tool called AIPerf.

Operations and fields are those of botocore 1.44.5. What the workload's text may say, and where in the output the
figures are, is what sagemaker-serve 1.27 writes and reads (ai_inference_recommender, workload.py and result.py). Not
tried on AWS.
"""

from __future__ import annotations

import io
import json
import tarfile
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.rules.names import bucket_name

_PREFIX = "benchmarks/"
_PROFILE = "profile_export_aiperf.json"
_ENDED = ("Completed", "Failed", "Stopped")
_MEASURE_HERE = "Measure from here alone: leave out `--also aws`; the job in the console shows what it did."
_RIGHTS = (
    "Its role must let sagemaker.amazonaws.com assume it, ask the endpoint (sagemaker:DescribeEndpoint, "
    "sagemaker:InvokeEndpoint, sagemaker:InvokeEndpointWithResponseStream) and write below {output}; name another one "
    "with --also-role."
)


@dataclass(frozen=True)
class BenchmarkJob:
    """Jobs on an endpoint, or on `endpoint/component`. `pause` waits between two looks at one."""

    clients: Clients
    endpoint: str
    role: str
    pause: Callable[[], None]

    def run(self, settings: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
        """The job's profile; nothing of it stays. Raises PlatformError for a job that fails, ClientError."""
        name = f"{self.endpoint.replace('/', '-')[:50]}-{uuid.uuid4().hex[:8]}"
        output = f"s3://{bucket_name(self.clients.account)}/{_PREFIX}{name}/"
        with self._started(name, output, settings):
            described = self._wait(name, progress)
        if described["AIBenchmarkJobStatus"] != "Completed":
            why = described.get("FailureReason") or described["AIBenchmarkJobStatus"]
            raise PlatformError(f"AWS's benchmark of {self.endpoint}: {why}", hint=_RIGHTS.format(output=output))
        return self._profile(output)

    @contextmanager
    def _started(self, name: str, output: str, settings: Mapping[str, Any]) -> Iterator[None]:
        """The workload and the job while it runs; both are removed, and a job that still runs is stopped first."""
        sagemaker: Any = self.clients.sagemaker
        endpoint, _, component = self.endpoint.partition("/")
        target: dict[str, Any] = {"Identifier": endpoint}
        if component:
            target["InferenceComponents"] = [{"Identifier": component}]
        spec = {"benchmark": {"type": "aiperf"}, "parameters": dict(settings), "tooling": {"api_standard": "openai"}}
        role = self.role or self._own_role(endpoint, component)
        workload = {"WorkloadSpec": {"Inline": json.dumps(spec)}}
        sagemaker.create_ai_workload_config(AIWorkloadConfigName=name, AIWorkloadConfigs=workload)
        try:
            sagemaker.create_ai_benchmark_job(
                AIBenchmarkJobName=name,
                AIWorkloadConfigIdentifier=name,
                BenchmarkTarget={"Endpoint": target},
                OutputConfig={"S3OutputLocation": output},
                RoleArn=role,
            )
            try:
                yield
            finally:
                if self._describe(name)["AIBenchmarkJobStatus"] not in _ENDED:
                    sagemaker.stop_ai_benchmark_job(AIBenchmarkJobName=name)
                    while self._describe(name)["AIBenchmarkJobStatus"] not in _ENDED:
                        self.pause()
                sagemaker.delete_ai_benchmark_job(AIBenchmarkJobName=name)
        finally:
            sagemaker.delete_ai_workload_config(AIWorkloadConfigName=name)

    def _own_role(self, endpoint: str, component: str) -> str:
        sagemaker = self.clients.sagemaker
        if component:
            found = sagemaker.describe_inference_component(InferenceComponentName=component)
            model = found["Specification"]["ModelName"]
        else:
            config = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
            (variant, *_) = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
            model = variant["ModelName"]
        return str(sagemaker.describe_model(ModelName=model)["ExecutionRoleArn"])

    def _describe(self, name: str) -> dict[str, Any]:
        sagemaker: Any = self.clients.sagemaker
        return dict(sagemaker.describe_ai_benchmark_job(AIBenchmarkJobName=name))

    def _wait(self, name: str, progress: Progress) -> dict[str, Any]:
        while (described := self._describe(name))["AIBenchmarkJobStatus"] not in _ENDED:
            progress.update(f"job {name} is {described['AIBenchmarkJobStatus']}")
            self.pause()
        return described

    def _profile(self, output: str) -> dict[str, Any]:
        """The figures in the archive that the job left, whose objects are removed. Raises PlatformError without any."""
        archives: dict[str, bytes] = {}
        bucket, _, prefix = output.removeprefix("s3://").partition("/")
        pages = self.clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for key in [item["Key"] for page in pages for item in page.get("Contents", ())]:
            if key.endswith("output.tar.gz"):
                archives[key] = self.clients.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            self.clients.s3.delete_object(Bucket=bucket, Key=key)
        found = next(filter(None, (_member(content, key) for key, content in archives.items())), None)
        if found is None:
            message = f"AWS's benchmark of {self.endpoint} left no {_PROFILE} below {output}"
            raise PlatformError(message, hint=_MEASURE_HERE)
        return found


def _member(archive: bytes, key: str) -> dict[str, Any] | None:
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for member in tar.getmembers():
                file = tar.extractfile(member) if member.name.endswith(_PROFILE) else None
                if file:
                    return dict(documents.decode(file.read().decode("utf-8")))
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, documents.Unfit) as error:
        raise PlatformError(f"{key} of AWS's benchmark cannot be read: {error}", hint=_MEASURE_HERE) from error
    return None
