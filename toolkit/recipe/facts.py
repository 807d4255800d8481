"""What the checks need to know of a model: its config, its tensors' shapes and its tokenizer. Never its weights."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import Any

from pydantic import TypeAdapter

from toolkit.recipe import model_config

_INDEX = re.compile(r"(?<=\.)\d+(?=\.)")

_COMMIT = re.compile(r"[0-9a-f]*")


@dataclass(frozen=True)
class Tensor:
    """Type and shape of a stored tensor, as in a safetensors header; `count` of them are alike."""

    dtype: str
    shape: tuple[int, ...]
    count: int = 1

    @property
    def numel(self) -> int:
        """Number of elements of one of them."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        text = f"{self.dtype} {'x'.join(map(str, self.shape))}"
        return text if self.count == 1 else f"{text} *{self.count}"

    @classmethod
    def parse(cls, text: str) -> Tensor:
        """The tensor that `str` wrote: `BF16 2048x256`, or `BF16 2048x256 *48`."""
        dtype, _, rest = text.partition(" ")
        shape, _, count = rest.partition(" *")
        return cls(dtype, tuple(int(size) for size in shape.split("x") if size), int(count or 1))


@dataclass(frozen=True)
class Tokenizer:
    """Fingerprint of a tokenizer; `size` counts its tokens."""

    size: int
    vocabulary_sha256: str
    special_tokens: Mapping[str, int]
    chat_template_sha256: str | None

    def agrees_with(self, other: Tokenizer) -> bool:
        """Whether both give the same text the same ids."""
        return self.vocabulary_sha256 == other.vocabulary_sha256


@dataclass(frozen=True)
class ModelFacts:
    """One model, as far as it is known; never without its sizes.

    `model` is the recipe's word for it, `source` says where the facts were read. `config` is its config.json. In
    `tensors`, several that are alike are one with a range in its name (`layers.{0-23}.mlp.up_proj.weight`); None if
    unknown. `weight_bytes` is the stored size of all weights. `partial` facts are curated from publications: what they
    lack may be there in the model, and `unverified` says which of them nobody has checked. `revision` is the hub's
    commit that was read, `wanted` the branch, tag or commit that was asked for; empty if unknown. `files` are the names
    of the hub's files that staging copies; `others` are files, there or in S3, that an engine does not read, or only
    reads as code to run. Both are empty if unknown.
    """

    model: str
    source: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor] | None = field(repr=False)
    tokenizer: Tokenizer | None
    weight_bytes: int | None = None
    revision: str = ""
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    unverified: tuple[str, ...] = ()
    wanted: str = ""
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __hash__(self) -> int:
        """So that what is computed of facts can be kept by them: equal ones are of one model."""
        return hash((self.model, self.revision))

    @property
    def text_config(self) -> Mapping[str, Any]:
        """The config of the language model: multimodal models keep it one level down."""
        return text_config(self.config)

    @property
    def hidden_size(self) -> int:
        """Values of a hidden state."""
        return int(self.text_config["hidden_size"])

    @property
    def vocab_size(self) -> int:
        """Tokens that the embedding knows."""
        return int(self.text_config["vocab_size"])

    @property
    def architecture(self) -> str:
        """The first that its config.json names; empty if it names none."""
        listed = self.config.get("architectures")
        return str(listed[0]) if isinstance(listed, list) and listed else ""

    @property
    def ropes(self) -> Mapping[str, Mapping[str, Any]]:
        """Its rotary embeddings with a factor, by their kind."""
        rope = self.text_config.get("rope_parameters") or self.text_config.get("rope_scaling") or {}
        if not isinstance(rope, Mapping) or "gemma3" in str(self.text_config.get("model_type")):
            return {}
        layers = [item for item in rope.values() if isinstance(item, Mapping)] or [rope]  # by kind of layers
        return {str(item.get("rope_type", item.get("type"))): item for item in layers if item.get("factor")}

    @property
    def rope_kinds(self) -> set[str]:
        """Kinds of those. Newer ones count the factor in `max_position_embeddings` already."""
        return {*self.ropes}

    def to_dict(self) -> dict[str, Any]:
        """The facts as they stand in a lock file."""
        tensors = None if self.tensors is None else {name: str(tensor) for name, tensor in self.tensors.items()}
        names = {"files": list(self.files), "others": list(self.others)}
        known = {key: value for key, value in asdict(self).items() if key not in names}
        return {**known, "tensors": tensors, **{key: listed for key, listed in names.items() if listed}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelFacts:
        """The facts that `to_dict` wrote. Raises KeyError, TypeError or ValueError when it is something else."""
        if wrong := model_config.problem(data["config"]):
            raise ValueError(f"config: {wrong}")
        if not all(text_config(data["config"]).get(key) for key in ("hidden_size", "vocab_size")):
            raise ValueError("config has no `hidden_size` or no `vocab_size`")
        tensors = data["tensors"]
        tokenizer = data["tokenizer"]
        facts = {
            **data,
            "tensors": None if tensors is None else {name: Tensor.parse(text) for name, text in tensors.items()},
            "tokenizer": Tokenizer(**tokenizer) if tokenizer else None,
            "unverified": tuple(data["unverified"]),
            "files": tuple(data.get("files", ())),
            "others": tuple(data.get("others", ())),
        }
        read = _validator().validate_python(facts)
        if not _COMMIT.fullmatch(read.revision):  # a branch may move, and anybody can open a pull request's
            raise ValueError(f"revision: {read.revision!r} is not a commit")
        if (read.weight_bytes or 0) < 0:
            raise ValueError("weight_bytes is less than 0")
        return read


@cache
def _validator() -> TypeAdapter[ModelFacts]:
    return TypeAdapter(ModelFacts)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config.json that describes the language model (speculators heads: their decoder)."""
    for key in ("text_config", "transformer_layer_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping):
            return nested
    return config


@dataclass(frozen=True)
class Lock:
    """Facts of the recipe's models; `drafter` is None where the recipe names none.

    `images` has the digests of images that are not built for the recipe, by their address with its tag; `wheels` those
    of the packages of `container.wheels`, by their pin.
    """

    target: ModelFacts
    drafter: ModelFacts | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    wheels: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The content of a lock file."""
        digests = {key: dict(found) for key, found in (("images", self.images), ("wheels", self.wheels)) if found}
        return {"target": self.target.to_dict(), "drafter": self.drafter.to_dict() if self.drafter else None, **digests}


def merge_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that differ in their layer's or expert's index only, merged: a large mixture of experts has 37,000.

    Sorted by name. `layers.0.w` to `layers.23.w` become `layers.{0-23}.w`. What forms no full grid of indices stays as
    it is.
    """
    alike: dict[tuple[str, Tensor], list[tuple[int, ...]]] = defaultdict(list)
    for name, tensor in tensors.items():
        indices = tuple(int(index) for index in _INDEX.findall(name))
        alike[_INDEX.sub("{}", name), tensor].append(indices)
    entries: dict[str, Tensor] = {}
    for (pattern, tensor), found in alike.items():
        axes = [sorted(set(axis)) for axis in zip(*found, strict=True)]
        if len(found) > 1 and len(found) == math.prod(map(len, axes)):
            entries[_fill(pattern, [_ranges(axis) for axis in axes])] = replace(tensor, count=len(found))
        else:
            entries |= {_fill(pattern, [str(index) for index in indices]): tensor for indices in found}
    return dict(sorted(entries.items()))


def _fill(pattern: str, texts: Iterable[str]) -> str:
    parts = pattern.split("{}")
    return "".join(part + text for part, text in zip(parts, [*texts, ""], strict=True))


def _ranges(indices: Sequence[int]) -> str:
    """`[0, 1, 2, 5]` as `{0-2,5}`, one index as itself."""
    if len(indices) == 1:
        return str(indices[0])
    runs = [[index for _, index in run] for _, run in groupby(enumerate(indices), lambda pair: pair[1] - pair[0])]
    return "{" + ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) + "}"
