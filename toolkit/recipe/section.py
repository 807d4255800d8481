"""What the sections of a recipe have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

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


def one_of(names: Callable[[], Sequence[str]], shown: Callable[[], Sequence[str]] | None = None) -> BeforeValidator:
    """Refuses what is not registered when a recipe is read, which may be more than when this module was loaded.

    The message lists the names, or those of `shown`.
    """

    def check(name: object) -> object:
        if name not in names():
            expected = ", ".join(f"'{item}'" for item in (shown or names)())
            raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
        return name

    return BeforeValidator(check)


class Section(BaseModel):
    """A mapping of the recipe: unknown keys are errors, so that a typo never passes as a default."""

    # A section's validator is built where one is read on its own; RecipeFile's has them all in it.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
