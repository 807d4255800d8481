"""A proposed recipe as a file: ten lines or a few more, each choice with its reason as a comment."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.proposal.model import Choice, Proposal
from toolkit.text import inert

_WIDTH = 118
# YAML reads these without quotes as the text that they are.
_PLAIN = re.compile(r"[A-Za-z./][\w./:@+-]*(?<!:)|\d+\.\d+\.\d+[\d.]*")
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"}


def recipe_text(proposal: Proposal, origin: str) -> str:
    """The file's content. `origin` says how it came about, as a sentence."""
    return data_text(proposal.recipe, [origin], proposal.choices)


def data_text(data: Mapping[str, Any], comments: Sequence[str], choices: Sequence[Choice] = ()) -> str:
    """A recipe's data as a file, with these sentences as comments above it, and the reasons of choices beside them."""
    lines = [line for comment in comments for line in _comment_lines(comment, "")]
    reasons = {choice.key: _comment(choice) for choice in choices}
    return "\n".join([*lines, *_mapping(data, "", "", reasons)]) + "\n"


def _comment(choice: Choice) -> str:
    also = f"; also: {', '.join(choice.others)}" if choice.others else ""
    return f"{choice.why}{also}"


def _mapping(data: Mapping[str, Any], path: str, indent: str, comments: Mapping[str, str]) -> Iterator[str]:
    for key, value in data.items():
        here = f"{path}.{key}" if path else key
        has_comments = any(known == here or known.startswith(f"{here}.") for known in comments)
        one_line = f"{indent}{key}: {_value(value)}"
        if isinstance(value, Mapping) and (has_comments or len(value) > 1 or len(one_line) > _WIDTH):
            yield f"{indent}{key}:"
            yield from _mapping(value, here, f"{indent}  ", comments)
            continue
        yield from _line(one_line, comments.get(here, ""), indent)


def _line(line: str, comment: str, indent: str) -> Iterator[str]:
    if not comment:
        yield line
    elif len(line) + len(comment) + len("  # ") <= _WIDTH:
        yield f"{line}  # {comment}"
    else:
        yield from _comment_lines(comment, indent)
        yield line


def _comment_lines(comment: str, indent: str) -> Sequence[str]:
    prefix = f"{indent}# "
    one_line = inert(" ".join(comment.split()))
    return textwrap.wrap(one_line, _WIDTH, initial_indent=prefix, subsequent_indent=prefix, break_on_hyphens=False)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return json.dumps(value, ensure_ascii=False)
