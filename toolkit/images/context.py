"""The folder that Docker and buildah build from: a Dockerfile, and rootfs/ with what it copies."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from toolkit.errors import BuildError
from toolkit.images.reference import parse
from toolkit.images.spec import ContextFile, ImageSpec
from toolkit.images.wheels import fetch_wheels

EPOCH = 0  # of every file and of the image itself, in seconds: the same image has the same digest tomorrow


@contextmanager
def build_context(spec: ImageSpec) -> Iterator[Path]:
    """The folder, until the block ends. Raises BuildError."""
    with ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolkit-build-")))
            context = folder / "context"
            context.mkdir()
            (context / "Dockerfile").write_text(spec.dockerfile, encoding="utf-8")
            _write({**spec.files, **fetch_wheels(spec.wheels, spec.python, folder)}, context / "rootfs")
        except OSError as error:
            hint = "Make room, or set TMPDIR to a folder of a disk that has it."
            raise BuildError(f"cannot write the build context: {error}", hint=hint) from error
        yield context


def build_arguments(spec: ImageSpec) -> list[str]:
    """The options that give the Dockerfile its ARGs: the base, and the time where it asks for one."""
    base = parse(spec.base)
    # buildah takes no reference that has both
    found = {"BASE_IMAGE": str(replace(base, tag=None) if base.digest else base)}
    if "ARG SOURCE_DATE_EPOCH" in spec.dockerfile:
        found["SOURCE_DATE_EPOCH"] = str(EPOCH)
    return [option for name, value in found.items() for option in ("--build-arg", f"{name}={value}")]


def _write(files: dict[str, ContextFile], root: Path) -> None:
    """Files below `root` with their modes; folders are open to all, as they are in images."""
    root.mkdir()
    for path, file in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.source is not None:
            shutil.copyfile(file.source, target)
        else:
            target.write_bytes(file.content or b"")
        target.chmod(file.mode)
    for entry in (root, *root.rglob("*")):
        if entry.is_dir():
            entry.chmod(0o755)
        os.utime(entry, (EPOCH, EPOCH))
