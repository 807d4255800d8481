"""AWS's answers, bounded in size and time, and checked as they come against botocore's own description of them.

botocore takes what it gets: all that is sent, and a member of another type or none at all, which would show far from
here as a TypeError or KeyError. Here it is an UnreadableAnswer, which names the operation and the member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ConnectionClosedError, ReadTimeoutError
from botocore.parsers import ResponseParserError, ResponseParserFactory
from urllib3 import exceptions as urllib3_errors

from toolkit import documents
from toolkit.errors import PlatformError

if TYPE_CHECKING:
    import boto3

_HINT = "What answers there is not AWS, or a proxy between cut the answer short. The same command carries on."
_FIRST_REFUSAL = 300
_KIND = re.compile(r"(Output|Response|Result)$")
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "double": (int, float),
    "float": (int, float),
    "integer": int,
    "list": list,
    "long": int,
    "map": dict,
    "string": str,
    "structure": dict,
    "timestamp": datetime,
}
# What botocore's parsers raise for what is not of the shape that they expect.
_UNCHECKED = {"jsonvalue", "eventstream"}
_UNPARSED = (ResponseParserError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RuntimeError)


class UnreadableAnswer(PlatformError, BotoCoreError):
    """AWS's answer is not what botocore says that the operation answers."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)
        self.message = message
        self.hint = _HINT


class CheckedParsers(ResponseParserFactory):
    """Makes botocore's parsers, each of which checks what it has read."""

    def create_parser(self, protocol_name: str) -> Any:
        return _CheckedParser(super().create_parser(protocol_name))


def check_answers(session: boto3.Session) -> boto3.Session:
    """Make the session's clients check what AWS answers; those that it has made already stay as they are."""
    session._session.register_component("response_parser_factory", CheckedParsers())
    session.events.register("creating-client-class", _bound_answers, unique_id="toolkit-bounded-answers")
    return session


def _bound_answers(base_classes: list[type], **_: object) -> None:
    base_classes.insert(0, _BoundedClient)


class _BoundedClient:
    """Part of every client: its answers are read up to a limit. What is streamed is bounded by who reads it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        endpoint: Any = self._endpoint  # type: ignore[attr-defined]
        endpoint.http_session = _BoundedHttp(endpoint.http_session)


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


class _CheckedParser:
    def __init__(self, parser: Any) -> None:
        self._parser = parser

    def parse(self, response: Mapping[str, Any], shape: Any) -> Any:
        """What botocore reads of it. Raises UnreadableAnswer."""
        name = f"AWS's answer to {_KIND.sub('', shape.name)}" if shape else "AWS's answer"
        try:
            parsed = self._parser.parse(response, shape)
        except _UNPARSED as error:
            raise UnreadableAnswer(f"{name} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
        if isinstance(parsed, dict) and "Error" in parsed:
            return {**parsed, "Error": _error(parsed["Error"], response["status_code"])}
        if response["status_code"] >= _FIRST_REFUSAL:
            return parsed  # what an error says beside its code and message, which is not read
        if parsed is None:
            raise UnreadableAnswer(f"{name} cannot be read: it is empty")
        if problem := next(_problems(parsed, shape, ""), ""):
            raise UnreadableAnswer(f"{name} cannot be read: {problem}")
        return documents.named(parsed, name, UnreadableAnswer)


def _error(found: Any, status: int) -> dict[str, str]:
    """Code and message, whatever was sent of them."""
    written = found if isinstance(found, dict) else {}
    return {**written, "Code": str(written.get("Code") or status), "Message": str(written.get("Message") or "")}


def _problems(value: Any, shape: Any, path: str) -> Iterator[str]:
    """Members that are not of the type that the shape says. What is streamed has not been read yet."""
    expected: Any = _TYPES.get(shape.type_name) if shape else None
    if expected is None or getattr(shape, "is_document_type", False):
        return
    if not isinstance(value, expected) or (isinstance(value, bool) and shape.type_name != "boolean"):
        yield f"`{path}` is {str(value)[:60]!r}, not a {shape.type_name}"
    elif shape.type_name == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None and not _UNCHECKED & member.serialization.keys():
                yield from _problems(value[name], member, f"{path}.{name}".lstrip("."))
    elif shape.type_name == "list":
        for number, item in enumerate(value):
            yield from _problems(item, shape.member, f"{path}.{number}")
    elif shape.type_name == "map":
        for key, item in value.items():
            yield from _problems(item, shape.value, f"{path}.{key}")
