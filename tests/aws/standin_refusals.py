"""What AWS refuses, by the rules in `refusals`: data, evaluated on every call before it is answered.

A rule says of one or more operations what a request must be like, in AWS's words with their address, and has a request
that is refused and one that is taken. `refusals/README.md` says how one is written. What cannot be said of the request
alone (other resources, their state) is a function of that name in standin_states.py; a rule with neither is one that
the service behind the stand-in keeps by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import standin_states_of_plans  # noqa: F401 (its functions register themselves)
import standin_states_of_storage  # noqa: F401
import standin_states_of_watching  # noqa: F401
import yaml
from standin_conditions import DEMANDS, matches, reach
from standin_http import Call
from standin_states import STATES, World

from toolkit.platforms.local.aws import ServiceError

FOLDER = Path(__file__).parent / "refusals"
# What a service calls a request that it refuses, where a rule does not say otherwise.
_CODES = {
    "sagemaker": "ValidationException",
    "sagemaker-runtime": "ValidationError",
    "application-autoscaling": "ValidationException",
    "cloudwatch": "InvalidParameterCombination",
    "logs": "InvalidParameterException",
    "iam": "ValidationError",
    "s3": "InvalidRequest",
    "ecr": "InvalidParameterException",
    "codebuild": "InvalidInputException",
    "resourcegroupstaggingapi": "InvalidParameterException",
    "secretsmanager": "InvalidRequestException",
    "service-quotas": "NoSuchResourceException",
}


@dataclass(frozen=True)
class Rule:
    """`base` names the request of bases.yaml that `refused` and `taken` change; `after` is what was asked before it."""

    id: str
    says: str
    source: str
    base: str
    calls: Sequence[str]
    code: str
    message: str
    refused: Mapping[str, Any]
    taken: Mapping[str, Any]
    known: str = "documented"
    words: str = "AWS"
    note: str = ""
    after: Sequence[Any] = ()
    before_taken: Sequence[Any] = ()
    each: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    demands: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""
    held_out: bool = False

    @property
    def service(self) -> str:
        """The service that it is for."""
        return self.calls[0].partition(":")[0]

    @property
    def is_evaluated(self) -> bool:
        """Whether the rule itself refuses, and not the service behind the stand-in."""
        return bool(self.demands or self.state)

    def breaks(self, request: Mapping[str, Any]) -> bool:
        """Whether a request does not do as demanded."""
        scopes = self._scopes(request)
        return any(DEMANDS[name](scope, wanted) for scope in scopes for name, wanted in self.demands.items())

    def refuses(self, request: Mapping[str, Any], world: World) -> bool:
        """Whether a request is refused, in that world."""
        if self.state and any(STATES[self.state](scope, world) for scope in self._scopes(request)):
            return True
        return self.breaks(request)

    def _scopes(self, request: Mapping[str, Any]) -> list[Any]:
        """The structures that it holds for."""
        return [
            scope
            for scope in reach(request, self.each)
            if all(matches(list(reach(scope, path)), wanted) for path, wanted in self.when.items())
        ]


def must_be_taken(call: Call, world: World) -> None:
    """Raise ServiceError for a request that breaks a rule."""
    for rule in _by_call()[str(call)]:
        if rule.refuses(call.request, world):
            raise ServiceError(rule.message or rule.says, code=rule.code)


def broken_by(call: str, request: Mapping[str, Any]) -> list[str]:
    """The rules that a request breaks whatever there is, of an operation such as "sagemaker:CreateModel"."""
    return [rule.id for rule in _by_call()[call] if not rule.state and rule.breaks(request)]


@cache
def rules() -> Sequence[Rule]:
    """All rules, in the order of their files."""
    found = [rule for path in sorted(FOLDER.glob("*.yaml")) if path.name != "bases.yaml" for rule in _read(path)]
    twice = [name for name, count in Counter(rule.id for rule in found).items() if count > 1]
    assert not twice, f"the same id twice: {twice}"
    return found


@cache
def bases() -> Mapping[str, Mapping[str, Any]]:
    """Requests by name: `call`, `request`, and `after`, the names of those that come before."""
    found: dict[str, dict[str, Any]] = _yaml(FOLDER / "bases.yaml")
    return found


@cache
def _by_call() -> Mapping[str, list[Rule]]:
    found: dict[str, list[Rule]] = defaultdict(list)
    for rule in rules():
        if rule.is_evaluated:
            for call in rule.calls:
                found[call].append(rule)
    return found


def _read(path: Path) -> Iterator[Rule]:
    for entry in _yaml(path):
        service, _, _ = bases()[entry["base"]]["call"].partition(":")
        own = {"from": "source"}
        fields = {own.get(key, key): value for key, value in entry.items() if key not in DEMANDS}
        also = fields.pop("also", [])
        yield Rule(
            **{"code": _CODES[service], "message": "", "taken": {}, **fields},
            calls=(bases()[entry["base"]]["call"], *also),
            demands={key: value for key, value in entry.items() if key in DEMANDS},
        )


def _yaml(path: Path) -> Any:
    return yaml.load(path.read_text(), yaml.CSafeLoader)
