"""Will AWS accept the recipe's tags? The local platform has the same limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.recipe.recipe import Recipe

# botocore 1.44.5, service model of SageMaker: TagKey, TagValue, TagList. The toolkit adds four tags.
_KEY_CHARACTERS, _VALUE_CHARACTERS, _MOST = 128, 256, 50 - 4
_ALLOWED = re.compile(r"[\w\s.:/=+@-]*")
_RESERVED = ("aws:", "toolkit:")


def check_tags(recipe: Recipe) -> Iterator[Finding]:
    if len(recipe.tags) > _MOST:
        message = f"{len(recipe.tags)} tags are too many: at most {_MOST} are allowed beside the toolkit's own"
        yield Finding("sagemaker.tags", message, "tags", hint="Remove some.")
    for key, value in recipe.tags.items():
        if problem := _problem(key, value):
            yield Finding("sagemaker.tags", problem, f"tags.{key}", hint="Change it, or remove the tag.")


def _problem(key: str, value: str) -> str | None:
    if reserved := next((prefix for prefix in _RESERVED if key.lower().startswith(prefix)), None):
        return f"keys that begin with `{reserved}` are reserved"
    if len(key) > _KEY_CHARACTERS or len(value) > _VALUE_CHARACTERS:
        return f"a key may have at most {_KEY_CHARACTERS} characters, a value {_VALUE_CHARACTERS}"
    if not (_ALLOWED.fullmatch(key) and _ALLOWED.fullmatch(value)):
        return "keys and values may contain only letters, digits, spaces and _ . : / = + - @"
    return None
