"""The edit for text that is not YAML: the parser itself names a line after the mistake, and no edit."""

from __future__ import annotations

import json
import re

from ruamel.yaml.error import MarkedYAMLError

from toolkit.recipe.assemble import recipe_keys
from toolkit.recipe.schema import RecipeFile

_LINE = re.compile(r"(?P<indent>\s*(?:- )?)(?P<key>[\w-]+):(?P<space>\s*)(?P<value>.*)")
_QUOTES = ("'", '"')


def yaml_hint(text: str, error: MarkedYAMLError, schema: type[RecipeFile]) -> str:
    """The edit, as far as the line shows what was meant."""
    lines = text.splitlines()
    number = error.problem_mark.line if error.problem_mark else 0
    line = lines[number] if number < len(lines) else ""
    if line.startswith("---"):
        return f"A recipe is one document: remove line {number + 1} and all below it."
    tabs = [str(at) for at, found in enumerate(lines, 1) if re.match(r" *\t", found)]
    if tabs:
        return f"Indent with spaces: replace the tab in line {', '.join(tabs)} with two spaces."
    column = error.problem_mark.column if error.problem_mark else 0
    return (
        _missing_space(lines, schema)
        or _unclosed(error)
        or _too_deep(lines, number)
        or _one_value(line, schema)
        or _sign(line, column)
        or "Mend the indentation or quotes."
    )


def _missing_space(lines: list[str], schema: type[RecipeFile]) -> str:
    """`name:mine` is one word to YAML."""
    for number, line in enumerate(lines, 1):
        found = _LINE.fullmatch(line)
        if found and not found["space"] and found["value"] and found["key"] in recipe_keys(schema):
            return f"Line {number} needs a space after the colon: write `{found['key']}: {found['value']}`."
    return ""


def _unclosed(error: MarkedYAMLError) -> str:
    """A quote or bracket that has no end."""
    if not error.context_mark:
        return ""
    line, context = error.context_mark.line + 1, error.context or ""
    if "quoted scalar" in context:
        return f"Close the quote that begins in line {line}."
    if "flow" in context:
        opened, closed = ("{", "}") if "mapping" in context else ("[", "]")
        return f"Close the `{opened}` of line {line} with `{closed}`."
    return ""


def _one_value(line: str, schema: type[RecipeFile]) -> str:
    """A value with a colon or a sign of YAML's in it."""
    found = _LINE.fullmatch(line)
    if not found or not found["value"] or found["value"].startswith(_QUOTES):
        return ""
    inner = _LINE.fullmatch(found["value"])
    if inner and inner["key"] in recipe_keys(schema):
        return f"Put a mapping in one line into braces: write `{found['key']}: {{{found['value']}}}`."
    if found["value"].startswith(("{", "[", "&", "*", "!")):
        return ""
    return f"Put the text in quotes: write `{found['key']}: {json.dumps(found['value'], ensure_ascii=False)}`."


def _sign(line: str, column: int) -> str:
    """A word that begins with a sign that YAML keeps for itself."""
    word = re.match(r"[@`%][^,}\]\s]*", line[column:])
    return f'Put it in quotes: write `"{word[0]}"`.' if word else ""


def _too_deep(lines: list[str], number: int) -> str:
    """A key that is indented below one that has its value already."""
    below = _LINE.fullmatch(lines[number]) if 0 < number < len(lines) else None
    above = _LINE.fullmatch(lines[number - 1]) if below else None
    if not (below and above and above["value"] and len(below["indent"]) > len(above["indent"])):
        return ""
    spaces = len(below["indent"]) - len(above["indent"])
    return f"Remove {spaces} of the spaces that line {number + 1} begins with: `{above['key']}` has its value already."
