"""Rename the tensors of safetensors files. Bytes are streamed, so memory use does not depend on the file's size.

A file is 8 bytes of length (little-endian), that many bytes of JSON, then the tensors' data without gaps
(https://huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from toolkit import documents
from toolkit.errors import UnreadableModel
from toolkit.recipe.model_files import FolderFiles, StoredTensor, WeightsHeader, read_header

INDEX = "model.safetensors.index.json"
_CHUNK_BYTES = 1 << 20
_AGAIN = "Fetch the file again."
_INDEX_LIMITS = documents.Limits(items=2_000_000)


@dataclass(frozen=True)
class _Index:
    weight_map: dict[str, str]


@dataclass(frozen=True)
class Shard:
    """One safetensors file."""

    path: Path
    header: WeightsHeader

    @property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """The position of each of its tensors."""
        return self.header.tensors


def read_shards(folder: Path) -> tuple[Shard, ...]:
    """Headers of all safetensors files in `folder`. Raises UnreadableModel, also if its index names a missing file."""
    files = FolderFiles(folder)
    sizes = {name: size for name, size in files.sizes().items() if name.endswith(".safetensors")}
    headers = {name: read_header(files, name, size) for name, size in sizes.items()}
    shards = tuple(Shard(folder / name, header) for name, header in headers.items())
    if not shards:
        raise UnreadableModel(f"{folder} contains no *.safetensors file", hint="Export the weights as safetensors.")
    index = folder / INDEX
    if index.is_file():
        try:
            named = set(documents.parse(_Index, documents.read_file(index, _INDEX_LIMITS)).weight_map.values())
        except (OSError, ValueError) as error:
            raise UnreadableModel(f"{index} is not an index of safetensors files: {error}", hint=_AGAIN) from error
        if missing := sorted(named - {shard.path.name for shard in shards}):
            raise UnreadableModel(f"{folder / missing[0]} is missing, but {INDEX} names it", hint=_AGAIN)
    return shards


def read_tensor(shard: Shard, name: str) -> bytes:
    """The tensor's stored bytes."""
    stored = shard.tensors[name]
    with shard.path.open("rb") as source:
        source.seek(shard.header.data_start + stored.start)
        return source.read(stored.size)


def write_shards(shards: tuple[Shard, ...], folder: Path, names: Mapping[str, str]) -> None:
    """Write the tensors in `names` (old name to new) to `folder`: files of the same names, and an index if several."""
    for shard in shards:
        _write_shard(shard, folder / shard.path.name, names)
    if len(shards) > 1:
        kept = [(shard, old) for shard in shards for old in shard.tensors if old in names]
        size = sum(shard.tensors[old].size for shard, old in kept)
        weight_map = {names[old]: shard.path.name for shard, old in kept}
        text = json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}, indent=2)
        (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def _write_shard(shard: Shard, path: Path, names: Mapping[str, str]) -> None:
    stored = sorted(shard.tensors.items(), key=lambda item: item[1].start)
    kept = [(names[old], tensor) for old, tensor in stored if old in names]
    header: dict[str, Any] = {"__metadata__": shard.header.metadata} if shard.header.metadata else {}
    end = 0
    for new, tensor in kept:
        start, end = end, end + tensor.size
        header[new] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # padding, so that the data is aligned as safetensors does it
    with shard.path.open("rb") as source, path.open("wb") as sink:
        sink.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in kept:
            source.seek(shard.header.data_start + tensor.start)
            _copy(source, sink, tensor.size)


def _copy(source: BinaryIO, sink: BinaryIO, size: int) -> None:
    while size:
        chunk = source.read(min(size, _CHUNK_BYTES))
        if not chunk:  # the header was checked against the file size, so the file was truncated while we read it
            hint = "Begin again when nothing writes to them."
            raise UnreadableModel("the head's weights became shorter while they were copied", hint=hint)
        sink.write(chunk)
        size -= len(chunk)
