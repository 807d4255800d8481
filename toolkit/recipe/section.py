"""What the sections of a recipe have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, StringConstraints

PositiveInt = Annotated[StrictInt, Field(gt=0)]
NonEmptyStr = Annotated[StrictStr, StringConstraints(min_length=1)]
# A hub id, a folder, s3://bucket/prefix/ or jumpstart:<id>; other schemes are typing errors.
ModelName = Annotated[
    StrictStr, StringConstraints(pattern=r"^(s3://[^/]+/.+|jumpstart:[a-z0-9-]+|[^:]+)$", min_length=1)
]


class Section(BaseModel):
    """A mapping of the recipe: unknown keys are errors, so that a typo never passes as a default."""

    # A section's validator is built where one is read on its own; RecipeFile's has them all in it.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
