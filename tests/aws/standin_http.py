"""HTTP requests to the stand-in as calls of an AWS operation, and errors as each protocol writes them.

moto knows how to find operation and parameters of a request in every protocol; botocore's models say which there are.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from xml.sax.saxutils import escape

from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from werkzeug.exceptions import NotFound

from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.validation import problems

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication, WSGIEnvironment

_SCOPE = re.compile(r"Credential=[^/]*/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/")
_BEARER = "Bearer sagemaker-api-key-"
_INVOKED = re.compile(
    r"/endpoints/(?P<endpoint>[^/]+)(?:/inference-components/(?P<component>[^/]+))?/"
    r"(?P<route>invocations|invocations-response-stream|async-invocations|openai/v1/chat/completions)"
)
_RUNTIME = {
    "invocations": "InvokeEndpoint",
    "invocations-response-stream": "InvokeEndpointWithResponseStream",
    "async-invocations": "InvokeEndpointAsync",
    "openai/v1/chat/completions": "OpenAI",
}
_NAMED = {
    "InferenceComponentName": "X-Amzn-SageMaker-Inference-Component",
    "TargetVariant": "X-Amzn-SageMaker-Target-Variant",
    "TargetModel": "X-Amzn-SageMaker-Target-Model",
    "TargetContainerHostname": "X-Amzn-SageMaker-Target-Container-Hostname",
    "InputLocation": "X-Amzn-SageMaker-InputLocation",
}
# Signing names that are not botocore's names of the service.
_SERVICES = {"monitoring": "cloudwatch", "servicequotas": "service-quotas", "tagging": "resourcegroupstaggingapi"}
# How services that speak XML call the same errors.
_SHORT_CODES = {
    "AccessDeniedException": "AccessDenied",
    "ExpiredTokenException": "ExpiredToken",
    "ThrottlingException": "Throttling",
}
# What a service calls a request that is not as its model says. Requests to the runtime are read in part only.
_INVALID = {
    "sagemaker": "ValidationException",
    "application-autoscaling": "ValidationException",
    "cloudwatch": "ValidationError",
    "logs": "InvalidParameterException",
    "iam": "ValidationError",
    "s3": "MalformedXML",
    "ecr": "InvalidParameterException",
    "codebuild": "InvalidInputException",
    "pricing": "ValidationException",
    "service-quotas": "ValidationException",
}
_WITH_CONTENT = ("PutObject", "UploadPart")


@dataclass(frozen=True)
class Call:
    """One request. `service` and `operation` are botocore's names, `request` its parameters without bodies of bytes."""

    service: str
    operation: str
    region: str
    request: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.service}:{self.operation}"


@dataclass(frozen=True)
class HttpAnswer:
    """An answer that has not been sent yet."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes

    @classmethod
    def of(cls, application: WSGIApplication, environ: WSGIEnvironment) -> HttpAnswer:
        """What a WSGI application answers."""
        head: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[[bytes], object]:
            head[:] = [status, headers]
            return lambda _: None

        body = b"".join(application(environ, start_response))
        return cls(head[0], head[1], body)


def read_call(environ: WSGIEnvironment) -> Call:
    """What is asked. The body can be read again after."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if environ.get("HTTP_CONTENT_ENCODING") == "gzip":  # botocore's, for large requests of some services
        del environ["HTTP_CONTENT_ENCODING"]
        body = gzip.decompress(body)
        environ["CONTENT_LENGTH"] = str(len(body))
    environ["wsgi.input"] = io.BytesIO(body)
    request = Request(environ)
    region, signed_for = _scope(request.headers.get("Authorization", ""))
    service = _SERVICES.get(signed_for, signed_for)
    if target := request.headers.get("X-Amz-Target"):
        call = Call(service, target.rpartition(".")[2], region, json.loads(body or b"{}"))
    elif invoked := _INVOKED.fullmatch(request.path):
        call = Call("sagemaker-runtime", _RUNTIME[invoked["route"]], region, _invocation(invoked, request, body))
    elif request.path == "/api/v1/query":
        call = Call("cloudwatch", "PromQL", region, {"Body": body.decode()})
    else:
        call = _parsed(service or "sts", region, request)
    environ["wsgi.input"] = io.BytesIO(body)
    return call


def must_be_valid(call: Call) -> None:
    """Raises ServiceError unless the request is as its service's model says."""
    if call.service not in _INVALID or call.operation not in get_service_model(call.service).operation_names:
        return
    shape = get_service_model(call.service).operation_model(call.operation).input_shape
    if shape and (found := list(problems(call.request, shape))):
        words = f"{len(found)} validation error{'s'[: len(found) > 1]} detected: {'; '.join(found)}"
        raise ServiceError(words, code=_INVALID[call.service])


def _scope(authorization: str) -> tuple[str, str]:
    """Region and service that a request was signed for, also in a bearer token for SageMaker's runtime."""
    if authorization.startswith(_BEARER):
        authorization = unquote(base64.b64decode(authorization.removeprefix(_BEARER)).decode())
    scope = _SCOPE.search(authorization)
    return (scope["region"], scope["service"]) if scope else ("us-west-2", "")


def _invocation(invoked: re.Match[str], request: Request, body: bytes) -> dict[str, Any]:
    found = {key: request.headers[name] for key, name in _NAMED.items() if name in request.headers}
    if invoked["component"]:
        found["InferenceComponentName"] = invoked["component"]
    return {"EndpointName": invoked["endpoint"], **found, "Body": json.loads(body or b"{}")}


def _parsed(service: str, region: str, request: Request) -> Call:
    """A call in the query and REST protocols."""
    try:
        operation, path_values = get_service_router(service).match(request)
    except NotFound:
        return Call(service, "Unknown", region, {"Path": request.path})
    protocol = determine_request_protocol(get_service_model(service), request.content_type)
    parsed = PROTOCOL_PARSERS[protocol](operation).parse(
        {
            "method": request.method,
            "values": request.values,
            "headers": request.headers,
            "body": b"" if service == "s3" and operation.name in _WITH_CONTENT else request.get_data(),
            "url_path": request.path,
            "url_params": path_values,
        }
    )
    return Call(service, operation.name, region, parsed)


def error(service: str, code: str, message: str, status: int = 400) -> HttpAnswer:
    """An error in the service's protocol."""
    protocol = str(get_service_model(service).protocol)
    if (service, code) == ("s3", "ThrottlingException"):
        code, status = "SlowDown", 503  # a HEAD has no body to say it in
    if protocol in ("rest-xml", "query", "ec2"):
        code = _SHORT_CODES.get(code, code)
        text = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
        body = text if protocol == "rest-xml" else f"<ErrorResponse>{text}</ErrorResponse>"
        return HttpAnswer(f"{status} Refused", [("Content-Type", "text/xml")], body.encode())
    content_type, refused = ("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)
    body = json.dumps({"__type": code, "message": message})
    return HttpAnswer(f"{status} Refused", [content_type, refused], body.encode())


def json_answer(document: object) -> HttpAnswer:
    """What an operation of a JSON service returns."""
    return HttpAnswer("200 OK", [("Content-Type", "application/x-amz-json-1.1")], json.dumps(document).encode())


def xml_answer(operation: str, result: str) -> HttpAnswer:
    """What an operation of a query service returns."""
    body = f"<{operation}Response><{operation}Result>{result}</{operation}Result></{operation}Response>"
    return HttpAnswer("200 OK", [("Content-Type", "text/xml")], body.encode())


def page(key: str, items: Sequence[object], call: Call, most: int) -> dict[str, Any]:
    """A page of a list; the token is where the next one starts."""
    start, size = int(call.request.get("NextToken", 0)), min(call.request.get("MaxResults", most), most)
    end = start + size
    return {key: items[start:end], **({"NextToken": str(end)} if len(items) > end else {})}
