"""Change values in a recipe's text. All else stays as it was written: comments, order, quotes and line breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from toolkit.recipe.schema import Evidence


def with_speculation(text: str, values: Mapping[str, int | str | list[list[int]] | None]) -> str:
    """The recipe's text with these keys of `speculation`; a key whose value is None is not touched."""
    for key, value in values.items():
        if value is not None:
            text = _with_key(text, key, json.dumps(value))
    return text


def with_section(text: str, section: str, values: Mapping[str, int | str]) -> str:
    """The recipe's text with these keys alone in a section that it has. What was said beside the old ones goes, too."""
    at = _key(text, section)
    written = "".join(f"\n  {key}: {json.dumps(value)}" for key, value in values.items())
    return text[: at.name.end_mark.index] + f":{written}" + text[_end_of_line(text, at.value) :]


def without_key(text: str, section: str, key: str) -> str:
    """The recipe's text without a key of a section, if it has it. Comments on its line and right above go with it."""
    found = _key(text, section).value
    if not isinstance(found, MappingNode):
        return text
    pairs = found.value
    number = next((number for number, (name, _) in enumerate(pairs) if name.value == key), None)
    if number is None:
        return text
    name, value = pairs[number]
    if not found.flow_style:
        above = text[: text.rfind("\n", 0, name.start_mark.index) + 1].splitlines(keepends=True)
        while above and above[-1].lstrip().startswith("#"):
            above.pop()
        return "".join(above) + text[_end_of_line(text, value) + 1 :]
    if number + 1 < len(pairs):
        return text[: name.start_mark.index] + text[pairs[number + 1][0].start_mark.index :]
    start = pairs[number - 1][1].end_mark.index if number else name.start_mark.index
    return text[:start] + text[value.end_mark.index :]


class _Pair(NamedTuple):
    name: ScalarNode
    value: Node


def _key(text: str, section: str) -> _Pair:
    node = _compose(text)
    assert isinstance(node, MappingNode), "the recipe was loaded before"
    return next(_Pair(name, value) for name, value in node.value if name.value == section)


def _end_of_line(text: str, node: Node) -> int:
    """Where the last line of a value ends. A block's own end mark is at what follows it, comments between included."""
    last = node
    while isinstance(last, MappingNode) and not last.flow_style:
        last = last.value[-1][1]
    end = text.find("\n", last.end_mark.index)
    return len(text) if end < 0 else end


def with_evidence(text: str, items: list[Evidence]) -> str:
    """The recipe's text with further evidence, before what it has."""
    found = _find(_compose(text), "evidence")
    if isinstance(found, SequenceNode) and found.value and not found.flow_style:
        dash = found.start_mark
        written = "".join(f"- {_flow(item)}\n{' ' * dash.column}" for item in items)
        return text[: dash.index] + written + text[dash.index :]
    if found is not None:
        written = ", ".join(map(_flow, items))
        inner = text[found.start_mark.index + 1 : found.end_mark.index - 1].strip()
        both = f"[{written}{f', {inner}' if inner else ''}]"
        return text[: found.start_mark.index] + both + text[found.end_mark.index :]
    lines = "".join(f"  - {_flow(item)}\n" for item in items)
    return f"{text.rstrip()}\nevidence:\n{lines}"


def _with_key(text: str, key: str, value: str) -> str:
    speculation = _find(_compose(text), "speculation")
    assert isinstance(speculation, MappingNode), "the recipe was loaded before"
    if node := _find(speculation, key):
        return text[: node.start_mark.index] + value + text[node.end_mark.index :]
    first = speculation.start_mark
    if speculation.flow_style:
        return f"{text[: first.index + 1]}{key}: {value}, {text[first.index + 1 :]}"
    return f"{text[: first.index]}{key}: {value}\n{' ' * first.column}{text[first.index :]}"


def _compose(text: str) -> Node | None:
    node: Node | None = YAML().compose(text)
    return node


def _find(node: Node | None, key: str) -> Node | None:
    pairs = node.value if isinstance(node, MappingNode) else []
    return next((value for name, value in pairs if isinstance(name, ScalarNode) and name.value == key), None)


def _flow(item: Evidence) -> str:
    """JSON is YAML, on one line."""
    written = item.model_dump(exclude_none=True)
    return "{" + ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in written.items()) + "}"
