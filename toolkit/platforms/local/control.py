"""The control plane's HTTP front: SageMaker's requests and those for tags to our services, all others to moto."""

from __future__ import annotations

import io
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from socket import socket
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.resourcegroupstaggingapi.models import resourcegroupstaggingapi_backends
from werkzeug.serving import BaseWSGIServer, make_server

from toolkit import documents
from toolkit.platforms.local.aws import ACCOUNT, REGION, Region, ServiceError
from toolkit.platforms.local.host import Answer, Request
from toolkit.platforms.local.resources import Tags, read_token, token_of
from toolkit.platforms.local.service import SageMaker

_TARGET = "SageMaker."
_GET_RESOURCES = "ResourceGroupsTaggingAPI_20170126.GetResources"
# AWS4-HMAC-SHA256 Credential=<key>/<day>/<region>/<service>/aws4_request, ...
_SCOPE = re.compile(r"Credential=[^/]*/\d+/(?P<region>[^/]+)/")
_MOST = 100  # resources of a page
_ALL = 1_000_000
# The resources are named, or looked for, by pages (API reference, GetResources).
_NOT_BESIDE_ARNS = ("ResourceTypeFilters", "TagFilters", "ResourcesPerPage", "TagsPerPage", "PaginationToken")
_PIECE = 64 * 1024
_SILENT_S = 20.0  # that a connection may say nothing: each has a thread
_HEAD_S, _HEAD_BYTES = 20.0, 64 * 1024  # within which a request's head must be there
_BODY_BYTES_S = 1024**2  # at least, of a body
_THROWN_AWAY = 10_000_000  # werkzeug 3, serving.py: what it reads at once of a body that nobody took


def control_application(service: Callable[[str], SageMaker]) -> WSGIApplication:
    """The WSGI application. `service` finds the service of the region that a request was signed for, else of ours."""
    moto: WSGIApplication = DomainDispatcherApplication(create_backend_app)

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if not target.startswith(_TARGET) and target != _GET_RESOURCES:
            return moto(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        status, answer = _answer(service(scope["region"] if scope else REGION), target, body)
        content = json.dumps(answer).encode()
        headers = [
            ("Content-Type", "application/x-amz-json-1.1"),
            ("Content-Length", str(len(content))),
            ("x-amzn-RequestId", str(uuid.uuid4())),
        ]
        start_response(status, headers)
        return [content]

    return application


def control_server(application: WSGIApplication, listening: socket) -> BaseWSGIServer:
    """A server on that socket; it answers once `serve_forever()` runs."""
    host, port = listening.getsockname()
    return make_server(host, port, application, threaded=True, request_handler=_RequestHandler, fd=listening.fileno())


def _answer(sagemaker: SageMaker, target: str, body: bytes) -> tuple[str, Answer]:
    try:
        request = documents.parse(dict[str, Any], body)
        if target == _GET_RESOURCES:
            return "200 OK", get_resources(sagemaker.region, sagemaker.tags, request)
        return "200 OK", sagemaker.answer(target.removeprefix(_TARGET), request)
    except documents.Unfit as exc:
        return "400 Bad Request", {"__type": "SerializationException", "message": str(exc)}
    except ServiceError as exc:
        return "400 Bad Request", {"__type": exc.code, "message": str(exc)}


class _Bounded(io.RawIOBase):
    """What a connection sends, as long as it comes in time and is no more than was allowed."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self.allow(_HEAD_S, _HEAD_BYTES)

    def allow(self, seconds: float, size: float) -> None:
        """Take so many bytes more, until so many seconds from now."""
        self._deadline, self._room = time.monotonic() + seconds, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Raises TimeoutError, which ends the connection, or ConnectionError."""
        left = self._deadline - time.monotonic()
        if left <= 0 or self._room <= 0:
            raise TimeoutError if left <= 0 else ConnectionError
        self._connection.settimeout(min(left, _SILENT_S))
        try:
            size = self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(_SILENT_S)  # which is also that of answers
        self._room -= size
        return size


class _Pieces(io.BufferedReader):
    """Whoever asks for 10 MB or more, as werkzeug does to throw them away, gets what has come, piece by piece."""

    def read(self, size: int | None = -1, /) -> bytes:
        return self.read1(_PIECE) if size is not None and size >= _THROWN_AWAY else super().read(size)


class _RequestHandler(MotoRequestHandler):
    """moto's, without a log line per request, and without Nagle's wait between an answer's head and body."""

    disable_nagle_algorithm = True
    timeout = _SILENT_S

    def setup(self) -> None:
        """Read in pieces, so that what werkzeug throws away after an answer is never held whole or waited for."""
        super().setup()
        self._bounded = _Bounded(self.connection)
        self.rfile = _Pieces(self._bounded)

    def handle_one_request(self) -> None:
        """Wait for a head, but not for ever."""
        self._bounded.allow(_HEAD_S, _HEAD_BYTES)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Once the head is there, the body may take as long as its size says."""
        good: bool = super().parse_request()
        length = self.headers.get("Content-Length", "") if good else ""
        size = int(length) if length.isdecimal() else 0
        self._bounded.allow(_HEAD_S + size / _BODY_BYTES_S, math.inf)
        return good

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""


def get_resources(region: Region, sagemaker: Tags, request: Request) -> Answer:
    """One page of the resources of a region that match the request, by ARN."""
    size = request.get("ResourcesPerPage", _MOST)
    if not 1 <= size <= _MOST:
        raise ServiceError(f"ResourcesPerPage must be between 1 and {_MOST}.", code="InvalidParameterException")
    if "ResourceARNList" in request and (others := [key for key in _NOT_BESIDE_ARNS if request.get(key)]):
        message = f"ResourceARNList cannot be given together with {', '.join(others)}."
        raise ServiceError(message, code="InvalidParameterException")
    _, of_moto = resourcegroupstaggingapi_backends[ACCOUNT][region.name].get_resources(None, _ALL, _ALL)
    tags_by_arn = {**{resource.arn: resource.tags for resource in of_moto}, **sagemaker.all()}
    arns = sorted(arn for arn, tags in tags_by_arn.items() if _is_wanted(arn, tags, request))
    if request.get("PaginationToken"):
        (last,) = read_token(request["PaginationToken"], 1)
        arns = [arn for arn in arns if arn > last]
    page = arns[:size]
    return {
        "ResourceTagMappingList": [
            {"ResourceARN": arn, "Tags": [{"Key": key, "Value": value} for key, value in tags_by_arn[arn].items()]}
            for arn in page
        ],
        "PaginationToken": token_of(page[-1]) if len(arns) > size else "",
    }


def _is_wanted(arn: str, tags: Mapping[str, str], request: Request) -> bool:
    types, arns = request.get("ResourceTypeFilters"), request.get("ResourceARNList")
    _, _, service, _, _, resource = arn.split(":", 5)
    names = (service, f"{service}:{resource.partition('/')[0]}")
    return (
        bool(tags)
        and (not types or any(name in types for name in names))
        and (not arns or arn in arns)
        and all(_matches(tags, wanted) for wanted in request.get("TagFilters", []))
    )


def _matches(tags: Mapping[str, str], wanted: Mapping[str, list[str]]) -> bool:
    key, values = str(wanted["Key"]), wanted.get("Values")
    return key in tags and (not values or tags[key] in values)
