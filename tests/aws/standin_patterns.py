"""CloudWatch Logs' filter patterns: whether one can be read, and the names of its fields.

User guide, "Filter pattern syntax for metric filters, subscription filters, and filter log events".
"""

from __future__ import annotations

import re

_TERM = re.compile(r'[?-]?(?:"(?:[^"\\]|\\.)*"|%[^%]+%|\w+)')
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|%[^%]+%')


def is_broken(pattern: str) -> bool:
    """Whether CloudWatch Logs refuses it."""
    text = pattern.strip()
    bare = _QUOTED.sub("", text)
    if '"' in bare:
        return True
    if text.startswith("["):
        return not _is_list(text, bare)
    if text.startswith("{"):
        return not _is_selection(text, bare)
    return _TERM.sub("", text).strip() != ""


def fields_of(pattern: str) -> list[str]:
    """The names of a space-delimited pattern's fields."""
    text = pattern.strip()
    if not text.startswith("["):
        return []
    return [found[0] for field in text.strip("[]").split(",") if (found := re.match(r"\w+", field.strip()))]


def _is_list(text: str, bare: str) -> bool:
    return text.endswith("]") and bare.count("[") == bare.count("]") == 1


def _is_selection(text: str, bare: str) -> bool:
    balanced = bare.count("(") == bare.count(")") and bare.count("{") == bare.count("}") == 1
    return text.endswith("}") and balanced and "$." in bare
