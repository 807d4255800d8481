"""Change values in a recipe's text. All else stays as it was written: comments, order, quotes and line breaks."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from toolkit.recipe.schema import Evidence


def with_speculation(text: str, values: Mapping[str, int | str | list[list[int]] | None]) -> str:
    """The recipe's text with these keys of `speculation`; a key whose value is None is not touched."""
    for key, value in values.items():
        if value is not None:
            text = _with_key(text, key, json.dumps(value))
    return text


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
