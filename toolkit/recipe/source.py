"""Where a recipe's models are: in a folder, on the Hugging Face hub, in S3, or in JumpStart."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictStr, StringConstraints

from toolkit.recipe.section import ModelName, Section

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")

Revision = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$")]
MODEL = "Hugging Face id, s3://bucket/prefix/, jumpstart:<id>, or a folder relative to the recipe (`./…`)"
REVISION = "commit, branch or tag on the hub; default: the commit in the lock"


class ModelSource(Section):
    """A model as a recipe names it. In a complete recipe a folder's path is absolute."""

    model: ModelName = Field(description=MODEL)
    revision: Revision | None = Field(None, description=REVISION)

    @property
    def kind(self) -> Literal["folder", "hub", "s3", "jumpstart"]:
        """`owner/name` means the hub; a folder of that shape is written `./owner/name`."""
        if self.model.startswith("s3://"):
            return "s3"
        if self.model.startswith("jumpstart:"):
            return "jumpstart"
        return "hub" if _HUB_ID.fullmatch(self.model) else "folder"

    @property
    def name(self) -> str:
        """The last part of where it is, for names and titles."""
        return re.split(r"[/:]", self.model.rstrip("/"))[-1]

    @property
    def commit(self) -> str | None:
        """The revision if it is a whole commit, which always means the same; None for a branch or tag."""
        return self.revision if is_commit(self.revision or "") else None

    @property
    def folder(self) -> Path | None:
        """The folder on this machine, None when it is elsewhere."""
        return Path(self.model) if self.kind == "folder" else None

    def __str__(self) -> str:
        return self.model


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit, not a branch or tag."""
    return _COMMIT.fullmatch(revision) is not None


def model_source(model: str, base: Path) -> ModelSource:
    """The source that a recipe in the folder `base` names."""
    written = ModelSource.model_construct(model=model)
    return written.edit(model=absolute(base, model)) if written.kind == "folder" else written


def from_folder(base: Path, path: Path) -> str:
    """How a file of the folder `base` names a path: with a leading `./`, or upwards."""
    written = os.path.relpath(path.resolve(), base.resolve())
    return written if written.startswith("..") else f"./{written}"


def absolute(base: Path, path: str) -> str:
    """A path that is written in a file of the folder `base`, from the root."""
    return str((base / Path(path).expanduser()).resolve())
