"""IAM's policies as Cedar evaluates them, which is AWS's own policy engine: denied unless permitted, a deny wins.

A statement becomes a `permit` or a `forbid` over the action, the resource and the condition keys of a request. What
the stand-in has no use for (other `?` in a pattern, `ForAllValues`, policy variables) is an error, never taken as met.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cedarpy

_ACTION, _RESOURCE = "stand-in:action", "stand-in:resource"
# Of a pattern that ends in six `?`, as of a secret's ARN, and of a resource without its last six characters.
_SIX, _BUT_SIX = "?" * 6, "stand-in:resource-but-six"
_POSITIVE = {"StringEquals": "==", "StringLike": "like", "ArnEquals": "like", "ArnLike": "like", "Bool": "=="}
_NEGATIVE = {
    "StringNotEquals": "StringEquals",
    "StringNotLike": "StringLike",
    "ArnNotLike": "ArnLike",
    "ArnNotEquals": "ArnEquals",
}
_IF_EXISTS = "IfExists"


@dataclass(frozen=True)
class Access:
    """Something that `who` (an ARN) does to a resource, with the condition keys of that request."""

    who: str
    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False)


def permits(documents: Iterable[str], access: Access) -> bool:
    """Whether policies of one kind, which are JSON, allow it together."""
    keys = {key.lower(): value for key, value in access.context.items()}
    context = {
        **keys,
        _ACTION: access.action.lower(),
        _RESOURCE: access.resource,
        _BUT_SIX: access.resource[: -len(_SIX)],
    }
    request = {"principal": 'Who::"it"', "action": 'Does::"it"', "resource": 'With::"it"', "context": context}
    result = cedarpy.is_authorized(request, _policy_set(tuple(documents)), [])
    if result.diagnostics.errors:
        raise ValueError(f"Cedar: {result.diagnostics.errors}")
    return result.allowed


@cache
def _policy_set(documents: tuple[str, ...]) -> cedarpy.PolicySet:
    statements = [statement for document in documents for statement in _list(json.loads(document)["Statement"])]
    return cedarpy.PolicySet.from_str("\n".join(map(_in_cedar, statements)))


def _in_cedar(statement: Mapping[str, Any]) -> str:
    effect = {"Allow": "permit", "Deny": "forbid"}[statement["Effect"]]
    met = " && ".join(_clauses(statement))
    return f"{effect}(principal, action, resource) when {{ {met} }};"


def _clauses(statement: Mapping[str, Any]) -> Iterator[str]:
    for element, key in (("Action", _ACTION), ("Resource", _RESOURCE)):
        no = "!" if f"Not{element}" in statement else ""
        patterns = _list(statement[f"Not{element}" if no else element])
        if element == "Action":
            yield no + _any(key, "like", [each.lower() for each in patterns])
            continue
        met = [
            _any(_BUT_SIX, "like", [each.removesuffix(_SIX)]) if each.endswith(_SIX) else _any(key, "like", [each])
            for each in patterns
        ]
        yield f"{no}({' || '.join(met)})"
    for operator, keys in statement.get("Condition", {}).items():
        for key, values in keys.items():
            yield _condition(operator, key.lower(), [str(value) for value in _list(values)])


def _condition(operator: str, key: str, values: list[str]) -> str:
    has = f"context has {_quoted(key)}"
    if operator == "Null":
        return f"!({has})" if values == ["true"] else f"({has})"
    name = operator.removesuffix(_IF_EXISTS)
    positive = _NEGATIVE.get(name, name)
    if positive not in _POSITIVE:
        raise ValueError(f"the stand-in does not evaluate {operator}")
    met = _any(key, _POSITIVE[positive], values)
    if name in _NEGATIVE:  # a key that is not there matches a negated operator
        return f"!(({has}) && {met})"
    return f"(!({has}) || {met})" if operator != name else f"(({has}) && {met})"


def _any(key: str, comparison: str, values: list[str]) -> str:
    return "(" + " || ".join(f"context[{_quoted(key)}] {comparison} {_quoted(value)}" for value in values) + ")"


def _quoted(text: str) -> str:
    if "?" in text or "${" in text or "\\" in text:
        raise ValueError(f"the stand-in does not evaluate {text}")
    return json.dumps(text, ensure_ascii=False)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
