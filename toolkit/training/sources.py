"""Where training data lies: files, folders, data sets of the Hugging Face hub, and prefixes in S3."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from toolkit.errors import UsageError, reason
from toolkit.files import writing
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.rows import ENDINGS, Row, rows
from toolkit.training.conversations import COLUMNS

Objects = Callable[[str], Iterable[tuple[str, bytes]]]
"""Reads every object below a prefix such as `s3://bucket/data-capture/`: its key and content, oldest first."""

HubDataset = Callable[[str, str | None], HubFiles]

_DATASET = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_PIECE_BYTES = 64 * 1024**2


def on_the_hub(repo: str, revision: str | None) -> HubFiles:
    """A data set, read with the user's own token."""
    return HubFiles(repo, revision, hub_client(), "datasets")


def source_rows(
    source: str, downloads: Path, objects: Objects | None = None, dataset: HubDataset = on_the_hub
) -> Iterator[Row]:
    """The rows of a source as they are read. Raises UsageError, HubError, or PlatformError for a full disk.

    `source` is a file, a folder of files, `hf://owner/name[@revision]`, or `s3://bucket/prefix/`, which `objects` reads
    with a platform's own client. Files of the hub are kept in the folder `downloads`.
    """
    if source.startswith("s3://"):
        return _object_rows(source, objects)
    if found := _DATASET.fullmatch(source):
        files = dataset(found["repo"], found["revision"])
        return (row for path, name in _downloaded(files, found["repo"], downloads) for row in _file_rows(path, name))
    path = Path(source)
    paths = _files_below(path) if path.is_dir() else [path]
    return (row for one in paths for row in _file_rows(one, str(one)))


def _file_rows(path: Path, name: str) -> Iterator[Row]:
    found = False
    try:
        with path.open("rb") as stream:
            for row in rows(stream, name, COLUMNS):
                found = True
                yield row
    except FileNotFoundError as error:
        hint = "Correct `training.data`; a relative path counts from the recipe's folder."
        raise UsageError(f"file {name} does not exist", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{name} cannot be read: {reason(error)}", hint="Correct `training.data`.") from error
    if not found:
        hint = 'Write a conversation on each line: {"messages": [{"role": "user", "content": "Name three rivers."}]}.'
        raise UsageError(f"{name} has no rows", hint=hint)


def _files_below(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not found:
        hint = f"Files of conversations end in one of {', '.join(ENDINGS)}. Correct `training.data`."
        raise UsageError(f"the folder {folder} has no file of conversations", hint=hint)
    return found


def _object_rows(prefix: str, objects: Objects | None) -> Iterator[Row]:
    if objects is None:
        hint = "Train on SageMaker, or copy the files and give their folder as `training.data`."
        raise UsageError(f"{prefix} can be read only with a platform that has S3", hint=hint)
    found = False
    for key, content in objects(prefix):
        for row in rows(io.BytesIO(content), key, COLUMNS):
            found = True
            yield row
    if not found:
        hint = "Correct `training.data`; for captured requests, give the prefix of the endpoint's data capture."
        raise UsageError(f"there are no rows below {prefix}", hint=hint)


def _downloaded(files: HubFiles, repo: str, downloads: Path) -> Iterator[tuple[Path, str]]:
    """The data set's files, of its training split if it has one, with names for errors."""
    found = sorted(name for name in files.file_sizes() if PurePosixPath(name).suffix in ENDINGS)
    names = [name for name in found if "train" in PurePosixPath(name).name] or found
    if not names:
        hint = f"Files of conversations end in one of {', '.join(ENDINGS)}. Give another data set."
        raise UsageError(f"{repo} on the hub has no file of conversations", hint=hint)
    for name in names:
        yield _download(files, name, downloads / f"{repo.replace('/', '--')}-{files.revision[:12]}"), f"{repo}, {name}"


def _download(files: HubFiles, name: str, folder: Path) -> Path:
    """The file in that folder, brought in pieces; one that is there whole is not brought again."""
    size = files.file_sizes()[name]
    path = folder / name.replace("/", "--")
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    if path.is_file() and path.stat().st_size == size:
        return path
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as stream:
            for start in range(0, size, _PIECE_BYTES):
                stream.write(files.read(name, start, min(start + _PIECE_BYTES, size)))
        beside.replace(path)
    return path
