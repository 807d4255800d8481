"""The block with which a target drafts for itself (multi-token prediction): trained on, from what its checkpoint has.

Beside the embedding of the token at t + 1 the block reads the target's last hidden state at t, behind the final norm,
and says the token at t + 2 with the target's own embedding and output layer. For each further draft it reads the draft
before, and what it made of that itself. Keys and values of the text before stay those of the target's states, as in an
engine; speculators computes all of them anew from the block's own states.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from speculators.config import SpeculatorsConfig
from speculators.convert.mtp import MTP_EXACT_REMAP, MTP_PREFIX_REMAP, MTPConverter
from speculators.models.mtp import MTPDraftModel, MTPSpeculatorConfig
from speculators.models.mtp.core import compute_step_weights
from torch import Tensor
from torch.nn import functional
from transformers import PretrainedConfig
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from toolkit.errors import UsageError
from toolkit.training.learn import Evaluated, Lesson, LossFunction, Outcome, outcome, said_tokens, within_answer
from toolkit.training.own_block import why_not_trained
from toolkit.training.shards import read_shards


def require_block(folder: str, config: PretrainedConfig) -> None:
    """Raise UsageError for a target without a block of its own, or with one that is not trained here."""
    tensors = {name: tensor for shard in read_shards(Path(folder)) for name, tensor in shard.tensors.items()}
    if why := why_not_trained(tensors, config.model_type):
        raise UsageError(f"{folder}: {why}", hint="Train a head: `method: p-eagle`.")


def build_block(folder: str, config: PretrainedConfig, speculators: SpeculatorsConfig) -> MTPDraftModel:
    """The block that the checkpoint in a folder has, without embedding and output layer. Raises UsageError."""
    config._attn_implementation, config._experts_implementation = "sdpa", BY_EXPERT
    head = MTPDraftModel(MTPSpeculatorConfig(transformer_layer_config=config, speculators_config=speculators))
    found = MTPConverter().convert_to_state_dict(folder)
    wanted = head.mtp_layers.state_dict(prefix="mtp_layers.")
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found or name not in wanted or found[name].shape != wanted[name].shape:
            message = f"the block in {folder} is built otherwise: tensor `{name}` of it does not fit"
            raise UsageError(message, hint="Train a head of another method.")
    head.load_state_dict({name: tensor.float() for name, tensor in found.items()}, strict=False)
    return head


def _by_expert(experts: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """What transformers computes by `eager`, in a time that grows with the experts and not with their square.

    There each expert's matrix is a part of all of them, which in the backward pass makes a gradient as large as all.
    Its `grouped_mm` knows no autocast: on a GPU it would multiply in float32.
    """
    each = top_k_index.size(-1)
    chosen, order = top_k_index.flatten().sort(stable=True)
    tokens = chosen.bincount(minlength=experts.num_experts).tolist()
    made = [
        functional.linear(experts._apply_gate(functional.linear(part, gate_up)), down)
        for part, gate_up, down in zip(
            torch.split(hidden_states[order // each], tokens),
            experts.gate_up_proj.unbind(),
            experts.down_proj.unbind(),
            strict=True,
        )
    ]
    weighted = torch.cat(made) * top_k_weights.flatten()[order, None]
    return torch.zeros_like(hidden_states).index_add(0, order // each, weighted.to(hidden_states.dtype))


BY_EXPERT = "by-expert"
ALL_EXPERTS_FUNCTIONS.register(BY_EXPERT, _by_expert)


@dataclass
class _Cache:
    """Keys and values of all depths so far, one after the other, as transformers' attention asks for them."""

    stored: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def update(self, keys: Tensor, values: Tensor, _: int) -> tuple[Tensor, Tensor]:
        self.stored.append((keys, values))
        keys_of, values_of = zip(*self.stored, strict=True)
        return torch.cat(keys_of, dim=2), torch.cat(values_of, dim=2)


@dataclass(frozen=True)
class MtpLearner:
    """One token after the other, as an engine drafts, but behind the text's own tokens.

    Losses of deeper drafts count less, as in FastMTP (arXiv 2509.18362).
    """

    head: MTPDraftModel
    loss: LossFunction
    depths: int

    def learn(self, sequence: Lesson) -> Outcome:
        loss, count, right = self._draft(sequence)
        torch.autograd.backward(loss)
        return outcome(loss.detach(), count, right, within_answer(sequence, self.depths))

    @torch.no_grad()
    def evaluate(self, sequence: Lesson) -> Evaluated:
        return Evaluated(*self._draft(sequence))

    def _draft(self, sequence: Lesson) -> tuple[Tensor, int, Tensor]:
        length, device = len(sequence), sequence.input_ids.device
        norm, output = self.head.get_submodule("verifier_norm"), self.head.get_submodule("verifier_lm_head")
        with torch.no_grad():
            hidden: Tensor = norm(sequence.hidden_states)[None]
            targets = output(norm(sequence.last_hidden_states))
        said, cache = said_tokens(sequence), _Cache()
        right = torch.zeros(length, self.depths, dtype=torch.bool, device=device)
        total = torch.zeros((), device=device)
        for depth, weight in enumerate(compute_step_weights(num_steps=self.depths)):
            hidden = self._step(sequence, depth, hidden, cache)
            rows = max(0, length - depth)  # behind the end nothing is drafted
            logits = self.head.lm_head(hidden[:, :rows])
            losses = self.loss(logits, targets[None, depth:])[0]
            total = total + weight * (losses * sequence.loss_mask[depth:]).sum()
            right[:rows, depth] = logits[0].argmax(dim=-1) == said[depth:]
        return total, int(sequence.loss_mask.sum()), right

    def _step(self, sequence: Lesson, depth: int, hidden: Tensor, cache: _Cache) -> Tensor:
        """What the block makes of the tokens `depth` after each anchor: [1, tokens, H]."""
        length, device = len(sequence), hidden.device
        tokens = functional.pad(sequence.input_ids[depth:], (0, min(depth, length)))
        position = torch.arange(length, device=device)
        before, same = position <= position[:, None], position == position[:, None]
        seen = torch.cat([before] + depth * [same], dim=1)
        mask = torch.zeros(seen.shape, device=device).masked_fill(~seen, float("-inf"))[None, None]
        made: Tensor = self.head.mtp_layers[0](
            hidden_states=hidden.float(),
            token_embeddings=self.head.embed_tokens(tokens)[None].float(),
            attention_mask=mask,
            position_embeddings=self.head.rotary_emb(hidden, (position + depth)[None]),
            past_key_values=cache,
        )
        return made


def write_block(head: MTPDraftModel, folder: Path) -> None:
    """A folder that engines take as the target's drafter: its tensors by the checkpoint's names, and a config.json.

    Embedding and output layer are the target's. The config is the target's with a single layer, as the block is one,
    and without what is not true of it: where the target lies, and how its weights are quantized.
    """
    folder.mkdir()
    state = head.mtp_layers.bfloat16().state_dict(prefix="mtp_layers.")
    save_file({name: tensor.contiguous().cpu() for name, tensor in _in_checkpoint(state)}, folder / "model.safetensors")
    theirs = head.config.transformer_layer_config.to_dict()
    config = {key: value for key, value in theirs.items() if key not in ("_name_or_path", "quantization_config")}
    config |= {"num_hidden_layers": 1, "layer_types": ["full_attention"], "num_nextn_predict_layers": 1}
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "bfloat16"}, indent=2) + "\n")


def _in_checkpoint(state: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The opposite of what speculators does to the tensors of a checkpoint."""
    exact = {ours: theirs for theirs, ours in MTP_EXACT_REMAP.items()}
    for ours, tensor in state.items():
        theirs = exact.get(ours) or next(
            old + ours.removeprefix(new) for old, new in MTP_PREFIX_REMAP if ours.startswith(new)
        )
        yield from _of_experts(theirs, tensor)


def _of_experts(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A matrix for each expert, where all of them are in one tensor."""
    found = re.fullmatch(r"(.+\.experts)\.(gate_up_proj|down_proj)", name)
    if not found:
        yield name, tensor
        return
    for number, matrix in enumerate(tensor):
        parts: dict[str, Any] = {"down_proj": matrix}
        if found[2] == "gate_up_proj":
            parts = dict(zip(("gate_proj", "up_proj"), matrix.chunk(2), strict=True))
        for part, weight in parts.items():
            yield f"{found[1]}.{number}.{part}.weight", weight
