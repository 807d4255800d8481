"""The head that is trained: speculators' own model, in the size of its target."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig
from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.models.mtp import MTPDraftModel
from speculators.models.peagle import PEagleDraftModel, PEagleSpeculatorConfig
from speculators.models.utils import get_verifier_config, resolve_draft_intermediate_size
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer, LlamaConfig, PretrainedConfig, Qwen3Config

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.training.job import (
    CONVERT,
    EAGLE_3_1,
    IN_BLOCKS,
    KEEP_OUTPUT,
    MARKOV_RANK,
    OF_SPECULATORS,
    UNCONVERTED,
    TrainingJob,
    block_size,
    unnamed_layers,
)
from toolkit.training.mtp import build_block, require_block
from toolkit.training.reading import reading
from toolkit.training.samples import read_tensors, tensor_names
from toolkit.training.shards import read_shards
from toolkit.training.target_logits import target_logits
from toolkit.training.vocabulary import Vocabulary

Head = PEagleDraftModel | Eagle3DraftModel | DFlashDraftModel | MTPDraftModel


def aux_layers(num_hidden_layers: int) -> tuple[int, int, int]:
    """Which hidden states of the target the head reads, 0 being the embedding: 2, L/2 and L-1, as in the paper."""
    layers = num_hidden_layers
    return (2, layers // 2, layers - 1) if layers >= 6 else (layers - 3, layers - 2, layers - 1)


def build_head(job: TrainingJob, vocabulary: Vocabulary | None = None) -> Head:
    """A new head for the job's target, or the one to start from; its weights depend on the job's seed alone.

    Embedding and output layer start as copies of the target's, and are trained (of EAGLE-3 the latter alone, as
    speculators and its authors do it); of heads that draft in blocks, and of the target's own block, they are the
    target's, and stay as they are. Raises UsageError.
    """
    torch.manual_seed(job.seed)
    head = _new_head(job, _former(job), len(vocabulary.d2t) if vocabulary else None)
    if vocabulary:
        head.load_vocab_mappings(vocabulary.t2d, vocabulary.d2t)
    what = f"the weights of the target {job.target}"
    with reading(what, "Check that its files are complete.", job.target), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a norm without weights, in whose place the target's own is put below
        head.load_verifier_weights()
    head.lm_head.weight.requires_grad_(job.method not in KEEP_OUTPUT)
    targets = target_logits(job.target, vocabulary.t2d if vocabulary else None)
    head.verifier_norm, head.verifier_lm_head = targets.norm, targets.output  # type: ignore[assignment]
    if job.start_from and not isinstance(head, MTPDraftModel):
        _load(head, job)
    return head


def require_size(job: TrainingJob) -> None:
    """Raise UsageError for a head that cannot be made, or to start from one of another size.

    Of a head the files' headers are read, of the target's own block (`mtp`) all of it.
    """
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights that have no place there
        head = _new_head(job, _former(job), job.draft_vocab_size)
    if job.start_from and not isinstance(head, MTPDraftModel):
        _require_tensors(head, job)


def _new_head(job: TrainingJob, former: PretrainedConfig | None, drafted: int | None) -> Head:
    """A head with layers like those of `former`, if there is one, and its options. It drafts all tokens, or so many."""
    target = target_config(job)
    what = f"training.start_from: the head in {job.start_from}" if former else f"the target {job.target}"
    with reading(what, _HINT, job.target):
        proposing = SpeculatorsConfig(
            algorithm=_ALGORITHMS[job.method],
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=job.depth)],
            default_proposal_method="greedy",
            verifier=VerifierConfig.from_pretrained(job.target),
        )
        if job.method == "mtp":
            return build_block(job.start_from or job.target, target, proposing)
        common: dict[str, Any] = {
            "transformer_layer_config": former or layer_config(target, job),
            "draft_vocab_size": drafted or target.vocab_size,
            "speculators_config": proposing,
        }
        layers = list(layers_read(job))
        if job.method in IN_BLOCKS:
            token, size = _mask_token(job, former, target), block_size(job.method, job.depth)
            common |= {"aux_hidden_state_layer_ids": layers, "mask_token_id": token, "block_size": size}
            if job.method == "dflash":
                return DFlashDraftModel(DFlashSpeculatorConfig(**common))
            rank = getattr(former, "markov_rank", MARKOV_RANK)
            return DSparkDraftModel(DSparkSpeculatorConfig(markov_rank=rank, **common))
        options = {key: _option(former, key) for key in _OPTIONS if _option(former, key) is not None}
        if job.method == "eagle3" and job.norms:
            options |= dict.fromkeys(EAGLE_3_1, True)
        common |= {"eagle_aux_hidden_state_layer_ids": layers, **options, "embed_requires_grad": True}
        if job.method == "eagle3":
            return Eagle3DraftModel(Eagle3SpeculatorConfig(**common))
        return PEagleDraftModel(PEagleSpeculatorConfig(mask_token_id=_mask_token(job, former, target), **common))


def _mask_token(job: TrainingJob, former: PretrainedConfig | None, target: PretrainedConfig) -> int:
    found = [_in_blocks(former).get("mask_token_id"), *(getattr(former, key, None) for key in _MASK_KEYS)]
    token = next((one for one in found if one is not None), None)
    token = mask_token(job, target) if token is None else token
    if not (isinstance(token, int) and 0 <= token < target.vocab_size):
        raise ValueError(f"its mask token {token} is not one of the target's")
    return token


def target_config(job: TrainingJob) -> PretrainedConfig:
    """The config of the target's language model. Raises UsageError."""
    with reading(
        f"config.json of {job.target}", "Check that it is that of a language model that transformers knows.", job.target
    ):
        return get_verifier_config(job.target)


def within_positions(job: TrainingJob) -> TrainingJob:
    """The job with sequences no longer than its target has positions for. Raises UsageError."""
    positions = getattr(target_config(job), "max_position_embeddings", None) or job.max_length
    return job.model_copy(update={"max_length": min(job.max_length, positions)})


def layers_read(job: TrainingJob) -> tuple[int, ...]:
    """The layers of the target whose hidden states the job's head reads. Raises UsageError."""
    former, count = _former(job), target_config(job).num_hidden_layers
    if job.method == "mtp":
        require_block(job.target, target_config(job))
        return (count,)
    key, more = _LAYERS, 0
    ids = getattr(former, key, None) or _option(former, key)  # engines read these at the top of the config first
    if not ids:  # DFlash's and DSpark's authors count the layers, and not the states before them
        key, more = "target_layer_ids", 1
        ids = _in_blocks(former).get(key) or getattr(former, key, None)
    if not ids:
        layers = unnamed_layers(count) if former else aux_layers(count)
    elif not isinstance(ids, list | tuple) or not all(isinstance(one, int) for one in ids):
        raise UsageError(f"training.start_from: `{key}` of {job.start_from} is no list of layers", hint=_HINT)
    else:
        layers = tuple(one + more for one in ids)
    _require_width(job, layers)
    return layers


def _require_width(job: TrainingJob, layers: tuple[int, ...]) -> None:
    """Raise UsageError if the head to start from reads another number of layers: its states are computed first."""
    if not job.start_from:
        return
    stored = [shard.tensors["fc.weight"] for shard in read_shards(Path(job.start_from)) if "fc.weight" in shard.tensors]
    wanted = len(set(layers)) * target_config(job).hidden_size
    if stored and stored[0].shape[-1:] != (wanted,):
        message = f"training.start_from: `fc.weight` of {job.start_from} has {stored[0].shape[-1]} columns, and the "
        raise UsageError(f"{message}{len(set(layers))} layers that it reads by its config have {wanted}", hint=_HINT)


def _in_blocks(former: PretrainedConfig | None) -> dict[str, Any]:
    """What DFlash's authors write of a head; empty without it."""
    found = getattr(former, "dflash_config", None)
    return found if isinstance(found, dict) else {}


def _option(former: PretrainedConfig | None, key: str) -> Any:
    """What a head's config says, as engines read it: in its `eagle_config`, or beside that. None if it says nothing."""
    nested = getattr(former, "eagle_config", None)
    return nested[key] if isinstance(nested, dict) and key in nested else getattr(former, key, None)


def _require_computed(job: TrainingJob, former: PretrainedConfig) -> None:
    """Raise UsageError for a key of a head's config that changes what an engine computes, and not what is trained."""
    for key, usual in _NOT_COMPUTED.items():
        if (found := _option(former, key)) not in (None, *usual):
            message = f"training.start_from: `{key}` of {job.start_from} is {str(found)[:80]}, which engines compute, "
            raise UsageError(f"{message}and training does not", hint=_ANOTHER)
    windows = getattr(former, "layer_types", None) or ()
    at_anchor = getattr(former, "sample_from_anchor", None)
    other = at_anchor not in (None, job.method == "dspark")
    if job.method in IN_BLOCKS and ("sliding_attention" in windows or other):
        how = "drafts at other positions of a block (`sample_from_anchor`)" if other else "has sliding windows"
        message = f"training.start_from: {job.start_from} {how}, as no {job.method} head that is trained here"
        raise UsageError(message, hint=_ANOTHER)


def _former(job: TrainingJob) -> PretrainedConfig | None:
    """The config of the head to start from, whose layers are those of the new one.

    Raises UsageError, UnreadableModel.
    """
    if not job.start_from:
        return None
    with reading(f"training.start_from: {job.start_from} is not a head: its config", _HINT, job.start_from):
        if OF_SPECULATORS in documents.decode(documents.read_file(Path(job.start_from) / "config.json")):
            raise UsageError(f"training.start_from: the head in {job.start_from} {UNCONVERTED}", hint=CONVERT)
        config: PretrainedConfig = AutoConfig.from_pretrained(job.start_from, local_files_only=True)  # nosec B615
    read_shards(Path(job.start_from))  # its weights are read after hours, perhaps
    target = target_config(job)
    for key in ("hidden_size", "vocab_size"):
        found, wanted = getattr(config, key, None), getattr(target, key)
        if found != wanted:
            message = f"training.start_from: the head in {job.start_from} has another target: its {key} is {found}"
            raise UsageError(f"{message}, not {wanted}", hint=_HINT)
    if config.num_hidden_layers != job.layers:
        message = f"training.start_from: that head has {config.num_hidden_layers} layers, and training.layers is "
        raise UsageError(message + str(job.layers), hint=f"Write `layers: {config.num_hidden_layers}`, or start anew.")
    _require_computed(job, config)
    config._attn_implementation = "sdpa"
    return config


_ANOTHER = "Start from another head, or anew: remove it."
_HINT = "Name the folder of a head with config.json and weights, or remove it."
_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "norm_epsilon")
_ALGORITHMS = {"p-eagle": "peagle", "eagle3": "eagle3", "dflash": "dflash", "dspark": "dspark", "mtp": "mtp"}
_LAYERS = "eagle_aux_hidden_state_layer_ids"
_MASK_KEYS = ("ptd_token_id", "pard_token", "mask_token_id")
# Values with which it makes no difference.
_NOT_COMPUTED: dict[str, tuple[object, ...]] = {
    "logit_scale": (1.0,),
    "use_aux_hidden_state": (True,),
    "quantization_config": (),
}
_SHARED = {"embed_tokens.weight", "lm_head.weight"}
_OPTIONS = ("norm_before_residual", "norm_before_fc", *EAGLE_3_1)


def layer_config(target: PretrainedConfig, job: TrainingJob) -> PretrainedConfig:
    """Layers as wide as the target's, with plain rotary positions: Llama's, which all engines that draft can run.

    Those that draft in blocks are defined with Qwen3's.
    """
    rope = getattr(target, "rope_parameters", None) or {}
    head_dim = getattr(target, "head_dim", None) or target.hidden_size // target.num_attention_heads
    kind = Qwen3Config if job.method in IN_BLOCKS else LlamaConfig
    config = kind(
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=resolve_draft_intermediate_size(target),
        num_hidden_layers=job.layers,
        num_attention_heads=target.num_attention_heads,
        num_key_value_heads=target.num_key_value_heads,
        head_dim=head_dim,
        max_position_embeddings=target.max_position_embeddings,
        rms_norm_eps=next((getattr(target, key) for key in _EPSILONS if hasattr(target, key)), 1e-6),
        rope_parameters={"rope_type": "default", "rope_theta": rope.get("rope_theta", 10_000.0)},
        tie_word_embeddings=False,
    )
    config._attn_implementation = "sdpa"  # flex attention has no backward on a CPU
    return config


def mask_token(job: TrainingJob, target: PretrainedConfig) -> int:
    """The token that stands where a draft token is not known yet: best one that no text contains."""
    tokenizer = AutoTokenizer.from_pretrained(job.target, revision=job.target_revision)
    if tokenizer.mask_token_id is not None:
        return int(tokenizer.mask_token_id)
    if len(tokenizer) < target.vocab_size:
        return int(target.vocab_size) - 1
    return int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id)


def _load(head: Head, job: TrainingJob) -> None:
    """Take over the weights of the head to start from, in the engine's format. Raises UsageError for another size."""
    names, stored = _require_tensors(head, job), dict[str, Tensor]()
    for file in sorted(Path(job.start_from or "").glob("*.safetensors")):
        stored |= read_tensors(file, tensor_names(file))
    found = {_renamed(name): tensor for name, tensor in stored.items()}
    head.load_state_dict({name: found[name].to(torch.float32) for name in names}, strict=False)


def _require_tensors(head: Head, job: TrainingJob) -> list[str]:
    """The tensors that are taken from the head to start from. Raises UsageError if one is missing or of another size.

    What it has no copy of stays the target's: EAGLE's authors store no embedding, and engines then share the target's.
    """
    folder = Path(job.start_from or "")
    stored = {_renamed(name): one.shape for shard in read_shards(folder) for name, one in shard.tensors.items()}
    kept = _SHARED if job.method in KEEP_OUTPUT else _SHARED - stored.keys()
    wanted = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items() if not _is_other(name, kept)}
    odd = [name for name, shape in wanted.items() if stored.get(name) != shape]
    odd += sorted(name for name in stored.keys() - wanted.keys() - {"d2t"} if not _is_other(name, kept))
    if odd:
        message = f"training.start_from: the head in {folder} has another size or method: tensor `{odd[0]}` does not "
        hint = "Set training.layers, draft_vocab_size and speculation.method to those of that head, or start anew."
        raise UsageError(f"{message}fit", hint=hint)
    return list(wanted)


def _is_other(tensor: str, kept: set[str]) -> bool:
    """Whether it is the target's, or follows from `d2t`."""
    return tensor in kept or tensor == "t2d" or tensor.startswith("verifier_")


def _renamed(tensor: str) -> str:
    return tensor.replace("midlayer.", "layers.0.")
