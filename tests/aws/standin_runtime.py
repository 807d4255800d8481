"""SageMaker's runtime: invocations of endpoints in service, answered by a function of the test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from standin_components import in_service, is_for_components
from standin_http import Call, HttpAnswer, json_answer

from toolkit.platforms.local import eventstream
from toolkit.platforms.local.aws import ACCOUNT, ServiceError, log_group
from toolkit.platforms.local.service import SageMaker


@dataclass(frozen=True)
class Invocation:
    """What reaches the container. `component` and `variant` are "" where the request names none."""

    endpoint: str
    component: str
    body: dict[str, Any]
    variant: str = ""


@dataclass(frozen=True)
class Reply:
    """What the container answers: its parts come as one body, or as a stream's events."""

    parts: tuple[bytes, ...]
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def echo(invocation: Invocation) -> Reply:
    """The request's own body."""
    return Reply((json.dumps(invocation.body).encode(),))


# SageMaker's own words, as others saw them in 2026-08; the code is unverified.
_NO_COPY = (
    "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress (if "
    "configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
)


class Runtime:
    """`container` is what runs behind every endpoint; tests put their own function there."""

    def __init__(self, sagemaker: Callable[[str], SageMaker]) -> None:
        self.container: Callable[[Invocation], Reply] = echo
        self._sagemaker = sagemaker
        self.operations: Mapping[str, Callable[[Call], object]] = {
            "sagemaker-runtime:InvokeEndpoint": self._invoke,
            "sagemaker-runtime:InvokeEndpointWithResponseStream": self._stream,
            "sagemaker-runtime:OpenAI": self._openai,
        }

    def _invoke(self, call: Call) -> HttpAnswer:
        reply = self._reply(call)
        headers = [("Content-Type", reply.content_type), ("x-Amzn-Invoked-Production-Variant", "AllTraffic")]
        return HttpAnswer("200 OK", [*headers, *reply.headers.items()], b"".join(reply.parts))

    def _stream(self, call: Call) -> HttpAnswer:
        reply = self._reply(call)
        headers = {
            "Content-Type": "application/vnd.amazon.eventstream",
            "X-Amzn-SageMaker-Content-Type": reply.content_type,
            "x-Amzn-Invoked-Production-Variant": "AllTraffic",
            **reply.headers,
        }
        return HttpAnswer("200 OK", list(headers.items()), b"".join(map(eventstream.payload_part, reply.parts)))

    def _openai(self, call: Call) -> HttpAnswer:
        """The container's own answer, whatever it is."""
        reply = self._ask(call)
        headers = [("Content-Type", reply.content_type), *reply.headers.items()]
        return HttpAnswer(f"{reply.status} Answered", headers, b"".join(reply.parts))

    def _reply(self, call: Call) -> Reply:
        reply = self._ask(call)
        if reply.status < 400:
            return reply
        message = b"".join(reply.parts).decode()
        raise ModelError(call.request["EndpointName"], reply.status, message)

    def _ask(self, call: Call) -> Reply:
        request, sagemaker = call.request, self._sagemaker(call.region)
        name, component = request["EndpointName"], request.get("InferenceComponentName", "")
        targets, variant = sagemaker.endpoints.targets(name), request.get("TargetVariant", "")
        if targets is None:
            raise ServiceError(f"Endpoint {name} of account {ACCOUNT} not found.", "ValidationError")
        if variant and variant not in [target.variant for target in targets]:
            raise ServiceError(f"Variant {variant} of endpoint {name} not found.", "ValidationError")
        if component:
            described = sagemaker.answer("DescribeInferenceComponent", {"InferenceComponentName": component})
            if described["RuntimeConfig"] == {"DesiredCopyCount": 0, "CurrentCopyCount": 0}:
                raise ServiceError(_NO_COPY, "ValidationError")
        elif is_for_components(in_service(sagemaker.endpoints, name)):
            raise ServiceError(
                "Inference Component Name header is required for endpoints to which you plan to deploy inference "
                "components. Please include Inference Component Name header or consider using SageMaker models.",
                "ValidationError",  # unverified wording
            )
        return self.container(Invocation(name, component, request["Body"], variant))


class ModelError(ServiceError):
    """The container refused, or broke."""

    def __init__(self, endpoint: str, status: int, message: str) -> None:
        side = "client" if status < 500 else "server"
        group = log_group(endpoint)
        super().__init__(
            f'Received {side} error ({status}) from primary with message "{message}". '
            f"See {group} in account {ACCOUNT} for more information.",
            code="ModelError",
        )
        self.details = {"OriginalStatusCode": status, "OriginalMessage": message, "LogStreamArn": group}

    def answer(self) -> HttpAnswer:
        """As the runtime answers it."""
        answer = json_answer({"Message": str(self), **self.details})
        return HttpAnswer("424 Failed Dependency", [*answer.headers, ("x-amzn-ErrorType", self.code)], answer.body)
