"""Training samples on disk, and the target's hidden states beside them.

A folder such as `train/` holds shards:

    samples-00000.safetensors   input_ids int32 [tokens], loss_mask uint8 [tokens], offsets int64 [samples + 1],
                                origins int64 [samples, 2]: conversation, and number of its source in `sources`
    states-00000.safetensors    hidden_states [tokens, aux x H], last_hidden_states [tokens, H]: of the samples of a
                                shard, or of those that some steps read (`extraction`)
    index.json                  written last: a folder without it is not complete

`loss_mask` is 1 where the token is one that the target generates. `hidden_states` are the target's auxiliary hidden
states side by side, in ascending order of layers; `last_hidden_states` is the state after its last layer, before the
final norm. Every file is written in one step, so what was interrupted continues with the first shard that is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.files import write_whole, writing

SHARD_TOKENS = 32_768
"""Tokens of a shard, more or less: its hidden states are written at once, about 1 GB of an 8B model's in bfloat16."""

INDEX = "index.json"
TRAIN, HELD_OUT = "train", "held-out"
"""The two folders of a job."""

Pieces = tuple[tuple[int, ...], ...]
"""Samples by their numbers: those of each file of hidden states."""


@dataclass(frozen=True)
class Sample:
    """One sequence: `input_ids` int32 [tokens], `loss_mask` uint8 [tokens], 1 where the target generates the token."""

    input_ids: Tensor
    loss_mask: Tensor


class Origin(NamedTuple):
    """Where a sample comes from: the number of its conversation, of which it may be a part, and the data's source."""

    conversation: int
    source: str = ""


@dataclass(frozen=True)
class States:
    """The target's hidden states of one sample or shard: [tokens, aux x H], and [tokens, H] before the final norm."""

    hidden_states: Tensor
    last_hidden_states: Tensor


Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Contents:
    """What a complete folder holds. `tokenizer` is the digest of the tokenizer that made it, `sources` are names."""

    __pydantic_config__ = documents.NO_OTHER_KEYS

    tokenizer: str
    shards: Count
    samples: Count
    tokens: Count
    trained_tokens: Count
    sources: tuple[str, ...] = ()


class SampleWriter:
    """Writes samples to a folder, shard by shard; used as a context, whose end completes the folder."""

    def __init__(self, folder: Path, tokenizer: str, shard_tokens: int = SHARD_TOKENS) -> None:
        self._folder, self._tokenizer, self._shard_tokens = folder, tokenizer, shard_tokens
        self._pending: list[tuple[Sample, int, int]] = []
        self._sources: dict[str, int] = {}
        self._shards = self._samples = self._tokens = self._trained = self._pending_tokens = 0

    def __enter__(self) -> SampleWriter:
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / INDEX).unlink(missing_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is not None:
            return
        if self._pending:
            self._write_shard()
        sources = tuple(self._sources)
        contents = Contents(self._tokenizer, self._shards, self._samples, self._tokens, self._trained, sources)
        write_whole(self._folder / INDEX, json.dumps(asdict(contents), indent=2) + "\n")

    def add(self, sample: Sample, origin: Origin | None = None) -> None:
        """Write the sample, with others of its shard. Without an origin it is a conversation of its own."""
        conversation, source = origin or Origin(self._samples)
        self._pending.append((sample, conversation, self._sources.setdefault(source, len(self._sources))))
        self._samples += 1
        self._trained += int(sample.loss_mask.sum())
        self._pending_tokens += len(sample.input_ids)
        if self._pending_tokens >= self._shard_tokens:
            self._write_shard()

    def _write_shard(self) -> None:
        lengths = torch.tensor([0, *(len(sample.input_ids) for sample, *_ in self._pending)])
        tensors = {
            "input_ids": torch.cat([sample.input_ids for sample, *_ in self._pending]).to(torch.int32),
            "loss_mask": torch.cat([sample.loss_mask for sample, *_ in self._pending]).to(torch.uint8),
            "offsets": lengths.cumsum(0),
            "origins": torch.tensor([origin for _, *origin in self._pending]),
        }
        metadata = {"tokenizer": self._tokenizer, "count": str(len(self._pending))}
        write_tensors(samples_file(self._folder, self._shards), tensors, metadata)
        self._tokens += self._pending_tokens
        self._shards, self._pending, self._pending_tokens = self._shards + 1, [], 0


class Samples:
    """The samples of a complete folder, in any order, each read when it is asked for. Raises UsageError.

    `pieces` are the samples that have hidden states, by file; by default all, by shard.
    """

    def __init__(self, folder: Path, pieces: Pieces | None = None) -> None:
        self.folder = folder
        self.contents = read_contents(folder)
        self._offsets: list[list[int]] = []
        self._starts = [0]
        self._highest: list[int] = []
        self._origins: list[Origin] = []
        for shard in range(self.contents.shards):
            found = read_shard(folder, shard)
            self._offsets.append(found.offsets.tolist())
            self._starts.append(self._starts[-1] + len(found.offsets) - 1)
            self._highest.append(int(found.input_ids.max()))
        if (len(self), sum(self.lengths)) != (self.contents.samples, self.contents.tokens):
            message = f"{folder / INDEX} is of other samples: it says {self.contents.samples} of them"
            raise UsageError(f"{message}, and there are {len(self)}", hint=_DAMAGED)
        for shard in range(self.contents.shards):
            self._origins += self._read_origins(shard)
        self.pieces = self.shards if pieces is None else pieces
        self._states_at = self._places()

    @property
    def shards(self) -> Pieces:
        """The samples of each shard."""
        return tuple(tuple(range(first, end)) for first, end in pairwise(self._starts))

    @property
    def lengths(self) -> list[int]:
        return [end - start for offsets in self._offsets for start, end in pairwise(offsets)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[Sample]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Sample:
        shard, start, end = self._find(index)
        tensors = read_tensors(samples_file(self.folder, shard), ("input_ids", "loss_mask"), start, end)
        return Sample(**tensors)

    def origin(self, index: int) -> Origin:
        """Where a sample comes from."""
        return self._origins[index]

    def _read_origins(self, shard: int) -> list[Origin]:
        """Of a file of an earlier version, every sample is taken for a conversation of its own."""
        path, (first, end) = samples_file(self.folder, shard), self._starts[shard : shard + 2]
        if "origins" not in tensor_names(path):
            return [Origin(index) for index in range(first, end)]
        found, sources = read_tensors(path, ("origins",))["origins"], self.contents.sources
        shaped = found.dtype == torch.int64 and found.shape == (end - first, 2)
        if not shaped or found.min() < 0 or found[:, 1].max() >= len(sources):
            raise _damaged(path, "its origins are not those of its samples")
        return [Origin(conversation, sources[source]) for conversation, source in found.tolist()]

    def states(self, index: int) -> States:
        """Hidden states of one sample. They have to be extracted before."""
        piece, start, end = self._states_at[index]
        return States(**read_tensors(states_file(self.folder, piece), _STATES, start, end))

    def _places(self) -> dict[int, tuple[int, int, int]]:
        """Where a sample's states lie: in which piece, and from which row to which."""
        lengths, places = self.lengths, dict[int, tuple[int, int, int]]()
        for number, piece in enumerate(self.pieces):
            starts = accumulate((lengths[index] for index in piece), initial=0)
            places |= {index: (number, *rows) for index, rows in zip(piece, pairwise(starts), strict=True)}
        return places

    def require_vocabulary(self, size: int) -> None:
        """Raise UsageError for a token that the target, which has so many, does not have."""
        for shard, highest in enumerate(self._highest):
            if highest >= size:
                message = f"{samples_file(self.folder, shard)} has the token {highest}, and the target has {size}"
                raise UsageError(message, hint=_DAMAGED)

    def require_states(self, widths: tuple[int, int]) -> None:
        """Raise UsageError if a sample's hidden states are missing, or of other widths than those of `States`."""
        for number, piece in enumerate(self.pieces):
            path, tokens = states_file(self.folder, number), self._states_at[piece[-1]][2]
            for name, width in zip(_STATES, widths, strict=True):
                shape, kind = _layout(path, name)
                if shape != [tokens, width] or kind not in STATES_DTYPES:
                    message = f"{path} is of other samples or another head: `{name}` is {kind} {shape}, not "
                    raise UsageError(f"{message}[{tokens}, {width}]", hint=_DAMAGED)

    def _find(self, index: int) -> tuple[int, int, int]:
        index = range(len(self))[index]
        shard = bisect_right(self._starts, index) - 1
        start, end = self._offsets[shard][index - self._starts[shard] :][:2]
        return shard, start, end


_STATES = ("hidden_states", "last_hidden_states")
STATES_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Those that states may have, by their names in a file."""


@dataclass(frozen=True)
class Shard:
    """All samples of one file, one after the other: sample i is from offset i to before offset i + 1."""

    input_ids: Tensor
    loss_mask: Tensor
    offsets: Tensor


def read_shard(folder: Path, shard: int) -> Shard:
    """The samples of one file. Raises UsageError for a file that does not hold what SampleWriter writes."""
    path = samples_file(folder, shard)
    found = Shard(**read_tensors(path, ("input_ids", "loss_mask", "offsets")))
    kinds = (found.input_ids.dtype, found.loss_mask.dtype, found.offsets.dtype)
    if kinds != (torch.int32, torch.uint8, torch.int64) or not all(one.ndim == 1 for one in vars(found).values()):
        raise _damaged(path, "its tensors are of other types or shapes")
    offsets = found.offsets
    if len(offsets) < 2 or offsets[0] != 0 or not (offsets[1:] > offsets[:-1]).all():
        raise _damaged(path, "its offsets do not ascend from 0")
    if not len(found.input_ids) == len(found.loss_mask) == offsets[-1]:
        raise _damaged(path, "its offsets do not end with its tokens")
    if found.input_ids.min() < 0 or found.loss_mask.max() > 1:
        raise _damaged(path, "it has a token below 0, or a mask that is neither 0 nor 1")
    return found


def _layout(path: Path, name: str) -> tuple[list[int], str]:
    """Shape and type of a tensor. Raises UsageError."""
    with _opened(path) as file:
        part = file.get_slice(name)
        return part.get_shape(), part.get_dtype()


def read_contents(folder: Path) -> Contents:
    """What a folder holds. Raises UsageError for one that is not complete."""
    path = folder / INDEX
    try:
        return documents.parse(Contents, documents.read_file(path))
    except FileNotFoundError as error:
        hint = "Start the training again: it continues where it was interrupted."
        raise UsageError(f"the samples in {folder} are not complete: {INDEX} is missing", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be used: {error}", hint=_DAMAGED) from error


def samples_file(folder: Path, shard: int) -> Path:
    return folder / f"samples-{shard:05}.safetensors"


def states_file(folder: Path, piece: int) -> Path:
    return folder / f"states-{piece:05}.safetensors"


def content_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the tensors' values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def read_tensors(
    path: Path, names: Sequence[str], start: int | None = None, end: int | None = None
) -> dict[str, Tensor]:
    """Rows `start` to before `end` of the tensors of a file. Raises UsageError for a file that is damaged."""
    with _opened(path) as file:
        return {name: file.get_slice(name)[start:end] for name in names}


def tensor_names(path: Path) -> list[str]:
    """The names of a file's tensors. Raises UsageError for a file that is damaged."""
    with _opened(path) as file:
        return list(file.keys())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing", hint=_DAMAGED) from error
    except (OSError, SafetensorError, LookupError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> UsageError:
    return UsageError(f"{path} is damaged: {why}", hint=_DAMAGED)


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a file in one step. Raises PlatformError, as for a full disk."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with writing(path):
            _save(tensors, beside, metadata)
            beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error


_DAMAGED = "Remove that file (or the whole folder) and start again: only what is missing is made anew."
