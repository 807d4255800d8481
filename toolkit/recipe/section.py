"""What the sections of a recipe have in common."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

LONGEST_NAME = 44
# Letters that are no marked ones of the alphabet.
_LETTERS = str.maketrans({"ß": "ss", "ø": "o", "æ": "ae", "œ": "oe", "ł": "l", "đ": "d", "ð": "d", "þ": "th"})
# SageMaker's EndpointName is at most 63 characters; `-baseline` and an 8-character digest must still fit.
RecipeName = Annotated[
    StrictStr, StringConstraints(pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$", min_length=1, max_length=LONGEST_NAME)
]
PositiveInt = Annotated[StrictInt, Field(gt=0)]
NonEmptyStr = Annotated[StrictStr, StringConstraints(min_length=1)]
# A hub id, a folder, s3://bucket/prefix/ or jumpstart:<id>; other schemes are typing errors.
ModelName = Annotated[
    StrictStr, StringConstraints(pattern=r"^(s3://[^/]+/.+|jumpstart:[a-z0-9-]+|[^:]+)$", min_length=1)
]
EngineFlag = Annotated[StrictStr, StringConstraints(pattern=r"^[a-z][a-z0-9]*([-_][a-z0-9]+)*$")]
Scalar = StrictBool | StrictInt | StrictFloat | StrictStr
FlagValue = Scalar | list[Scalar] | dict[str, Any]


def recipe_name(text: str) -> str:
    """A name for a recipe out of any text: letters without their marks, digits, and hyphens; empty if it has none."""
    plain = unicodedata.normalize("NFKD", text.lower().translate(_LETTERS))
    unmarked = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return "-".join(re.findall(r"[a-z0-9]+", unmarked))[:LONGEST_NAME].strip("-")


def one_of(names: Callable[[], Sequence[str]], shown: Callable[[], Sequence[str]] | None = None) -> BeforeValidator:
    """Refuse all but these names, which are asked for each time: more may have been registered since the last.

    The message lists the names, or those of `shown`.
    """

    def check(name: object) -> object:
        if name not in names():
            expected = ", ".join(f"'{item}'" for item in (shown or names)())
            raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
        return name

    return BeforeValidator(check)


def left_open(description: str) -> Any:
    """A key that is filled in where the file leaves it open: whoever reads a complete recipe finds a value there."""
    return Field(None, description=description, json_schema_extra=_without_default)


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


class ChangesNothing:
    """Marks a key, in its annotation, that changes nothing of what runs: a recipe's digest leaves it out."""


class Section(BaseModel):
    """A mapping of the recipe: unknown keys are errors, so that a typo never passes as a default."""

    # A section's validator is built where one is read on its own; RecipeFile's has them all in it.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def of(cls, section: Section) -> Self:
        """The section as that platform or engine declares it. The class that is read has the keys of all of them."""
        assert isinstance(section, cls), f"{type(section).__name__} has not the keys of {cls.__name__}"
        return section

    def edit(self, **changes: Any) -> Self:
        """A copy with other values of these keys. The values are not checked."""
        assert changes.keys() <= type(self).model_fields.keys(), f"no keys of {type(self).__name__}: {[*changes]}"
        return self.model_copy(update=changes)

    def changed(self) -> list[str]:
        """The keys that change what runs and are not at their defaults."""
        return [name for name, default in _defaults(type(self)).items() if getattr(self, name) != default]

    def dump(self, *, what_runs: bool = False) -> dict[str, Any]:
        """The keys as JSON data; with `what_runs` only those which change it and are not at their defaults."""
        names = set(self.changed()) if what_runs else None
        return self.model_dump(mode="json", include=names, exclude_defaults=what_runs, warnings=False)


@cache
def _defaults(section: type[Section]) -> Mapping[str, Any]:
    """Defaults of its keys that change what runs. To make one, pydantic reads the signature of what makes it."""
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in section.model_fields.items()
        if ChangesNothing not in field.metadata
    }
