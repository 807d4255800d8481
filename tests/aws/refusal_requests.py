"""The requests of the rules in `refusals`, sent by the genuine boto3."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.config import Config
from standin import StandIn
from standin_refusals import Rule, bases

_UNCHECKED = Config(parameter_validation=False, retries={"mode": "standard", "total_max_attempts": 1})


class Sender:
    """Asks a stand-in that is empty. botocore's own checks are off, so that the server decides.

    `clients` are kept from one to the next, by service.
    """

    def __init__(self, standin: StandIn, clients: dict[str, Any]) -> None:
        self._standin, self._clients = standin, clients
        self._answers: dict[str, Any] = {}
        self._done: set[str] = set()

    def prepare(self, rule: Rule) -> None:
        """Ask for everything that comes before a rule's request."""
        self._first(rule.base)
        self._run(rule.after)

    def refused(self, rule: Rule) -> Any:
        """Send what is refused."""
        return self._send(rule.base, rule.refused)

    def taken(self, rule: Rule) -> Any:
        """Send what is taken, after what makes it so."""
        self._run(rule.before_taken)
        return self._send(rule.base, rule.taken)

    def _run(self, steps: Sequence[Any]) -> None:
        for step in steps:
            if step == "settle":
                self._standin.settle()
            elif isinstance(step, dict) and "quota" in step:
                self._standin.account.quotas |= step["quota"]
            elif isinstance(step, dict) and "repeat" in step:
                self._run(_written_out(step))
            elif isinstance(step, dict):
                self.ask(*next(iter(step.items())))
            else:
                self._once(step)

    def _first(self, base: str) -> None:
        """What comes before a request, each only once."""
        for step in bases()[base].get("after", []):
            if repr(step) not in self._done or step == "settle":
                self._done.add(repr(step))
                self._run([step])

    def _once(self, base: str) -> None:
        if base not in self._done:
            self._done.add(base)
            self.ask(base, {})

    def ask(self, base: str, changes: Mapping[str, Any]) -> Any:
        """Send a base's request with changes, after everything that comes before it."""
        self._first(base)
        return self._send(base, changes)

    def _send(self, base: str, changes: Mapping[str, Any]) -> Any:
        service, _, operation = bases()[base]["call"].partition(":")
        if service not in self._clients:
            self._clients[service] = self._standin.session().client(service, config=_UNCHECKED)  # type: ignore[call-overload]
        method = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operation).lower()
        request = self._filled(changed(bases()[base]["request"], changes))
        self._answers = getattr(self._clients[service], method)(**request)
        return self._answers

    def _filled(self, request: dict[str, Any]) -> dict[str, Any]:
        """With what the call before answered."""
        return {
            key: self._answers[value["answer"]] if isinstance(value, dict) and "answer" in value else value
            for key, value in request.items()
        }


def changed(request: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A request with other values at some paths, "ProductionVariants.0.InstanceType"; null takes one away."""
    result: dict[str, Any] = _written_out(request)
    for path, value in changes.items():
        *parts, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
        place: Any = result
        for part in parts:
            place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
        if value is None:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(_written_out(value))
        else:
            place[last] = _written_out(value)
    return result


def _written_out(value: Any) -> Any:
    """Copies, with what refusals/README.md calls short forms written out."""
    if isinstance(value, list):
        return [_written_out(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"repeat": str(text), "times": times}:
            return text * times
        case {"repeat": item, "times": times}:
            return [_numbered(item, number) for number in range(times)]
        case {"long": text, "with": item, "times": times}:
            return text.replace('"LONG"', ",".join([f'"{item}"'] * times))
        case {"seconds_ago": seconds}:
            return int((time.time() - seconds) * 1000)
    return {key: _written_out(item) for key, item in value.items()}


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, dict):
        return {key: _numbered(item, number) for key, item in value.items()}
    return value.replace("#", str(number)) if isinstance(value, str) else value
