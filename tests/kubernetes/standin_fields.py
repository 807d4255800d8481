"""Server-side apply on plain documents: which fields a manager owns, what merging does, what conflicts.

Field sets are those of managedFields (FieldsV1): a path is a tuple of `f:name` and `k:{"name":"engine"}`. Which lists
go by key and what is atomic say the published schemas (x-kubernetes-list-type and its like) of kubernetes-validate.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import importlib_resources

VERSION = "1.36"
Path = tuple[str, ...]
_SET_BY_SERVER = {
    ("f:apiVersion",), ("f:kind",), ("f:status",),
    *(("f:metadata", f"f:{key}") for key in (
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
    )),
}  # fmt: skip


class Untyped(Exception):
    """A manifest that the schema does not know. Worded as structured-merge-diff words it."""


@cache
def definitions() -> Mapping[str, Any]:
    folder = importlib_resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{VERSION}.0-local"
    found: Mapping[str, Any] = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
    return found


@cache
def schema_of(group_version: str, kind: str) -> str | None:
    """Name of the kind's schema; None for a custom resource, of which nothing is known."""
    group, _, version = group_version.rpartition("/")
    wanted = {"group": group, "kind": kind, "version": version}
    for name, schema in definitions().items():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            return name
    return None


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema with that which it refers to."""
    if "$ref" not in schema:
        return schema
    return {**definitions()[schema["$ref"].rpartition("/")[2]], **{k: v for k, v in schema.items() if k != "$ref"}}


def owned(schema: Mapping[str, Any], value: Any) -> set[Path]:
    """The fields that a manifest sets, but for those that are the server's."""
    return {path for path in leaves(schema, value) if not any(path[: len(taken)] == taken for taken in _SET_BY_SERVER)}


def leaves(schema: Mapping[str, Any], value: Any, path: Path = ()) -> Iterator[Path]:
    """All leaf fields. Raises Untyped for a field that the schema does not have, and for a wrong type."""
    schema = resolved(schema)
    if keys := _list_keys(schema):
        for item in _typed(value, list, path):
            inner = (*path, _key(schema, keys, item))
            yield (*inner, ".")
            yield from leaves(schema["items"], item, inner)
    elif _is_granular(schema):
        if not _typed(value, dict, path) and path:
            yield path
        for key, inner in value.items():
            yield from leaves(_property(schema, key, path), inner, (*path, f"f:{key}"))
    else:
        _check_scalar(schema, value, path)
        yield path


def merged(schema: Mapping[str, Any], live: Any, applied: Any) -> Any:
    """What applying comes to: maps and lists with keys are merged, all else is replaced."""
    schema = resolved(schema)
    if live is None or applied is None:
        return copy.deepcopy(live if applied is None else applied)
    if keys := _list_keys(schema):
        items = {_key(schema, keys, item): item for item in live}
        for item in applied:
            items[_key(schema, keys, item)] = merged(schema["items"], items.get(_key(schema, keys, item)), item)
        return [copy.deepcopy(item) for item in items.values()]
    if _is_granular(schema):
        return {key: merged(_property(schema, key, ()), live.get(key), applied.get(key)) for key in {**live, **applied}}
    return copy.deepcopy(applied)


def at(value: Any, path: Path) -> Any:
    """The value of a field, None where it is not set."""
    for element in path:
        if value is None:
            return None
        if element == ".":
            return True
        value = value.get(element[2:]) if element.startswith("f:") else _item(value, element)
    return value


def without(value: Any, path: Path) -> None:
    """Remove a field, and what becomes empty by that."""
    *before, last = path
    parent = at(value, tuple(before))
    if parent is None:
        return
    if last == ".":
        grand = at(value, tuple(before[:-1]))
        grand.remove(parent)
    elif last.startswith("f:"):
        parent.pop(last[2:], None)
    if before and parent in ({}, []) and not before[-1].startswith("k:"):
        without(value, tuple(before))


def told(path: Path) -> str:
    """A path as the server tells it: `.spec.containers[name="engine"].image`."""
    text = ""
    for element in path:
        if element.startswith("f:"):
            text += f".{element[2:]}"
        elif element.startswith("k:"):
            text += "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(element[2:]).items()) + "]"
    return text


def nested(paths: set[Path]) -> dict[str, Any]:
    """The set as `fieldsV1` has it."""
    found: dict[str, Any] = {}
    for path in sorted(paths):
        place = found
        for element in path:
            place = place.setdefault(element, {})
    return found


def _list_keys(schema: Mapping[str, Any]) -> list[str] | None:
    return schema.get("x-kubernetes-list-map-keys") if schema.get("x-kubernetes-list-type") == "map" else None


def _is_granular(schema: Mapping[str, Any]) -> bool:
    is_map = "properties" in schema or isinstance(schema.get("additionalProperties"), Mapping)
    return (is_map and schema.get("x-kubernetes-map-type") != "atomic") or schema.get("unknown", False)


def _property(schema: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    if schema.get("unknown"):
        return {"unknown": True} if key in ("metadata", "labels", "annotations", "spec") else {}
    if "properties" not in schema:
        extra: Mapping[str, Any] = schema["additionalProperties"]
        return extra
    if key not in schema["properties"]:
        raise Untyped(f"{told((*path, f'f:{key}'))}: field not declared in schema")
    found: Mapping[str, Any] = schema["properties"][key]
    return found


def _key(schema: Mapping[str, Any], keys: list[str], item: Mapping[str, Any]) -> str:
    """Of ports the protocol, which is TCP where it is not said, is a part of the key."""
    chosen = {key: item.get(key, "TCP" if key == "protocol" else None) for key in sorted(keys)}
    return f"k:{json.dumps(chosen, separators=(',', ':'))}"


def _item(items: list[Any], element: str) -> Any:
    wanted = json.loads(element[2:])
    defaults = {"protocol": "TCP"}
    for item in items:
        if all(item.get(key, defaults.get(key)) == value for key, value in wanted.items()):
            return item
    return None


def _typed(value: Any, kind: type, path: Path) -> Any:
    if not isinstance(value, kind):
        raise Untyped(f"{told(path)}: expected {'list' if kind is list else 'map'}, got {value!r}")
    return value


def _check_scalar(schema: Mapping[str, Any], value: Any, path: Path) -> None:
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    if names[:1] == ["string"] and not isinstance(value, str | None):
        raise Untyped(f"{told(path)}: expected string, got {value!r}")
    if names[:1] == ["integer"] and (isinstance(value, bool) or not isinstance(value, int | None)):
        raise Untyped(f"{told(path)}: expected numeric (int or float), got {value!r}")
