"""The reference of the keys of a recipe, from the JSON schema that editors use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.recipe.assemble import json_schema
from toolkit.registry import recipe_schema
from tools.docs.markdown import page, prose, table

Schema = Mapping[str, Any]
_INTRODUCTION = """\
A recipe is a YAML file. An editor that knows the JSON schema (`toolkit schema`) completes these keys and shows
these texts. Every mistake is [reported](checks.md) with its line and the edit to make."""
_SHORT = 12


def keys_page() -> str:
    """Every key, section by section, in the order in which sections are first named."""
    schema = json_schema(recipe_schema())
    sections = [part for name in _in_order(schema) for part in _section(f"## {name}", schema["$defs"][name])]
    return page("Recipe keys", _INTRODUCTION, *_section("## The file", schema), *sections)


def _section(title: str, schema: Schema) -> Iterator[str]:
    needed = schema.get("required", ())
    yield title.removesuffix("Section")
    yield prose(schema.get("description", ""))
    rows = [
        (f"`{key}`", _type(fields), "needed" if key in needed else _default(fields), fields.get("description", ""))
        for key, fields in schema.get("properties", {}).items()
    ]
    yield table(("key", "value", "default", "meaning"), rows)


def _in_order(schema: Schema) -> list[str]:
    """Names of the sections that are reached from the file, breadth first."""
    found: list[str] = []
    waiting = [schema]
    while waiting:
        for name in _named(waiting.pop(0).get("properties", {})):
            if name not in found:
                found.append(name)
                waiting.append(schema["$defs"][name])
    return found


def _named(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for inner in value.values():
            yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)


def _type(fields: Schema) -> str:
    if "$ref" in fields:
        name = fields["$ref"].rpartition("/")[2].removesuffix("Section")
        return f"section [{name}](#{name.lower()})"
    if "enum" in fields:
        names = [f"`{value}`" for value in fields["enum"]]
        return ", ".join(names[:_SHORT]) + (f", and {len(names) - _SHORT} more" if len(names) > _SHORT else "")
    if "const" in fields:
        return f"`{fields['const']}`"
    if "anyOf" in fields:
        return " or ".join(dict.fromkeys(_type(choice) for choice in fields["anyOf"] if choice.get("type") != "null"))
    if fields.get("type") == "array":
        return f"list of {_type(fields.get('items', {}))}"
    if fields.get("type") == "object":
        return f"mapping to {_type(_values(fields))}"
    kind = str(fields.get("type", "any value"))
    return {"boolean": "true or false", "integer": "whole number", "string": "text"}.get(kind, kind)


def _values(fields: Schema) -> Schema:
    values = fields.get("additionalProperties")
    return values if isinstance(values, dict) else {}


def _default(fields: Schema) -> str:
    value = fields.get("default")  # that of a section is the defaults of its keys
    return "" if value in (None, [], "") or isinstance(value, dict) else f"`{json.dumps(value)}`"
