"""AWS's answers, bounded in size and time, and checked as they come against botocore's own description of them.

botocore takes what it gets: all that is sent, and a member of another type or none at all, which would show far from
here as a TypeError or KeyError. Here it is an UnreadableAnswer, which names the operation and the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from botocore.eventstream import EventStream
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError
from botocore.parsers import ResponseParserError
from botocore.validate import ParamValidator
from urllib3 import exceptions as urllib3_errors

from toolkit import documents
from toolkit.errors import PlatformError

if TYPE_CHECKING:
    import boto3

_HINT = "What answers there is not AWS, or a proxy between cut the answer short. The same command carries on."
_FIRST_REFUSAL = 300
_SHOWN_CHARACTERS = 200
# Protocols whose parsers make every type from text; what JSON and CBOR have is passed on as it is.
_XML = ("ec2", "query", "rest-xml")
# What botocore's parsers raise for what is not of the shape that they expect.
_UNPARSED = (ResponseParserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)


class UnreadableAnswer(PlatformError, BotoCoreError):
    """AWS's answer is not what botocore says that the operation answers."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.message = message
        self.hint = _HINT


def check_answers(session: boto3.Session) -> boto3.Session:
    """Make the session's clients check what AWS answers; those that it has made already stay as they are."""
    session.events.register("creating-client-class", _check_client, unique_id="toolkit-checked-answers")
    return session


def _check_client(base_classes: list[type], **_: object) -> None:
    base_classes.insert(0, _CheckedClient)


class _CheckedClient:
    """Part of every client: each call goes through it. What is streamed is bounded and checked by who reads it."""

    meta: Any
    _endpoint: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._endpoint.http_session = _BoundedHttp(self._endpoint.http_session)

    def _make_api_call(self, operation: str, request: Any) -> Any:
        """What botocore reads of the answer. Raises UnreadableAnswer."""
        client: Any = super()
        service = self.meta.service_model
        shape = None if service.resolved_protocol in _XML else service.operation_model(operation).output_shape
        try:
            answer = client._make_api_call(operation, request)
            problem = _wrong_type(answer, shape)
        except ClientError as error:
            response: Any = error.response
            response["Error"] = _readable(response)
            raise
        except BotoCoreError:
            raise
        except _UNPARSED as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            raise UnreadableAnswer(f"AWS's answer to {operation} cannot be read: {problem[:_SHOWN_CHARACTERS]}")
        return documents.named(answer, f"AWS's answer to {operation}", UnreadableAnswer)


def _wrong_type(answer: Any, shape: Any) -> str:
    """The first member that is not of the type that the shape says, as botocore finds it in requests."""
    if shape is None:
        return ""
    come = {name: value for name, value in answer.items() if not isinstance(value, EventStream)}
    report = ParamValidator().validate(come, shape).generate_report()
    return next((line for line in report.splitlines() if line.startswith("Invalid type for parameter")), "")


def _readable(answer: Mapping[str, Any]) -> dict[str, str]:
    """Code and message of an error, whatever was sent of them."""
    sent = answer["Error"] if isinstance(answer.get("Error"), dict) else {}
    code = sent.get("Code") or answer["ResponseMetadata"]["HTTPStatusCode"]
    return {**sent, "Code": str(code), "Message": str(sent.get("Message") or "")}


class _BoundedHttp:
    """Sends requests as botocore's own HTTP session does, which would read an answer without an end for ever."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def send(self, request: Any) -> Any:
        streamed, request.stream_output = request.stream_output, True  # so that it is not read yet
        answer = self._session.send(request)
        if streamed and answer.status_code < _FIRST_REFUSAL:
            return answer
        try:
            answer._content = documents.collect(answer.raw.stream())
        except documents.Unfit as error:
            answer.raw.close()
            raise UnreadableAnswer(f"AWS's answer from {request.url} cannot be read: {error}") from error
        except urllib3_errors.ReadTimeoutError as error:  # these two as botocore itself says them, to be tried again
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except urllib3_errors.ProtocolError as error:
            raise ConnectionClosedError(endpoint_url=request.url, request=request, error=error) from error
        return answer
