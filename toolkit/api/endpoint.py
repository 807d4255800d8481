"""The handle of an endpoint: chat, stream, logs, metrics, prove, destroy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.waiter import EndpointStatus, wait_in_service
from toolkit.display import Fragment, Tone, card, dollars_per_hour, facts, in_tone, verbatim
from toolkit.endpoint.access import ConnectInfo
from toolkit.endpoint.generation import AsyncStream, Generation, Stream
from toolkit.endpoint.metrics import Metrics
from toolkit.endpoint.platform import read_log
from toolkit.endpoint.request import ChatOptions, Message, chat_body
from toolkit.errors import MissingPackage, ToolkitError, UsageError
from toolkit.measure.arm import Served
from toolkit.measure.design import Design
from toolkit.measure.report import BenchReport
from toolkit.planning.plan import Plan
from toolkit.text import inert

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI
    from sagemaker.core.resources import Endpoint as SdkEndpoint
    from sagemaker.core.resources import EndpointConfig as SdkEndpointConfig
    from sagemaker.core.resources import Model as SdkModel

Route = Literal["invocations", "openai"]
"""The route of a request: the platform's own API, or the endpoint's OpenAI route."""


@dataclass(frozen=True, repr=False)
class Endpoint(Served):
    """The handle of an endpoint. `destroyer` removes what has its name."""

    destroyer: Callable[[str], Plan] = field(kw_only=True)

    def chat(
        self, prompt: str | Sequence[Message], *, via: Route = "invocations", **options: Unpack[ChatOptions]
    ) -> Generation:
        """The whole answer. Without OpenAI's chat options (`max_tokens`, …) it is greedy and has at most 256 tokens.

        Tokens of a model's reasoning are included in that limit; `.cut` says whether the answer ended there. Raises
        UsageError for an unknown option.
        """
        return self.stream(prompt, via=via, **options).result

    def stream(
        self, prompt: str | Sequence[Message], *, via: Route = "invocations", **options: Unpack[ChatOptions]
    ) -> Stream:
        """The answer piece by piece: iterate over the text, then read `.result` for latencies and acceptance.

        A request that no container has begun to process (throttled, or none is free) is sent up to four times.
        `via="openai"` opens a new connection, which counts in the TTFT.
        """
        body = chat_body(prompt, options)
        if via == "openai":
            from toolkit.endpoint import openai_route  # imports httpx, which most commands do not need

            return Stream(openai_route.stream(self.platform.openai_access(self.address), self.address, body))
        return Stream(self.platform.stream(self.address, body))

    async def achat(self, prompt: str | Sequence[Message], **options: Unpack[ChatOptions]) -> Generation:
        """`chat` for event loops, over the OpenAI route, because boto3 is not asynchronous."""
        return await self.astream(prompt, **options).result()

    def astream(self, prompt: str | Sequence[Message], **options: Unpack[ChatOptions]) -> AsyncStream:
        """`stream` for event loops, over the OpenAI route: `async for piece in …`, then `await ….result()`."""
        from toolkit.endpoint import openai_route

        access = self.platform.openai_access(self.address)
        return AsyncStream(openai_route.stream_async(access, self.address, chat_body(prompt, options)))

    def openai(self) -> OpenAI:
        """An OpenAI client with a fresh token for each request. Needs the `openai` package.

        As `model` pass the recipe's name, or "" for the one model served. Only chat completions work.
        """
        package, access = _openai_package(), self.platform.openai_access(self.address)
        http = package.DefaultHttpxClient(trust_env=not access.loopback, proxy=access.proxy, verify=access.tls or True)
        client: OpenAI = package.OpenAI(base_url=access.base_url, api_key=access.token, http_client=http)
        return client

    def async_openai(self) -> AsyncOpenAI:
        """An `openai.AsyncOpenAI` client of the endpoint."""
        import asyncio

        package, access = _openai_package(), self.platform.openai_access(self.address)
        http = package.DefaultAsyncHttpxClient(
            trust_env=not access.loopback, proxy=access.proxy, verify=access.tls or True
        )

        async def token() -> str:
            return await asyncio.to_thread(access.token)  # getting a token may have to fetch credentials

        client: AsyncOpenAI = package.AsyncOpenAI(base_url=access.base_url, api_key=token, http_client=http)
        return client

    def sagemaker(self) -> SdkEndpoint:
        """The endpoint in the SageMaker Python SDK (v3), as its `sagemaker.core.resources.Endpoint`.

        Needs the extra `sagemaker`. Its `invoke` wants `inference_component_name=endpoint.component` for a component.
        """
        theirs: SdkEndpoint = self.platform.sdk_object(self.name, "endpoint")
        return theirs

    def sagemaker_config(self) -> SdkEndpointConfig:
        """The configuration that it runs, as the SDK's `EndpointConfig`. Needs the extra `sagemaker`."""
        theirs: SdkEndpointConfig = self.platform.sdk_object(self.name, "config")
        return theirs

    def sagemaker_model(self) -> SdkModel:
        """The model of its first variant, or of its component, as the SDK's `Model`. Needs the extra `sagemaker`."""
        theirs: SdkModel = self.platform.sdk_object(self.address, "model")
        return theirs

    def connect_info(self) -> ConnectInfo:
        """What other clients need: base URL, model and a token. Printed, it shows ready lines for some of them."""
        return ConnectInfo(self.component or self.name, self.platform.openai_access(self.address))

    def status(self) -> EndpointStatus:
        """Its current status, and the configuration that it runs."""
        return self.platform.status(self.address)

    def wait(self, timeout: float = 3600, progress: Progress | None = None) -> Endpoint:
        """Wait until it is in service with its current configuration. Raises EndpointFailed or WaitTimeout."""
        names = {address.partition("/")[0] for address in (self.name, self.baseline) if address}
        configs = {name: self.platform.status(name).config for name in names}
        wait_in_service(self.platform, configs, progress or default_progress(), timeout)
        return self

    def logs(self, *, follow: bool = False, since: float | None = None, tail: int | None = None) -> Iterator[str]:
        """Log lines of its containers, oldest first: all, or the last `since` seconds. `follow` waits for more.

        `tail` is the number of the last lines to give. Raises UsageError for `follow` and `tail`.
        """
        if follow and tail:
            raise UsageError("follow and tail cannot be combined", hint="Leave out one of them.")
        if tail:
            first = time.time() - since if since is not None else 0.0
            return (line.text for line in self.platform.last_logs(self.address, tail) if line.time >= first)
        return (line.text for line in read_log(self.platform, self.address, follow, since))

    def metrics(self, minutes: int = 60) -> Metrics:
        """Metrics of the last `minutes`, as far as the platform has them. Raises PlatformError."""
        return self.platform.metrics(self.address, minutes)

    def prove(self, requests: int | None = None, *, max_tokens: int | None = None, seconds: float = 60) -> BenchReport:
        """Measure for a minute, one request at a time: is speculation on, lossless, accepted, and does it pay?

        `requests` are sent to each arm for every workload; None: as many as fit into `seconds`, or fewer if the result
        is clear earlier. Raises InvocationError.
        """
        from toolkit.measure.endpoints import measure_endpoints

        design = Design((), self.workloads, seconds=seconds, requests=requests, max_tokens=max_tokens)
        return measure_endpoints(design, [self], self.twin)

    def destroy(self) -> Plan:
        """Remove it, its baseline and everything created for them. Returns the applied plan."""
        return self.destroyer(self.component or self.name)

    def to_dict(self) -> dict[str, Any]:
        """Name, component, baseline and status."""
        status = self.status()
        names = {"name": self.name, "component": self.component, "baseline": self.baseline}
        return {**names, "status": status.status, "config": status.config}

    def __repr__(self) -> str:
        beside = f", without speculation {self.baseline}" if self.baseline else ""
        return inert(f"<Endpoint {self.address}{beside}>")

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("status", _status_shown(self)),
            ("price", dollars_per_hour(self.price_per_hour)),
            *self.served_with.items(),
            ("without speculation", self.baseline),
        ]
        ask = f'endpoint.chat("Hello")\nendpoint.openai()  # an OpenAI client\n$ toolkit invoke {self.address} "Hello"'
        return card(self.address, facts(rows), verbatim(in_tone(ask, "soft")), says=f"on {self.platform.name}")


def _status_shown(endpoint: Endpoint) -> Fragment:
    """Its status now, or why that is not known: what a notebook shows raises nothing."""
    try:
        status = endpoint.status().status
    except ToolkitError as error:
        return in_tone(f"✘ {error.message}", "bad")
    tone: Tone = "good" if status == "InService" else "bad" if status == "Failed" else "fair"
    return in_tone(f"{'✔ ' if tone == 'good' else ''}{status}", tone)


def _openai_package() -> ModuleType:
    try:
        import openai
    except ImportError as error:
        raise MissingPackage("the openai package is not installed", extra="openai") from error
    return openai
