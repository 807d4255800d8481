"""The target's hidden states, as vLLM hands them to a head, and who reads them: an engine, or transformers here.

vLLM counts hidden states by the layers before them: state 0 is the embedding, state i what layer i - 1 returns, and it
sorts the ids that a head's config names (EagleModelMixin). The last one here is the state after the last layer, before
the final norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from huggingface_hub import snapshot_download
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from toolkit.errors import HubError, UsageError
from toolkit.training.exact import require_exact
from toolkit.training.job import TrainingJob
from toolkit.training.reading import reading
from toolkit.training.samples import States
from toolkit.training.target_logits import final_norm, no_norm

# Weights of other frameworks are as large, and nobody reads them.
_TARGET_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]
_TOKENS_AT_ONCE = 4096


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
        hint = "Check that target.model is a folder or a hub id, that the hub answers, and that HF_TOKEN may read it."
        raise HubError(f"the target {job.target}{at} cannot be downloaded: {error}", hint=hint) from error
    return job.model_copy(update={"target": folder})


def load_target(target: str, revision: str = "main", dtype: str = "auto") -> PreTrainedModel:
    """The target in transformers, on the GPU if there is one. Raises UsageError."""
    hint = "Check that it is a language model that transformers knows, and is complete. The engine reads what it "
    hint += "serves without further packages, quantized or not: write `states: engine`."
    with reading(f"the target {target}", hint, target):
        model = AutoModelForCausalLM.from_pretrained(target, revision=revision, dtype=dtype)
    device: Any = "cuda" if torch.cuda.is_available() else "cpu"
    return model.to(device).eval()


class StateSource(Protocol):
    """The target, of which the states of some layers, in ascending order, and the last one are read."""

    def states(self, sequences: list[Tensor]) -> States:
        """The states of all sequences, one after the other: each of them is computed as if it were alone."""

    def require_exact(self, prompts: Sequence[list[int]]) -> None:
        """Raise UsageError if training would compute other logits from the states than the target does."""


class Extractor:
    """Runs the target in transformers; a StateSource."""

    def __init__(self, target: PreTrainedModel, layers: tuple[int, ...]) -> None:
        self._target = target
        self._base: Any = target.base_model
        self.layers = tuple(sorted(set(layers)))
        count = len(_decoder_layers(self._base))
        if not layers or self.layers[0] < 0 or self.layers[-1] > count:
            hint = f"Give layers from 0 (the embedding) to {count} (after the last layer)."
            raise UsageError(f"the target has no hidden states {layers}", hint=hint)

    @torch.inference_mode()
    def states(self, sequences: list[Tensor]) -> States:
        """The states of all sequences, one after the other: each of them is computed as if it were alone."""
        found: list[Tensor] = [torch.empty(0)] * len(sequences)
        for indices in _batches(sequences):
            for index, states in zip(indices, self._run([sequences[index] for index in indices]), strict=True):
                found[index] = states
        joined = torch.cat(found)
        return States(joined[:, :-1].flatten(1).contiguous(), joined[:, -1].contiguous())

    def require_exact(self, prompts: Sequence[list[int]]) -> None:
        require_exact(str(self._target.config.name_or_path), self._target, prompts)

    def _run(self, sequences: list[Tensor]) -> Iterator[Tensor]:
        """The states [tokens, layers + 1, H] of each sequence of a batch."""
        tokens = nn.utils.rnn.pad_sequence([one.long() for one in sequences], batch_first=True).to(self._base.device)
        lengths = torch.tensor([len(one) for one in sequences], device=tokens.device)
        mask = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        with _recorded(self._base, (*self.layers, len(_decoder_layers(self._base)))) as recorded:
            self._base(input_ids=tokens, attention_mask=mask.long(), use_cache=False)
        stacked = torch.stack(recorded, dim=2).cpu()
        return (states[: len(one)] for states, one in zip(stacked, sequences, strict=True))


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
