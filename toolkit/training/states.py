"""The target's hidden states, as vLLM hands them to a head: computed once, and written beside the samples.

vLLM counts hidden states by the layers before them: state 0 is the embedding, state i what layer i - 1 returns, and it
sorts the ids that a head's config names (EagleModelMixin). The last one here is the state after the last layer, before
the final norm.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from toolkit.errors import HubError, PlatformError, UsageError
from toolkit.training.job import TrainingJob
from toolkit.training.reading import reading
from toolkit.training.samples import (
    States,
    content_digest,
    read_contents,
    read_shard,
    states_file,
    write_tensors,
)
from toolkit.training.target_logits import final_norm, no_norm

# Weights of other frameworks are as large, and nobody reads them.
_TARGET_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
_TOKENS_AT_ONCE = 4096
# Room that is left on the disk for checkpoints and logs.
_SPARE_BYTES = 1024**3


def with_local_target(job: TrainingJob, download: Callable[..., str] = snapshot_download) -> TrainingJob:
    """The job with its target as a folder: of a hub id, a snapshot at the job's revision. Raises HubError.

    speculators reads a hub id at its main branch, whatever revision the job names.
    """
    if Path(job.target).is_dir():
        return job
    try:
        folder = download(job.target, revision=job.target_revision, allow_patterns=_TARGET_FILES)
    except (OSError, ValueError) as error:
        at = f" at {job.target_revision}" if job.target_revision else ""
        hint = "See that target.model is a folder or a hub id, that the hub is reached, and that HF_TOKEN may read it."
        raise HubError(f"the target {job.target}{at} cannot be downloaded: {error}", hint=hint) from error
    return job.model_copy(update={"target": folder})


def load_target(target: str, revision: str = "main", dtype: str = "auto") -> PreTrainedModel:
    """The target in transformers, on the GPU if there is one. Raises UsageError."""
    with reading(
        f"the target {target}", "See that it is a language model that transformers knows, and is complete.", target
    ):
        model = AutoModelForCausalLM.from_pretrained(target, revision=revision, dtype=dtype)
    device: Any = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device).eval()


class Extractor:
    """Runs the target over samples and keeps the states `layers`, in ascending order, and the last one."""

    def __init__(self, target: PreTrainedModel, layers: tuple[int, ...]) -> None:
        self._base: Any = target.base_model
        self.made_by = {"target": str(target.config.name_or_path), "dtype": str(target.dtype)}
        self.layers = tuple(sorted(set(layers)))
        count = len(_decoder_layers(self._base))
        if not layers or self.layers[0] < 0 or self.layers[-1] > count:
            hint = f"Give layers from 0 (the embedding) to {count} (after the last layer)."
            raise UsageError(f"the target has no hidden states {layers}", hint=hint)

    @property
    def bytes_per_token(self) -> int:
        """What the states of one token take on the disk."""
        size: int = self._base.config.get_text_config().hidden_size
        return (len(self.layers) + 1) * size * int(self._base.dtype.itemsize)

    @torch.inference_mode()
    def states(self, sequences: list[Tensor]) -> States:
        """The states of all sequences, one after the other: each of them is computed as if it were alone."""
        found: list[Tensor] = [torch.empty(0)] * len(sequences)
        for indices in _batches(sequences):
            for index, states in zip(indices, self._run([sequences[index] for index in indices]), strict=True):
                found[index] = states
        joined = torch.cat(found)
        return States(joined[:, :-1].flatten(1).contiguous(), joined[:, -1].contiguous())

    def _run(self, sequences: list[Tensor]) -> Iterator[Tensor]:
        """The states [tokens, layers + 1, H] of each sequence of a batch."""
        tokens = nn.utils.rnn.pad_sequence([one.long() for one in sequences], batch_first=True).to(self._base.device)
        lengths = torch.tensor([len(one) for one in sequences], device=tokens.device)
        mask = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        with _recorded(self._base, (*self.layers, len(_decoder_layers(self._base)))) as recorded:
            self._base(input_ids=tokens, attention_mask=mask.long(), use_cache=False)
        stacked = torch.stack(recorded, dim=2).cpu()
        return (states[: len(one)] for states, one in zip(stacked, sequences, strict=True))


def extract_states(folder: Path, extractor: Extractor) -> Iterator[int]:
    """Write the states of all samples of a folder; those that are there already stay. Yields each shard that is done.

    Raises UsageError or PlatformError.
    """
    for shard in range(read_contents(folder).shards):
        if not _is_done(folder, shard, extractor):
            _extract(folder, shard, extractor)
        yield shard


def require_room(folders: Sequence[Path], extractor: Extractor) -> int:
    """The bytes that the states of the folders take in all. Raises PlatformError if the disk has less for the rest."""
    total = sum(read_contents(folder).tokens for folder in folders)
    done = sum(_tokens_done(folder, extractor) for folder in folders)
    needed, free = (total - done) * extractor.bytes_per_token, shutil.disk_usage(folders[0]).free
    if needed and needed + _SPARE_BYTES > free:
        message = f"the hidden states of {total - done:,} tokens take {needed / 1e9:,.1f} GB, and the disk of "
        message += f"{folders[0]} has {free / 1e9:,.1f} GB"
        hint = "Give the job a larger disk (training.volume_gb), less data, or a smaller training.max_length. "
        raise PlatformError(message, hint=hint + "What is complete stays.")
    return total * extractor.bytes_per_token


def _tokens_done(folder: Path, extractor: Extractor) -> int:
    shards = [shard for shard in range(read_contents(folder).shards) if _is_done(folder, shard, extractor)]
    return sum(len(read_shard(folder, shard).input_ids) for shard in shards)


def _extract(folder: Path, shard: int, extractor: Extractor) -> None:
    samples = read_shard(folder, shard)
    states = extractor.states(list(samples.input_ids.tensor_split(samples.offsets[1:-1])))
    if not (states.hidden_states.isfinite().all() and states.last_hidden_states.isfinite().all()):
        hint = "Give training.dtype: bfloat16 or float32; float16 overflows in some models."
        raise UsageError("the target's hidden states are not finite numbers", hint=hint)
    found = {"hidden_states": states.hidden_states, "last_hidden_states": states.last_hidden_states}
    write_tensors(states_file(folder, shard), found, _made_from(folder, shard, extractor))


def _is_done(folder: Path, shard: int, extractor: Extractor) -> bool:
    path = states_file(folder, shard)
    if not path.is_file():
        return False
    try:
        with safe_open(path, framework="pt") as file:
            return bool(file.metadata() == _made_from(folder, shard, extractor))
    except (OSError, SafetensorError):  # damaged: it is made anew
        return False


def _made_from(folder: Path, shard: int, extractor: Extractor) -> dict[str, str]:
    """What decides the states of a shard."""
    samples = read_shard(folder, shard)
    digest = content_digest({"input_ids": samples.input_ids, "offsets": samples.offsets})
    return {**extractor.made_by, "layers": json.dumps(extractor.layers), "samples": digest}


def _batches(sequences: list[Tensor]) -> Iterator[list[int]]:
    """Indices of sequences of about the same length, of so many tokens with their padding."""
    batch: list[int] = []
    for index in sorted(range(len(sequences)), key=lambda index: len(sequences[index])):
        if batch and (len(batch) + 1) * len(sequences[index]) > _TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(index)
    yield batch


def _decoder_layers(base: Any) -> nn.ModuleList:
    """The layers of a decoder-only model, as all of transformers' have them. Raises UsageError."""
    language_model = getattr(base, "language_model", base)
    layers = getattr(language_model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or final_norm(base) is None:
        raise no_norm(base)
    return layers


@contextmanager
def _recorded(base: Any, layers: tuple[int, ...]) -> Iterator[list[Tensor]]:
    """The states that go into these layers, and into the final norm after them, of the run in the context."""
    found: dict[int, Tensor] = {}

    def record(index: int) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def hook(_: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> None:
            found[index] = inputs[0] if inputs else options["hidden_states"]

        return hook

    norm = final_norm(base)
    assert norm  # `_decoder_layers` looked for it
    modules = [*_decoder_layers(base), norm[1]]
    hooks = [modules[layer].register_forward_pre_hook(record(layer), with_kwargs=True) for layer in set(layers)]
    recorded: list[Tensor] = []
    try:
        yield recorded
        recorded.extend(found[layer] for layer in layers)
    finally:
        for hook in hooks:
            hook.remove()
