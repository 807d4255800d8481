"""What a user of the local platform does, shortened for tests."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from processes import until

from toolkit.platforms.local.clients import DaemonSession
from toolkit.platforms.local.daemon import LocalDaemon
from toolkit.platforms.sagemaker.runtime import bearer_token

CONTAINERS = Path(__file__).parent / "containers"
IMAGE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/echo:1.0-cpu"
ROLE = "arn:aws:iam::123456789012:role/execution"


class Account:
    """Clients of a local platform, and what is done with them over and over."""

    def __init__(self, daemon: LocalDaemon) -> None:
        self.daemon = daemon
        self.session = DaemonSession(daemon)
        self.sagemaker = self.session.client("sagemaker")
        self.runtime = self.session.client("sagemaker-runtime")
        self.s3 = self.session.client("s3")
        self.logs = self.session.client("logs")

    def ask_openai(self, name: str, **request: Any) -> httpx.Response:
        """What OpenAI's route answers to a client that carries a bearer token."""
        url = f"{self.daemon.runtime_url}/endpoints/{name}/openai/v1/chat/completions"
        return httpx.post(url, json=request, headers=self.bearer(), trust_env=False)

    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {bearer_token(self.session.get_credentials(), 'us-west-2')}"}

    def post_to_sagemaker(self, operation: str, content: bytes) -> httpx.Response:
        """A request that is signed, but checked by no client."""
        request = AWSRequest(
            "POST", f"{self.daemon.control_url}/", {"X-Amz-Target": f"SageMaker.{operation}"}, data=content
        )
        SigV4Auth(self.session.get_credentials(), "sagemaker", "us-west-2").add_auth(request)
        return httpx.post(str(request.url), content=content, headers=dict(request.headers.items()), trust_env=False)

    def create_model(self, name: str, environment: dict[str, str] | None = None, **container: Any) -> None:
        container = {"Image": IMAGE, "Environment": environment or {}, **container}
        self.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)

    def create_config(self, name: str, model: str, **variant: Any) -> None:
        variant = {"VariantName": "only", "ModelName": model, "InitialInstanceCount": 1, **variant}
        variant = {"InstanceType": "ml.g6e.xlarge", **variant}
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def create(self, name: str, environment: dict[str, str] | None = None, **container: Any) -> None:
        """Model, configuration and endpoint of the same name."""
        self.create_model(name, environment, **container)
        self.create_config(name, name)
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)

    def deploy(self, name: str, environment: dict[str, str] | None = None, **container: Any) -> None:
        """Create it and wait until it is in service."""
        self.create(name, environment, **container)
        assert self.settled(name)["EndpointStatus"] == "InService"

    def settled(self, name: str) -> dict[str, Any]:
        """DescribeEndpoint's answer once nothing is under way any more."""
        return until(lambda: self._if_settled(name))

    def _if_settled(self, name: str) -> dict[str, Any] | None:
        described: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
        return None if described["EndpointStatus"] in ("Creating", "Updating", "RollingBack") else described

    def invoke(self, name: str, **request: Any) -> Any:
        return json.loads(self.runtime.invoke_endpoint(EndpointName=name, Body=json.dumps(request))["Body"].read())

    def stream(self, name: str, **request: Any) -> Generator[bytes, None, None]:
        answer = self.runtime.invoke_endpoint_with_response_stream(EndpointName=name, Body=json.dumps(request))
        with closing(answer["Body"]) as events:
            for event in events:
                yield event["PayloadPart"]["Bytes"]

    def log(self, name: str) -> list[str]:
        """All lines of all containers of that endpoint, oldest stream first; none before the first was written."""
        group = f"/aws/sagemaker/Endpoints/{name}"
        lines: list[str] = []
        try:
            streams = self.logs.describe_log_streams(logGroupName=group)["logStreams"]
        except self.logs.exceptions.ResourceNotFoundException:
            return lines
        for stream in streams:
            page = self.logs.get_log_events(
                logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
            )
            lines += [event["message"] for event in page["events"]]
        return lines
