"""What the checks need to know of a model: its config, its tensors' shapes and its tokenizer. Never its weights."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolkit.errors import UnreadableModel

# safetensors refuses longer headers too (its MAX_HEADER_SIZE), so a longer one is a broken file.
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class Tensor:
    """Type and shape of a stored tensor, as in a safetensors header."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape))}"

    @classmethod
    def parse(cls, text: str) -> Tensor:
        """The tensor that `str` wrote: `BF16 2048x256`."""
        dtype, _, shape = text.partition(" ")
        return cls(dtype, tuple(int(size) for size in shape.split("x") if size))


@dataclass(frozen=True)
class Tokenizer:
    """Fingerprint of a tokenizer; `size` counts its tokens."""

    size: int
    vocabulary_sha256: str
    has_chat_template: bool

    def agrees_with(self, other: Tokenizer) -> bool:
        """Whether both give the same text the same ids."""
        return self.vocabulary_sha256 == other.vocabulary_sha256


@dataclass(frozen=True)
class ModelFacts:
    """One model: `config` is its config.json, `source` says where the facts were read; never without its sizes."""

    source: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(repr=False)
    tokenizer: Tokenizer | None

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The config of the language model: multimodal models keep it one level down."""
        return _text_config(self.config)

    @property
    def hidden_size(self) -> int:
        """Values of a hidden state."""
        return int(self.text_config["hidden_size"])

    @property
    def vocab_size(self) -> int:
        """Tokens that the embedding knows."""
        return int(self.text_config["vocab_size"])

    def to_dict(self) -> dict[str, Any]:
        """The facts as they stand in a lock file."""
        return {
            "source": self.source,
            "config": dict(self.config),
            "tensors": {name: str(tensor) for name, tensor in self.tensors.items()},
            "tokenizer": asdict(self.tokenizer) if self.tokenizer else None,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelFacts:
        """The facts that `to_dict` wrote."""
        tensors = {name: Tensor.parse(text) for name, text in data["tensors"].items()}
        tokenizer = Tokenizer(**data["tokenizer"]) if data["tokenizer"] else None
        return cls(data["source"], data["config"], tensors, tokenizer)


def read_folder(folder: Path) -> ModelFacts:
    """Facts of a model folder in Hugging Face's layout. Raises UnreadableModel, which names file and fault."""
    if not folder.is_dir():
        raise UnreadableModel(f"there is no folder {folder}")
    config = _read_json(folder / "config.json")
    for key in ("hidden_size", "vocab_size"):
        if not isinstance(_text_config(config).get(key), int):
            raise UnreadableModel(f"{folder / 'config.json'} has no `{key}`", hint="It must be the model's own config.")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise UnreadableModel(f"{folder} holds no *.safetensors file", hint="Convert the weights to safetensors.")
    tensors = {name: tensor for path in weights for name, tensor in _read_header(path).items()}
    return ModelFacts(f"folder {folder.name}", config, tensors, _read_tokenizer(folder))


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = config.get("text_config")
    return nested if isinstance(nested, Mapping) else config


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UnreadableModel(f"{path} is missing") from error
    except (OSError, ValueError) as error:
        raise UnreadableModel(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise UnreadableModel(f"{path} is not a JSON object")
    return data


def _read_header(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file: 8 bytes of length, then that many bytes of JSON."""
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > _MAX_HEADER_BYTES:
                raise ValueError(f"header of {length} bytes")
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        size, found = (
            8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0),
            path.stat().st_size,
        )
        if found < size:
            raise ValueError(f"cut short, {found} of {size} bytes")
        return {name: Tensor(entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}
    except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError) as error:
        raise UnreadableModel(f"{path} is not a safetensors file: {error}", hint="Fetch the file again.") from error


def _read_tokenizer(folder: Path) -> Tokenizer | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    tokenizer = _read_json(path)
    try:
        ids: dict[str, int] = dict(tokenizer["model"].get("vocab") or {})
        ids.update({token["content"]: token["id"] for token in tokenizer.get("added_tokens") or []})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableModel(f"{path} is not a tokenizer: {error!r}", hint="Fetch the file again.") from error
    digest = hashlib.sha256(json.dumps(sorted(ids.items())).encode()).hexdigest()
    return Tokenizer(len(ids), digest, _has_chat_template(folder))


def _has_chat_template(folder: Path) -> bool:
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    config = folder / "tokenizer_config.json"
    return config.is_file() and "chat_template" in _read_json(config)
