"""The one road against stock moto, in a process of its own, so that our stand-in does not only agree with itself.

moto 5.2.5 lacks four things that the road cannot do without. A front before it makes up for these (`_Front`) and passes
on all else; each of them has a test here that fails when moto has learnt it, and the front's part can go.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from pairs import RECIPE, write_pair

import toolkit
from toolkit.apply.progress import Silent

ON_SAGEMAKER = RECIPE.replace("version: 0.32.0", "version: 0.30.0").replace(
    "{name: local}", "{name: sagemaker, role: create, instance_types: [ml.g6.xlarge], health_check_timeout: 600}"
)
OURS, MOTOS = "ml.g6.xlarge", "ml.g4dn.xlarge"
LOG_GROUP = "/aws/sagemaker/Endpoints/tiny"
# The process tells its port, and ends when its standard input does.
SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class _Front(BaseHTTPRequestHandler):
    """Passes everything on to moto; what moto lacks it says in words that moto knows, or answers itself."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _FrontServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match self.headers.get("X-Amz-Target", ""):
            case "SageMaker.DescribeInferenceComponent":
                missing = {"__type": "ValidationException", "message": "Could not find inference component."}
                self._answer(400, json.dumps(missing).encode())
            case "SageMaker.ListInferenceComponents":
                self._answer(200, b'{"InferenceComponents": []}')
            case "SageMaker.CreateEndpointConfig":
                self._pass_on(body.replace(OURS.encode(), MOTOS.encode()))
            case "SageMaker.UpdateEndpoint":
                self._update(json.loads(body))
            case _:
                self._pass_on(body)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_POST  # noqa: N815 (http.server's names)

    def _update(self, request: dict[str, Any]) -> None:
        """Creating an endpoint once more replaces it in moto; AWS would have kept its tags."""
        arn = f"arn:aws:sagemaker:us-west-2:123456789012:endpoint/{request['EndpointName']}"
        _, tags = self._ask(json.dumps({"ResourceArn": arn}).encode(), "SageMaker.ListTags")
        again = {key: request[key] for key in ("EndpointName", "EndpointConfigName")}
        self._pass_on(json.dumps({**again, "Tags": json.loads(tags)["Tags"]}).encode(), "SageMaker.CreateEndpoint")

    def _pass_on(self, body: bytes, target: str | None = None) -> None:
        answer, content = self._ask(body, target)
        headers = {key: value for key, value in answer.getheaders() if key not in ("Connection", "Date", "Server")}
        self._answer(answer.status, content, headers)

    def _ask(self, body: bytes, target: str | None = None) -> tuple[HTTPResponse, bytes]:
        headers = {**dict(self.headers.items()), "Content-Length": str(len(body))}
        if target:
            headers["X-Amz-Target"] = target
        connection = HTTPConnection("127.0.0.1", self.server.moto_port)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in (headers or {"Content-Length": str(len(content))}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class _FrontServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, moto_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Front)
        self.moto_port = moto_port


@dataclass(frozen=True)
class Moto:
    """moto itself, without the front."""

    port: int

    def client(self, service: str) -> Any:
        url, once = f"http://127.0.0.1:{self.port}", Config(retries={"total_max_attempts": 1})
        return boto3.client(service, endpoint_url=url, config=once)  # type: ignore[call-overload]

    def sagemaker_resources(self) -> list[str]:
        """Names of all models, configurations and endpoints."""
        sagemaker = self.client("sagemaker")
        models = sagemaker.list_models()["Models"]
        configs = sagemaker.list_endpoint_configs()["EndpointConfigs"]
        endpoints = sagemaker.list_endpoints()["Endpoints"]
        return [
            *(item["ModelName"] for item in models),
            *(item["EndpointConfigName"] for item in configs),
            *(item["EndpointName"] for item in endpoints),
        ]

    def config(self) -> str:
        """The configuration that the endpoint has."""
        return str(self.client("sagemaker").describe_endpoint(EndpointName="tiny")["EndpointConfigName"])


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin
        assert server.stdout
        yield int(server.stdout.readline())
        server.stdin.close()


@pytest.fixture
def moto(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moto]:
    """moto, empty; this process reaches it through the front."""
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/moto-api/reset")
    assert connection.getresponse().status == 200
    connection.close()
    front = _FrontServer(port)
    threading.Thread(target=front.serve_forever, args=(0.01,), daemon=True).start()
    variables = {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{front.server_port}",
        "TOOLKIT_POLL_SECONDS": "0.01",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    yield Moto(port)
    front.shutdown()
    front.server_close()


@pytest.fixture
def recipe(moto: Moto, tmp_path: Path) -> Path:
    """A recipe with its models in folders, for SageMaker."""
    path = write_pair(tmp_path)
    path.write_text(ON_SAGEMAKER)
    return path


def test_deploying_twice_makes_one_of_each(recipe: Path, moto: Moto) -> None:
    planned = toolkit.plan(recipe)
    assert {action.verb for action in planned.actions} == {"create"}
    for _ in range(2):
        assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"
        assert toolkit.plan(recipe).changes == []
    in_sagemaker = [a.name for a in planned.actions if a.kind in ("Model", "EndpointConfig", "Endpoint")]
    assert moto.sagemaker_resources() == in_sagemaker


def test_the_weights_are_in_s3_as_they_are_in_the_folders(recipe: Path, moto: Moto) -> None:
    toolkit.deploy(recipe, progress=Silent())
    s3, bucket = moto.client("s3"), "toolkit-123456789012-us-west-2"
    keys = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket, Prefix="weights/")["Contents"]]
    (key,) = [key for key in keys if key.startswith("weights/target-") and key.endswith("model.safetensors")]
    there = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    assert there == (recipe.parent / "target" / "model.safetensors").read_bytes()


def test_the_endpoint_is_listed_with_what_it_runs_on(recipe: Path) -> None:
    toolkit.deploy(recipe, progress=Silent())
    (listed,) = toolkit.endpoints(platform="sagemaker")
    assert (listed.name, listed.status, listed.instances) == ("tiny", "InService", ((MOTOS, 1),))


def test_an_update_is_rolled_back(recipe: Path, moto: Moto) -> None:
    toolkit.deploy(recipe, progress=Silent())
    first = moto.config()
    recipe.write_text(ON_SAGEMAKER.replace("max_model_len: 1024", "max_model_len: 512"))
    toolkit.deploy(recipe, progress=Silent())
    assert moto.config() != first
    toolkit.rollback(recipe, progress=Silent())
    assert moto.config() == first


def test_destroying_leaves_only_the_log(recipe: Path, moto: Moto) -> None:
    toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    assert moto.sagemaker_resources() == []
    assert moto.client("s3").list_buckets()["Buckets"] == []
    assert moto.client("iam").list_roles()["Roles"] == []
    assert moto.client("cloudwatch").describe_alarms()["MetricAlarms"] == []
    assert moto.client("cloudwatch").list_dashboards()["DashboardEntries"] == []
    assert [group["logGroupName"] for group in moto.client("logs").describe_log_groups()["logGroups"]] == [LOG_GROUP]


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("update_endpoint", {"EndpointName": "tiny", "EndpointConfigName": "other"}),
        ("describe_inference_component", {"InferenceComponentName": "tiny"}),
        ("list_inference_components", {}),
    ],
)
def test_moto_still_lacks_an_operation(moto: Moto, operation: str, request_: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(moto.client("sagemaker"), operation)(**request_)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


def test_moto_still_lacks_our_instance_types(moto: Moto) -> None:
    sagemaker = moto.client("sagemaker")
    sagemaker.create_model(ModelName="m", ExecutionRoleArn="arn:aws:iam::123456789012:role/any")
    variant = {"VariantName": "v", "ModelName": "m", "InitialInstanceCount": 1, "InstanceType": OURS}
    with pytest.raises(ClientError, match="failed to satisfy constraint"):
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
