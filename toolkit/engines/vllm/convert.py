"""Convert heads trained with other tools to folders for `--speculative-config '{"method": "eagle3", ...}'`.

What each exporter writes was read in its source: SpecForge 0.2.0 (export/to_hf.py, modeling/draft), NeMo AutoModel
0.7.0 (components/speculative/serve_vllm.py and eagle/, recipes/llm/train_eagle3.py) and speculators 0.9.0
(models/eagle3, models/peagle, models/dflash, models/dspark). What vLLM reads: model_executor/models/llama_eagle3.py,
qwen3_eagle3.py, qwen3_dflash.py and qwen3_dspark.py of 0.32.0.
All of them store `d2t` as offsets and the layers in one order, so tensors keep their bytes: names and config change.

`fc_norm` and `norm_output` are kept: vLLM reads them in a config without `speculators_config` (`fc_norm` since 0.22.0),
and `norm_output` makes no difference to a head that drafts in parallel.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolkit import documents
from toolkit.errors import UnreadableModel, UsageError
from toolkit.recipe import model_config
from toolkit.recipe.model_files import read_folder
from toolkit.training.engine import Conversion
from toolkit.training.job import unnamed_layers
from toolkit.training.shards import Shard, read_shards, read_tensor, write_shards

_TRAVELS_ALONG = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "chat_template*",
    "LICEN[CS]E*",
    "NOTICE*",
    "*.md",
    "*.txt",
)
_VLLM_ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Qwen3ForCausalLM")
_SPECULATORS_KEYS = (
    "draft_vocab_size",
    "target_hidden_size",
    "norm_before_residual",
    "norm_before_fc",
    "fc_norm",
    "norm_output",
    "eagle_aux_hidden_state_layer_ids",
    "mask_token_id",
    "dtype",
)
_DSPARK_KEYS = (
    *("sample_from_anchor", "markov_rank", "markov_head_type"),
    *("enable_confidence_head", "confidence_head_with_markov"),
)
# Tensors that vLLM's loaders accept; they fail on any other.
_KNOWN_TENSOR = re.compile(
    r"d2t|t2d|mask_hidden|(embed_tokens|fc|fc_norm\.\d+|input_norm|norm|lm_head)\.weight"
    r"|(midlayer|layers\.\d+)\.((input_layernorm|hidden_norm|post_attention_layernorm|self_attn\.[qk]_norm)\.weight"
    r"|(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)\.(weight|bias))"
)


def convert(head: Path, out: Path, *, target: Path | None = None) -> Conversion:
    """Write the head in folder `head` to `out` in vLLM's format. `head` itself is not changed.

    `target` is the target's folder, needed for the layers of hidden states if the export does not name them. Raises
    UnreadableModel for a head that is broken or cannot be converted, UsageError if `out` is not empty.
    """
    _require_free(out, head)
    draft = _read(head)
    if (method := draft.config.get("speculators_model_type")) in ("dflash", "dspark"):
        _from_blocks(draft, method)
        _write(draft, out)
        return Conversion("speculators", method, tuple(draft.changes), out)
    name, adapt = _format(draft)
    parallel = adapt(draft)
    if name != "vllm":
        _require_known_tensors(draft)
    _fit_layers(draft)
    _fit_vocabulary(draft)
    _fit_hidden_states(draft, target)
    if parallel:
        _fit_parallel_drafting(draft)
    _write(draft, out)
    return Conversion(name, "p-eagle" if parallel else "eagle3", tuple(draft.changes), out)


@dataclass
class _Draft:
    """A head during the conversion: its config, and its tensors under their new names. Records every change."""

    folder: Path
    shards: tuple[Shard, ...]
    config: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]
    changes: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "config.json"

    def set(self, key: str, value: object, why: str) -> None:
        if key not in self.config or self.config[key] != value:
            self.changes.append(f"Set `{key}` to {json.dumps(value)}: {why}.")
            self.config[key] = value

    def drop(self, key: str, why: str) -> None:
        if self.config.pop(key, None) is not None:
            self.changes.append(f"Removed `{key}`: {why}.")

    def leave_out(self, tensor: str, why: str) -> None:
        if self.tensors.pop(tensor, None) is not None:
            self.changes.append(f"Removed tensor `{tensor}`: {why}.")

    def read(self, tensor: str) -> bytes:
        """The tensor's stored bytes; empty if the head does not have it."""
        return b"".join(
            read_tensor(shard, name) for shard in self.shards for name in shard.tensors if _renamed(name) == tensor
        )

    def cannot(self, problem: str, edit: str) -> UnreadableModel:
        return UnreadableModel(f"{self.file}: {problem}", hint=edit)


def _require_free(out: Path, head: Path) -> None:
    if out.resolve().is_relative_to(head.resolve()):
        raise UsageError(f"{out} is inside the head's own folder {head}", hint="Choose a folder outside of it.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not empty", hint="Choose a new folder, or remove this one.")


def _read(folder: Path) -> _Draft:
    path = folder / "config.json"
    try:
        config = documents.parse(dict[str, Any], documents.read_file(path))
        if wrong := model_config.problem(config):
            raise documents.Unfit(wrong)
    except FileNotFoundError as error:
        hint = "Pass the folder of the export: from SpecForge with `--to hf`, from NeMo AutoModel model/consolidated."
        raise UnreadableModel(f"{path} is missing", hint=hint) from error
    except (OSError, ValueError) as error:
        raise UnreadableModel(f"cannot read {path}: {error}", hint="Export the head again.") from error
    shards = read_shards(folder)
    stored = {name: tensor.shape for shard in shards for name, tensor in shard.tensors.items()}
    tensors = {_renamed(name): shape for name, shape in stored.items()}
    if len(tensors) < sum(len(shard.tensors) for shard in shards):
        raise UnreadableModel(f"{folder} contains a tensor twice", hint="Keep the files of one export only.")
    draft = _Draft(folder, shards, config, tensors)
    if prefixed := sum(name.startswith("model.") for name in stored):
        draft.changes.append(f"Renamed {prefixed} tensors: removed the prefix `model.`, which vLLM adds itself.")
    return draft


def _renamed(tensor: str) -> str:
    return tensor.removeprefix("model.")


def _format(draft: _Draft) -> tuple[str, Callable[[_Draft], bool]]:
    """The exporter, and the function that converts its format and returns whether the head drafts in parallel."""
    architectures = draft.config.get("architectures") or [""]
    if "speculators_model_type" in draft.config:
        return "speculators", _from_speculators
    if architectures == ["LlamaEagle3DraftModel"]:
        return "nemo-automodel", _from_nemo
    # SpecForge's EAGLE-3 heads have vLLM's architecture name, and both `midlayer.` and `t2d` tensors. So does AWS's
    # P-EAGLE head for gpt-oss-20b (github aws-neuron/nkipy, examples/models/gpt_oss/peagle), which is in vLLM's format.
    midlayer = any(name.startswith("midlayer.") for name in draft.tensors)
    by_specforge = midlayer and "t2d" in draft.tensors and "mask_hidden" not in draft.tensors
    if architectures == ["PEagleDraftModel"] or (architectures == ["LlamaForCausalLMEagle3"] and by_specforge):
        return "specforge", _from_specforge
    if architectures[0] in _VLLM_ARCHITECTURES:
        return "vllm", lambda draft: "mask_hidden" in draft.tensors or _mask_token(draft.config) is not None
    edit = "Supported are exports of SpecForge (peagle, eagle3), NeMo AutoModel and speculators (peagle, eagle3)."
    raise draft.cannot(f"`architectures` is {architectures}, which no known exporter writes", edit)


def _from_speculators(draft: _Draft) -> bool:
    kind, layer = draft.config["speculators_model_type"], draft.config.get("transformer_layer_config")
    if kind not in ("eagle3", "peagle"):
        edit = "Only `eagle3`, `peagle`, `dflash` and `dspark` heads can be converted."
        raise draft.cannot(f"`speculators_model_type` is `{kind}`", edit)
    if not isinstance(layer, dict):
        edit = "Export the head again with speculators 0.6 or newer."
        raise draft.cannot("`transformer_layer_config` is missing", edit)
    if layer.get("model_type", "llama") not in ("llama", "qwen3"):
        problem = f"the head has `{layer['model_type']}` layers, which vLLM's eagle3 loaders do not support"
        raise draft.cannot(problem, "Train it with `--draft-arch llama` or `qwen3`.")
    outer = {key: draft.config[key] for key in _SPECULATORS_KEYS if draft.config.get(key) is not None}
    methods = (draft.config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    draft.config = {"model_type": "llama", **layer, **outer}
    moved = "Moved the keys of `transformer_layer_config` to the top level, where vLLM's loaders read them."
    draft.changes.append(moved)
    if kind == "peagle" and (depths := methods[0].get("speculative_tokens")):
        draft.set("num_depths", depths, "the depth it was trained for")
    for tensor in ("verifier_lm_head.weight", "verifier_norm.weight"):
        draft.leave_out(tensor, "it belongs to the target and was only used for training")
    return bool(kind == "peagle")


def _from_blocks(draft: _Draft, method: str) -> None:
    """As the heads of DFlash's and DSpark's authors are, whose layers see a whole block: of a DFlash export vLLM 0.32
    reads the `sliding_window_non_causal: false`, also without windows, as layers that see only what comes before.
    """
    config, layer = draft.config, draft.config.get("transformer_layer_config")
    if not isinstance(layer, dict) or layer.get("model_type") != "qwen3":
        raise draft.cannot("`transformer_layer_config` is not that of Qwen3 layers", "Export a head that has these.")
    ids, token = config.get("aux_hidden_state_layer_ids"), config.get("mask_token_id")
    if not ids or token is None:
        edit = "Export the head again with speculators 0.9 or newer."
        raise draft.cannot("`aux_hidden_state_layer_ids` or `mask_token_id` is missing", edit)
    at_anchor = method == "dspark"
    if bool(config.get("sample_from_anchor")) != at_anchor or "sliding_attention" in (layer.get("layer_types") or ()):
        edit = "Serve the export itself, which vLLM reads."
        problem = f"a {method} head with sliding windows, or with `sample_from_anchor: {str(not at_anchor).lower()}`,"
        raise draft.cannot(f"{problem} is not converted", edit)
    common = {
        **layer,
        **{key: config[key] for key in ("draft_vocab_size", "block_size", "dtype") if config.get(key) is not None},
        "eagle_aux_hidden_state_layer_ids": ids,
    }
    layers = {"mask_token_id": token, "target_layer_ids": [one - 1 for one in ids]}
    if method == "dflash":
        draft.config = {**common, "architectures": ["DFlashDraftModel"], "dflash_config": layers}
    else:
        if config.get("markov_head_type") != "vanilla":
            problem = f"`markov_head_type` is `{config.get('markov_head_type')}`, and vLLM computes `vanilla` alone"
            raise draft.cannot(problem, "Train it with `--markov-head-type vanilla`.")
        own = {key: config[key] for key in _DSPARK_KEYS if key in config}
        draft.config = {**common, "architectures": ["Qwen3DSparkModel"], **layers, **own}
    draft.changes.append("Moved the keys of `transformer_layer_config` to the top level.")
    for tensor in ("verifier_lm_head.weight", "verifier_norm.weight"):
        draft.leave_out(tensor, "it belongs to the target and was only used for training")


def _from_nemo(draft: _Draft) -> bool:
    """NeMo AutoModel copies the target's config, of which the head's Llama layers use only a part."""
    draft.set("model_type", "llama", "the head has Llama layers, independent of the target")
    for key in ("layer_types", "sliding_window", "quantization_config"):
        draft.drop(key, "it belongs to the target, and the head was trained without it")
    return bool(draft.config.get("parallel_drafting"))


def _from_specforge(draft: _Draft) -> bool:
    parallel = bool(draft.config["architectures"] == ["PEagleDraftModel"])
    if parallel:
        _plain_rope(draft)
    elif draft.config.get("norm_output") is False:
        problem = "`norm_output` is false: the head expects unnormalized hidden states, but vLLM normalizes them"
        raise draft.cannot(problem, "Train the head again without `norm_output`.")
    else:
        draft.drop("norm_output", "it has another meaning in vLLM, whose default is what SpecForge means by it")
    layers = (draft.config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if layers and not draft.config.get("eagle_aux_hidden_state_layer_ids"):
        # SGLang (0.5.14) numbers a hidden state by the layer that outputs it, vLLM by the layer that reads it.
        ids = [layer + 1 for layer in layers]
        draft.set("eagle_aux_hidden_state_layer_ids", ids, "vLLM's numbers of these layers are one higher")
    return parallel


def _plain_rope(draft: _Draft) -> None:
    """SpecForge 0.2.0 trains P-EAGLE heads with plain RoPE, even if their config has RoPE scaling."""
    rope = draft.config.get("rope_parameters") or draft.config.get("rope_scaling") or {}
    if (rope.get("rope_type") or rope.get("type") or "default") == "default":
        return
    why = "SpecForge trains P-EAGLE heads without RoPE scaling"
    theta = rope.get("rope_theta", draft.config.get("rope_theta", 10000.0))
    draft.drop("rope_scaling", why)
    draft.set("rope_parameters", {"rope_type": "default", "rope_theta": theta}, why)


def _require_known_tensors(draft: _Draft) -> None:
    unknown = [name for name in draft.tensors if not _KNOWN_TENSOR.fullmatch(name)]
    if unknown:
        more = f" and {len(unknown) - 1} more" if unknown[1:] else ""
        problem = f"vLLM's eagle3 loaders cannot load tensor `{unknown[0]}`{more}"
        raise draft.cannot(problem, "Only heads with Llama or Qwen3 layers can be converted.")


def _fit_layers(draft: _Draft) -> None:
    names = draft.tensors
    if draft.config.get("architectures", [""])[0] not in _VLLM_ARCHITECTURES:
        qwen3 = any(name.endswith("q_norm.weight") for name in names)
        known = "Eagle3Qwen3ForCausalLM" if qwen3 else "LlamaForCausalLMEagle3"
        draft.set("architectures", [known], "this is vLLM's name for it")
    numbers = {int(name.split(".")[1]) for name in names if name.startswith("layers.")}
    layers = len(numbers | {0}) if any(name.startswith("midlayer.") for name in names) else len(numbers)
    draft.set("num_hidden_layers", layers, "so many layers are stored")
    if len(types := draft.config.get("layer_types") or ()) > layers:
        draft.set("layer_types", types[:layers], "one for each layer")
    bias = any(name.endswith("q_proj.bias") for name in names)
    if bias != bool(draft.config.get("attention_bias")):
        draft.set("attention_bias", bias, f"biases are {'' if bias else 'not '}stored")
    norms = any(name.startswith("fc_norm.") for name in names)
    if norms != bool(draft.config.get("fc_norm")):
        draft.set("fc_norm", norms, f"norms in front of `fc` are {'' if norms else 'not '}stored")


def _fit_vocabulary(draft: _Draft) -> None:
    vocabulary = _size(draft, "vocab_size")
    lm_head = draft.tensors.get("lm_head.weight")
    drafted = lm_head[0] if lm_head else draft.config.get("draft_vocab_size") or vocabulary
    draft.set("draft_vocab_size", drafted, "the tokens it drafts from")
    if drafted == vocabulary:
        if any(draft.read("d2t")):
            problem = "it drafts from the whole vocabulary, but `d2t` maps tokens to other tokens"
            edit = "vLLM refuses such a map since 0.30.0: export the head in the target's token order."
            raise draft.cannot(problem, edit)
        draft.leave_out("d2t", "the head drafts from the whole vocabulary, and vLLM then refuses a map since 0.30.0")
    elif "d2t" not in draft.tensors:
        problem = f"it drafts from {drafted} of {vocabulary} tokens, but no tensor `d2t` maps them back"
        raise draft.cannot(problem, "Export the head again together with its vocabulary mapping (`d2t`).")


def _fit_hidden_states(draft: _Draft, target: Path | None) -> None:
    """Set how many of the target's hidden states the head reads, and of which layers."""
    fc = draft.tensors.get("fc.weight", ())
    width = draft.config.get("target_hidden_size") or _size(draft, "hidden_size")
    if len(fc) != 2 or fc[1] % width:
        stored, must = (
            f"is {list(fc)}" if fc else "is missing",
            "its width must be a multiple of the target's hidden size",
        )
        edit = "Correct `target_hidden_size`. A head without `fc.weight` is not an EAGLE-3 style head."
        raise draft.cannot(f"tensor `fc.weight` {stored}, but {must}", edit)
    draft.set("target_hidden_size", width, "the size of the hidden states it reads")
    draft.set("num_aux_hidden_states", fc[1] // width, "the number of hidden states that `fc.weight` reads")
    ids = draft.config.get("eagle_aux_hidden_state_layer_ids")
    ids = ids or (draft.config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if target and not ids and fc[1] == 3 * width:
        layers = read_folder(target).text_config.get("num_hidden_layers", 0)
        why = f"the exporters' default for {layers} layers; correct it if the head was trained with others"
        draft.set("eagle_aux_hidden_state_layer_ids", list(unnamed_layers(layers)), why)


def _fit_parallel_drafting(draft: _Draft) -> None:
    token = _mask_token(draft.config)
    if token is None:
        hint = (
            "Add `mask_token_id`, the id that it was trained with. SpecForge does not export it. It is"
            " `peagle_mask_token_id` in the checkpoint's training_state.pt, and the depth is `peagle_num_depths`."
        )
        raise draft.cannot("it names no mask token, which parallel drafting needs", hint)
    for key in ("ptd_token_id", "pard_token"):
        draft.set(key, token, "the mask token, under a key that every vLLM since 0.16 reads")
    shape, width = draft.tensors.get("mask_hidden", (0,)), draft.tensors["fc.weight"][1]
    if (values := math.prod(shape)) != width:
        problem = f"has {values} values, but `fc.weight` needs {width}" if values else "is missing"
        raise draft.cannot(f"tensor `mask_hidden` {problem}", "Export the head again: a P-EAGLE head needs it.")


def _mask_token(config: dict[str, Any]) -> int | None:
    nested = (config.get("dflash_config") or {}).get("mask_token_id")
    candidates = [nested, *(config.get(key) for key in ("mask_token_id", "pard_token", "ptd_token_id"))]
    return next((token for token in candidates if isinstance(token, int)), None)


def _size(draft: _Draft, key: str) -> int:
    value = draft.config.get(key)
    if not isinstance(value, int):
        raise draft.cannot(f"`{key}` is missing", f"Add `{key}` with the value that the head was trained with.")
    return value


def _write(draft: _Draft, out: Path) -> None:
    """Write the folder atomically: it is renamed to `out` once it is complete."""
    stored = [name for shard in draft.shards for name in shard.tensors]
    names = {name: _renamed(name) for name in stored if _renamed(name) in draft.tensors}
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        folder = Path(scratch) / out.name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(draft.config, indent=2) + "\n", encoding="utf-8")
        write_shards(draft.shards, folder, names)
        for path in {path for pattern in _TRAVELS_ALONG for path in draft.folder.glob(pattern) if path.is_file()}:
            shutil.copyfile(path, folder / path.name)
        folder.rename(out)
