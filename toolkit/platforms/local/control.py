"""The control plane's HTTP front: SageMaker's requests to our service, all others to moto."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.service import SageMaker

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_TARGET = "SageMaker."


def control_server(sagemaker: SageMaker) -> BaseWSGIServer:
    """A server on a free port of loopback; it answers once `serve_forever()` runs."""
    moto: WSGIApplication = DomainDispatcherApplication(create_backend_app)

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if not target.startswith(_TARGET):
            return moto(environ, start_response)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, answer = _answer(sagemaker, target.removeprefix(_TARGET), body)
        content = json.dumps(answer).encode()
        headers = [
            ("Content-Type", "application/x-amz-json-1.1"),
            ("Content-Length", str(len(content))),
            ("x-amzn-RequestId", str(uuid.uuid4())),
        ]
        start_response(status, headers)
        return [content]

    return make_server("127.0.0.1", 0, application, threaded=True, request_handler=_RequestHandler)


def _answer(sagemaker: SageMaker, operation: str, body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        return "200 OK", sagemaker.answer(operation, json.loads(body))
    except json.JSONDecodeError as exc:
        return "400 Bad Request", {"__type": "SerializationException", "message": str(exc)}
    except ServiceError as exc:
        return "400 Bad Request", {"__type": exc.code, "message": str(exc)}


class _RequestHandler(MotoRequestHandler):
    """moto's, without a log line per request, and without Nagle's wait between an answer's head and body."""

    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""
