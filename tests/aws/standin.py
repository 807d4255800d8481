"""AWS for tests: a server on loopback for the genuine boto3 client, with SageMaker's life cycles scripted.

    boto3 ──HTTP──> StandIn ── journal, faults ──> SageMaker: the local platform's own service, with
                                               │  components (standin_components), on a scripted host
                                               ──> canned operations that moto lacks (standin_canned, standin_scaling)
                                               ──> moto: S3, IAM, STS, Logs, CloudWatch, ECR, ...

moto's state is global to the process, so that there is one stand-in at a time; `reset()` empties it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from moto.cloudwatch.models import cloudwatch_backends
from moto.moto_api._internal.models import moto_api_backend
from standin_account import AccountRules
from standin_benchmarks import Benchmarks
from standin_caller import accesses_of
from standin_canned import Canned, hub_content
from standin_codebuild import CodeBuild
from standin_components import SageMakerWithComponents
from standin_faults import Crash, CrashPoint, Faults, When, crash_at
from standin_host import CAPACITY, HEALTHY_LOG, PING, Book, Script, ScriptedHost
from standin_hosting import Hosting
from standin_http import Call, HttpAnswer, error, must_be_valid, read_call
from standin_iam import must_fit
from standin_leftovers import leftovers
from standin_refusals import must_be_taken
from standin_roles import Alarms
from standin_runtime import Invocation, ModelError, Reply
from standin_states import World
from standin_training import Training

from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError
from toolkit.platforms.local.control import control_application, control_server

if TYPE_CHECKING:
    from types import TracebackType
    from wsgiref.types import StartResponse, WSGIEnvironment

__all__ = [
    "ACCOUNT",
    "CAPACITY",
    "PING",
    "Call",
    "Crash",
    "CrashPoint",
    "Invocation",
    "Reply",
    "StandIn",
    "When",
    "crash_at",
]

# Reading and building botocore's service models takes a tenth of a second each: all sessions share them.
_LOADER = botocore.session.Session().get_component("data_loader")
_CONFIG = Config(retries={"mode": "standard", "total_max_attempts": 5}, s3={"addressing_style": "path"})
_NO_FILES = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_VARIABLES = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


class StandIn:
    """The stand-in. Usable as a context manager; otherwise `close()` ends its server."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.faults = Faults()
        self.account = AccountRules()
        self._services: dict[str, tuple[SageMakerWithComponents, ScriptedHost]] = {}
        self._lock = threading.RLock()
        self._control = control_application(lambda region: self._in(region)[0])
        self._alarms = Alarms(lambda: self.account.iam, lambda region: self._in(region)[0])
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._server = control_server(self._application, listening)
            self.url = "http://{}:{}".format(*listening.getsockname())
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.reset()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()

    def reset(self) -> None:
        """As new: nothing exists, nothing is scripted, no fault is due, the journal is empty."""
        with self._lock:
            moto_api_backend.reset()
            self._services.clear()
            self.account.reset()
            self._canned = Canned(self.account, lambda region: self._in(region)[0])
            self.faults.clear()
            self.calls.clear()

    def session(self, region: str = "us-west-2") -> boto3.Session:
        """A session whose clients all talk to the stand-in."""
        return _Session(self.url, region)

    def environment(self, region: str = "us-west-2") -> dict[str, str]:
        """Variables that make boto3 in another process talk to the stand-in."""
        return {**_VARIABLES, "AWS_ENDPOINT_URL": self.url, "AWS_REGION": region, "AWS_DEFAULT_REGION": region}

    def script(
        self,
        endpoint: str,
        statuses: Sequence[str],
        reason: str = "",
        logs: Sequence[str] = HEALTHY_LOG,
        *,
        region: str = "us-west-2",
    ) -> None:
        """How the endpoint's next create, update or rescale goes: the n-th Describe sees the n-th status.

        "RollingBack", "InService" is a failed update. `logs` are in CloudWatch Logs from the second status on.
        """
        self._book(region).scripts["endpoint", endpoint] = Script(tuple(statuses), reason, tuple(logs))

    def script_component(
        self,
        component: str,
        statuses: Sequence[str],
        reason: str = "",
        logs: Sequence[str] = HEALTHY_LOG,
        *,
        region: str = "us-west-2",
    ) -> None:
        """The same for an inference component."""
        self._book(region).scripts["inference-component", component] = Script(tuple(statuses), reason, tuple(logs))

    def without_capacity(self, *instance_types: str, region: str = "us-west-2") -> None:
        """From now on AWS has none of these types; without arguments it has all again."""
        lacking = self._book(region).without_capacity
        lacking.update(instance_types)
        if not instance_types:
            lacking.clear()

    def serve(self, container: Callable[[Invocation], Reply]) -> None:
        """What runs behind every endpoint in service from now on; by default it gives the request's body back."""
        self._canned.runtime.container = container

    def put_hub_content(self, name: str, document: Mapping[str, Any] | str, **more: Any) -> None:
        """Put a model into SageMaker's public hub; `more` are other fields of DescribeHubContent's answer."""
        self._canned.hub_contents.append(hub_content(name, document, **more))

    @property
    def prices(self) -> list[dict[str, Any]]:
        """Products as Pricing's GetProducts gives them, to be filled."""
        return self._canned.prices

    @property
    def codebuild(self) -> CodeBuild:
        """Builds of images: how the next ones go, and which were started."""
        return self._canned.codebuild

    @property
    def training(self) -> Training:
        """Training jobs: how the next ones go, and which were started."""
        return self._canned.training

    @property
    def benchmarks(self) -> Benchmarks:
        """SageMaker's own benchmark jobs: what they find, and which were started."""
        return self._canned.benchmarks

    @property
    def promql(self) -> dict[str, float]:
        """Answers to PromQL, to be filled: the value of every query that contains the key."""
        return self._canned.cloudwatch.promql

    def publish(self, data: list[dict[str, Any]], *, region: str = "us-west-2") -> None:
        """Metrics of SageMaker's own, which nobody else may put there; as PutMetricData has them."""
        cloudwatch_backends[ACCOUNT][region].put_metric_data("AWS/SageMaker", data)

    def settle(self) -> None:
        """Bring everything that is under way to the end of its script, as many Describes would."""
        with self._lock:
            for _, host in self._services.values():
                host.settle()

    def leftovers(self) -> list[str]:
        """Everything that exists in the services which the product uses; of SageMaker not what is being deleted."""
        with self._lock:
            found = [*self._canned.leftovers(), *leftovers()]
            for service, host in self._services.values():
                arns = service.tags.all().keys() - host.ending
                found += [f"sagemaker {arn.rpartition(':')[2].replace('/', ' ')}" for arn in arns]
        return sorted(found)

    def _application(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """One call at a time: journal, fault, answer, and the next status of what was described."""
        call = read_call(environ)
        with self._lock:
            self.calls.append(call)
            self.account.iam.tick()
            fault = self.faults.take(call)
            answer = None if fault and fault.when == "before" else self._answer(call, environ)
        if fault:
            if not fault.code:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                raise ConnectionAbortedError("by order of the test")
            answer = error(call.service, fault.code, fault.message, fault.status)
        assert answer is not None
        start_response(answer.status, answer.headers)
        return [answer.body]

    def _answer(self, call: Call, environ: WSGIEnvironment) -> HttpAnswer:
        try:
            self.account.must_be_allowed(call.service, call.operation)
            self.account.iam.must_be_allowed(accesses_of(call))
            must_be_valid(call)
            must_be_taken(call, World(call, self.account, lambda region: self._in(region)[0], self._canned.scaling))
            if str(call) == "sagemaker:DeleteEndpoint":
                self._canned.scaling.must_be_deletable(call)
            if str(call) == "sagemaker:UpdateEndpoint":
                self._canned.scaling.must_be_updatable(call)
            if call.service == "sagemaker" and call.operation in ("UpdateEndpoint", "UpdateInferenceComponent"):
                self._alarms.must_be_visible(call)
            if str(call) == "iam:PutRolePolicy":
                must_fit(call)
            canned = self._canned.answer(call)
        except ModelError as refused:
            return refused.answer()
        except ServiceError as refused:
            return error(call.service, refused.code, str(refused))
        if canned is not None:
            return canned
        answer = HttpAnswer.of(self._control, environ)
        if answer.status.startswith("200"):
            self._went_well(call)
        return answer

    def _went_well(self, call: Call) -> None:
        """What has been described takes its next status; scalable targets go with their endpoint."""
        self.account.iam.changed(call)
        if call.service != "sagemaker":
            return
        host = self._in(call.region)[1]
        if call.operation == "DescribeEndpoint":
            host.described("endpoint", call.request["EndpointName"])
        elif call.operation == "DescribeInferenceComponent":
            host.described("inference-component", call.request["InferenceComponentName"])
        elif call.operation == "DeleteEndpoint":
            self._canned.scaling.endpoint_is_deleted(call)

    def _in(self, region: str) -> tuple[SageMakerWithComponents, ScriptedHost]:
        with self._lock:
            if region not in self._services:
                here = Region(region)
                host = ScriptedHost(here, self.account)
                service = SageMakerWithComponents(here, host)
                host.hosting = Hosting(self.account.iam, here, service)
                self._services[region] = service, host
            return self._services[region]

    def _book(self, region: str) -> Book:
        return self._in(region)[1].book


class _Session(boto3.Session):
    """A session of which nothing leaves this machine."""

    def __init__(self, url: str, region: str) -> None:
        core = botocore.session.Session(session_vars=_NO_FILES)
        core.register_component("data_loader", _LOADER)
        super().__init__("testing", "testing", region_name=region, botocore_session=core)
        self._url = url

    def client(self, *args: Any, config: Config | None = None, **options: Any) -> Any:
        options = {"endpoint_url": self._url, **options}
        merged = _CONFIG.merge(config) if config else _CONFIG
        return super().client(*args, config=merged, **options)  # type: ignore[call-overload]
