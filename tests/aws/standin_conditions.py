"""The small language in which refusals say what a request must be like.

A path is "RoutingConfig.RoutingStrategy"; "[]" stands for each item of a list and "*" for each value of a map:
"ProductionVariants[].ModelName". A matcher is a value, a list of values, `present`, `absent`, or one or more of the
tests of TESTS, such as {least: 5} or {matches: "s3://.+/"}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES


def reach(scope: Any, path: str) -> Iterator[Any]:
    """The values at a path, none where there is nothing."""
    if not path:
        yield scope
        return
    part, _, rest = path.partition(".")
    name = part.removesuffix("[]")
    if not isinstance(scope, Mapping):
        return
    if name == "*":
        found = list(scope.values())
    else:
        found = [scope[name]] if scope.get(name) is not None else []
    if part.endswith("[]"):
        found = [item for items in found for item in items]
    for value in found:
        yield from reach(value, rest)


def has(scope: Any, path: str) -> bool:
    """Whether there is a value at a path."""
    return any(True for _ in reach(scope, path))


def _has_own_disks(instance_type: str) -> bool:
    """Whether EC2 has that type with an instance store; by EC2's own table, which moto carries."""
    found = INSTANCE_TYPES.get(instance_type.removeprefix("ml."), {})
    return bool(found.get("InstanceStorageSupported"))


TESTS: Mapping[str, Callable[[Any, Any], bool]] = {
    "isnt": lambda value, wanted: value not in (wanted if isinstance(wanted, list) else [wanted]),
    "matches": lambda value, wanted: re.fullmatch(wanted, value, re.DOTALL) is not None,
    "lacks": lambda value, wanted: re.search(wanted, value) is None,
    "least": lambda value, wanted: value >= wanted,
    "most": lambda value, wanted: value <= wanted,
    "multiple": lambda value, wanted: value % wanted == 0,
    "longest": lambda value, wanted: len(value) <= wanted,
    "shortest": lambda value, wanted: len(value) >= wanted,
    "own_disks": lambda value, wanted: _has_own_disks(value) is wanted,
}


def matches(values: Sequence[Any], wanted: Any) -> bool:
    """Whether there are values, and all are as wanted; `absent` wants none."""
    if wanted == "absent":
        return not values
    return bool(values) and all(_is(value, wanted) for value in values)


def _is(value: Any, wanted: Any) -> bool:
    if wanted == "present":
        return True
    if isinstance(wanted, dict):
        return all(TESTS[name](value, argument) for name, argument in wanted.items())
    return value in wanted if isinstance(wanted, list) else bool(value == wanted)


def _count(scope: Any, paths: Sequence[str]) -> int:
    return sum(has(scope, path) for path in paths)


def _is_above(scope: Any, bounds: Mapping[str, Any]) -> bool:
    """Of {lower: higher}, whether a lower one is above; where either is not there, nothing is said."""
    for path, bound in bounds.items():
        highs = list(reach(scope, bound)) if isinstance(bound, str) else [bound]
        if highs and any(low > min(highs) for low in reach(scope, path)):
            return True
    return False


def _repeats(scope: Any, path: str) -> bool:
    found = list(reach(scope, path))
    return any(found.count(value) > 1 for value in found)


def _has_wrong(scope: Any, wanted: Mapping[str, Any]) -> bool:
    return any(not _is(value, matcher) for path, matcher in wanted.items() for value in reach(scope, path))


def _has_wrong_number(scope: Any, wanted: Mapping[str, Any]) -> bool:
    return any(not _is(len(list(reach(scope, path))), matcher) for path, matcher in wanted.items())


def _is_partial(scope: Any, wanted: Mapping[str, str]) -> bool:
    """Of {list: member}, whether some items have the member and some have not."""
    return any(
        0 < sum(has(item, member) for item in items) < len(items)
        for path, member in wanted.items()
        for items in reach(scope, path)
    )


def _is_product_above(scope: Any, wanted: Mapping[str, Any]) -> bool:
    """Of {one: other, most: n}, whether one times the other is more than n."""
    (one, other), (_, most) = wanted.items()
    products = [a * b for a in reach(scope, one) for b in reach(scope, other)]
    return any(product > most for product in products)


DEMANDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "needs": lambda scope, paths: _count(scope, paths) < len(paths),
    "forbids": lambda scope, paths: _count(scope, paths) > 0,
    "one_of": lambda scope, paths: _count(scope, paths) != 1,
    "at_most_one": lambda scope, paths: _count(scope, paths) > 1,
    "at_least_one": lambda scope, paths: _count(scope, paths) == 0,
    "together": lambda scope, paths: _count(scope, paths) not in (0, len(paths)),
    "values": _has_wrong,
    "number": _has_wrong_number,
    "order": _is_above,
    "unique": _repeats,
    "all_or_none": _is_partial,
    "product": _is_product_above,
    "at_least_two": lambda scope, paths: _count(scope, paths) < 2,
}
"""Each says whether a scope of the request does *not* do as demanded."""
