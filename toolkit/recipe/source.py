"""Where a recipe's models are: in a folder, on the Hugging Face hub, in S3, or in JumpStart."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class ModelSource:
    """A model as a recipe names it. `revision` is a commit, branch or tag of the hub; None takes the one in the lock.

    `written` is a Hugging Face id, `s3://bucket/prefix/`, `jumpstart:<id>`, or an absolute folder. `files` names the
    files that are staged, as far as a lock knows them.
    """

    kind: Literal["folder", "hub", "s3", "jumpstart"]
    written: str
    revision: str | None = None
    files: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def name(self) -> str:
        """The last part of where it is, for names and titles."""
        return re.split(r"[/:]", self.written.rstrip("/"))[-1]

    @property
    def commit(self) -> str | None:
        """The revision if it is a whole commit, which always means the same; None for a branch or tag."""
        return self.revision if is_commit(self.revision or "") else None

    @property
    def folder(self) -> Path | None:
        """The folder on this machine, None when it is elsewhere."""
        return Path(self.written) if self.kind == "folder" else None

    def __str__(self) -> str:
        return self.written


def is_commit(revision: str) -> bool:
    """Whether a revision is a whole commit, not a branch or tag."""
    return _COMMIT.fullmatch(revision) is not None


def model_source(written: str, base: Path, revision: str | None = None) -> ModelSource:
    """The source that a recipe in the folder `base` names.

    `owner/name` means the hub; a folder of that shape is written `./owner/name`.
    """
    if written.startswith("s3://"):
        return ModelSource("s3", written)
    if written.startswith("jumpstart:"):
        return ModelSource("jumpstart", written)
    if _HUB_ID.fullmatch(written):
        return ModelSource("hub", written, revision)
    return ModelSource("folder", str((base / Path(written).expanduser()).resolve()))
