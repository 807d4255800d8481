"""Read a model's facts from its files, wherever they are: config, tokenizer and safetensors headers, never weights."""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from toolkit import documents
from toolkit.errors import UnreadableModel
from toolkit.recipe import model_config
from toolkit.recipe.facts import ModelFacts, Tensor, Tokenizer, merge_tensors, text_config
from toolkit.recipe.folder import OTHER_WEIGHTS, is_read, model_files

# safetensors refuses longer headers too (its MAX_HEADER_SIZE), so a longer one is a broken file.
_MAX_HEADER_BYTES = 100_000_000
LARGEST_DOCUMENT = 200_000_000
"""Bytes of a file that is read whole. The largest tokenizer.json of a public model has about 35 MB."""

_TOKENIZER = documents.Limits(LARGEST_DOCUMENT, items=20_000_000)
_HEADER = documents.Limits(_MAX_HEADER_BYTES, items=10_000_000)
# Beside an adapter's weights (PEFT), beside those of sentence-transformers, and the weights of llama.cpp.
_ADAPTER, _EMBEDDING, _GGUF = "adapter_config.json", "modules.json", ".gguf"
# What one request brings of a safetensors file: most headers are shorter.
_FIRST_BYTES = 100_000


class ModelFiles(Protocol):
    """The files of one model. `location` precedes their names in errors; `source` and `revision` go into the lock."""

    @property
    def location(self) -> str:
        """Folder or address of the model."""

    @property
    def source(self) -> str:
        """Where the facts were read, without anything of this machine."""

    @property
    def revision(self) -> str:
        """The commit that was read, empty where there is no such thing."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes of each file on the top level."""

    def digests(self) -> Mapping[str, str]:
        """By name, what is said of a file's content where it is: `sha256:…`, `git:…` (a blob of git), or nothing."""

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Bytes `start` to before `end` of a file, at most LARGEST_DOCUMENT. Raises UnreadableModel, or OSError."""


class FolderFiles:
    """A model in a folder of this machine, in Hugging Face's layout."""

    revision = ""

    def __init__(self, folder: Path) -> None:
        if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir() raises for a name that is too long
            raise UnreadableModel(
                f"there is no folder {folder}", hint="Correct it; a relative path counts from the recipe's folder."
            )
        self._folder = folder
        self.location = str(folder)
        self.source = f"folder {folder.name}"

    def sizes(self) -> Mapping[str, int]:
        """Bytes of each file on the top level. Raises UnreadableModel for what must not be in a model folder."""
        files = model_files(self._folder)
        return {path.name: path.stat().st_size for path in files if path.parent == self._folder}

    def digests(self) -> Mapping[str, str]:
        """Nothing is said of files on this machine."""
        return {}

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        with (self._folder / name).open("rb") as stream:
            stream.seek(start)
            return stream.read(LARGEST_DOCUMENT if end is None else end - start)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a safetensors file; `start` and `end` count bytes from where the data starts."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.start


@dataclass(frozen=True)
class WeightsHeader:
    """The header of a safetensors file, whose data starts at byte `data_start`."""

    data_start: int
    metadata: Mapping[str, str]
    tensors: Mapping[str, StoredTensor]


def staged_names(names: Iterable[str], *, code: bool) -> tuple[str, ...]:
    """Those of the hub's files that an engine reads: in no folder, and no second format of the weights.

    `code` is whether it may run Python of the model.
    """
    found = [name for name in names if not name.startswith(".") and "/" not in name and is_read(name, code=code)]
    safe = any(name.endswith(".safetensors") for name in found)
    return tuple(name for name in found if not (safe and name.endswith(OTHER_WEIGHTS)))


def read_folder(folder: Path) -> ModelFacts:
    """Facts of a model folder. Raises UnreadableModel, which names file and fault."""
    return read_model(FolderFiles(folder), folder.name)


def read_model(files: ModelFiles, model: str) -> ModelFacts:
    """Facts of a model that the recipe calls `model`. Raises UnreadableModel, which names file and fault."""
    try:
        return _read_model(files, model)
    except OSError as error:
        hint = "Try again; of a folder, see who may read its files."
        raise UnreadableModel(f"{files.location} cannot be read: {error}", hint=hint) from error


def _read_model(files: ModelFiles, model: str) -> ModelFacts:
    sizes = files.sizes()
    _require_model(files, sizes)
    config = _read_json(files, sizes, "config.json")
    if wrong := model_config.problem(config):
        raise UnreadableModel(f"{files.location}/config.json: {wrong}", hint="It must be the model's own config.")
    for key in ("hidden_size", "vocab_size"):
        size = text_config(config).get(key)
        if not isinstance(size, int) or size <= 0:
            hint = "It must be the model's own config."
            raise UnreadableModel(f"{files.location}/config.json has no `{key}` that is a size", hint=hint)
    weights = [name for name in sizes if name.endswith(".safetensors")]
    others = [name for name in sizes if name.endswith(OTHER_WEIGHTS)]
    if not (weights or others):
        message = f"{files.location} holds no *.safetensors file"
        raise UnreadableModel(message, hint="Convert the weights to safetensors.")
    headers = [read_header(files, file, sizes[file]) for file in weights]
    tensors = {name: Tensor(one.dtype, one.shape) for header in headers for name, one in header.tensors.items()}
    return ModelFacts(
        model=model,
        source=files.source,
        revision=files.revision,
        config=config,
        tensors=merge_tensors(tensors) if weights else None,
        weight_bytes=sum(sizes[name] for name in weights or others),
        tokenizer=_read_tokenizer(files, sizes),
        generation_config=_read_json(files, sizes, "generation_config.json", missing={}),
    )


def _require_model(files: ModelFiles, sizes: Mapping[str, int]) -> None:
    """What people have in the place of a model. Raises UnreadableModel."""
    if _ADAPTER in sizes and "config.json" not in sizes:
        base = str(_read_json(files, sizes, _ADAPTER).get("base_model_name_or_path") or "its model")
        hint = f"Merge it with {base} (PEFT's `merge_and_unload`), and name the folder with the result."
        raise UnreadableModel(f"{files.location} is an adapter (LoRA), not a model", hint=hint)
    if _EMBEDDING in sizes and b".Pooling" in files.read(_EMBEDDING):
        message = f"{files.location} is an embedding model (its {_EMBEDDING} pools), which answers no chat"
        raise UnreadableModel(message, hint="Take a model that generates text.")
    formats = {Path(name).suffix for name in sizes if name.endswith((".safetensors", *OTHER_WEIGHTS))}
    if formats == {_GGUF}:
        message = f"{files.location} has its weights as GGUF alone, which is for llama.cpp"
        raise UnreadableModel(message, hint="Take the model that it was made from, with *.safetensors.")


def _read_json(
    files: ModelFiles, sizes: Mapping[str, int], name: str, missing: dict[str, Any] | None = None
) -> dict[str, Any]:
    path = f"{files.location}/{name}"
    if name not in sizes:
        if missing is not None:
            return missing
        raise UnreadableModel(f"{path} is missing", hint="Fetch the model with all its files.")
    limits = _TOKENIZER if name == "tokenizer.json" else documents.LIMITS
    if sizes[name] > limits.size:
        hint = f"Fetch the file again: a {name} is smaller."
        raise UnreadableModel(f"cannot read {path}: it has {sizes[name]} bytes, more than any {name}", hint=hint)
    try:
        data = documents.decode(files.read(name), limits)
    except documents.Unfit as error:
        raise UnreadableModel(f"cannot read {path}: {error}", hint="Fetch the file again.") from error
    if not isinstance(data, dict):
        raise UnreadableModel(f"{path} is not a JSON object", hint="Fetch the file again.")
    return data


def read_header(files: ModelFiles, name: str, size: int) -> WeightsHeader:
    """The header of a safetensors file of `size` bytes: 8 bytes of length, then that many bytes of JSON.

    Raises UnreadableModel, or OSError.
    """
    try:
        first = files.read(name, 0, min(size, _FIRST_BYTES))
        (length,) = struct.unpack("<Q", first[:8])
        if length > min(_MAX_HEADER_BYTES, size - 8):
            raise ValueError(f"header of {length} bytes in a file of {size}")
        rest = files.read(name, len(first), 8 + length) if 8 + length > len(first) else b""
        entries = documents.decode((first + rest)[8 : 8 + length], _HEADER)
        metadata = {key: str(value) for key, value in entries.pop("__metadata__", {}).items()}
        header = WeightsHeader(8 + length, metadata, {tensor: _stored(entry) for tensor, entry in entries.items()})
        end = header.data_start + max((tensor.end for tensor in header.tensors.values()), default=0)
        if size < end:
            raise ValueError(f"cut short, {size} of {end} bytes")
    except (ValueError, struct.error, KeyError, IndexError, TypeError, AttributeError) as error:
        path = f"{files.location}/{name}"
        raise UnreadableModel(f"{path} is not a safetensors file: {error}", hint="Fetch the file again.") from error
    return header


def _stored(entry: Mapping[str, Any]) -> StoredTensor:
    (start, end), dtype, shape = entry["data_offsets"], entry["dtype"], tuple(entry["shape"])
    sizes = (*shape, start, end - start)
    if not isinstance(dtype, str) or not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise ValueError(f"a tensor of {dtype!r} {shape!r} from {start!r} to {end!r}")
    if math.prod(shape) > 2**63:
        raise ValueError(f"a tensor of {shape!r}")
    return StoredTensor(dtype, shape, start, end)


def _read_tokenizer(files: ModelFiles, sizes: Mapping[str, int]) -> Tokenizer | None:
    if "tokenizer.json" not in sizes:
        return None
    tokenizer = _read_json(files, sizes, "tokenizer.json")
    try:
        added = tokenizer.get("added_tokens") or []
        ids = {**_vocabulary(tokenizer["model"]), **{token["content"]: int(token["id"]) for token in added}}
        special = {token["content"]: int(token["id"]) for token in added if token.get("special")}
        digest = hashlib.sha256(json.dumps(sorted(ids.items())).encode()).hexdigest()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        message = f"{files.location}/tokenizer.json is not a tokenizer: {error!r}"
        raise UnreadableModel(message, hint="Fetch the file again.") from error
    return Tokenizer(len(ids), digest, special, _chat_template_sha256(files, sizes))


def _vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    """Token to id: BPE and WordPiece have a mapping, Unigram has a list of [token, score]."""
    vocabulary = model.get("vocab") or {}
    if isinstance(vocabulary, list):
        return {entry[0]: index for index, entry in enumerate(vocabulary)}
    return {token: int(index) for token, index in vocabulary.items()}


def _chat_template_sha256(files: ModelFiles, sizes: Mapping[str, int]) -> str | None:
    for name in ("chat_template.jinja", "chat_template.json"):
        if name in sizes:
            return hashlib.sha256(files.read(name, 0, min(sizes[name], documents.LIMITS.size))).hexdigest()
    template = _read_json(files, sizes, "tokenizer_config.json", missing={}).get("chat_template")
    return hashlib.sha256(json.dumps(template).encode()).hexdigest() if template else None
