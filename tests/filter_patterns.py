"""CloudWatch Logs' filter patterns, as far as ours need them."""

from __future__ import annotations

import re


def extract(pattern: str, line: str) -> dict[str, str] | None:
    """The fields of a space-delimited pattern that begins with an ellipsis, None where the line does not match.

    As documented: what stands in brackets or quotes is one field, and the ellipsis takes any number of them.
    """
    ellipsis, *fields = [field.strip() for field in pattern.strip("[]").split(", ")]
    assert ellipsis == "..."
    words = re.findall(r'\[[^\]]*\]|"[^"]*"|\S+', line)[-len(fields) :]
    found = {}
    for field, word in zip(fields, words, strict=True):
        name, _, wanted = field.partition("=")
        if wanted and word != wanted.strip('"'):
            return None
        found[name] = word
    return found
