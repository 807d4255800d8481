"""Model folders of a few kB, and recipes for them: all that checks and plans read of a pair."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import fields, replace
from math import prod
from pathlib import Path
from typing import Any

from toolkit import registry
from toolkit.engines import registry as engine_registry
from toolkit.loading import load
from toolkit.recipe.facts import Lock
from toolkit.recipe.lock import read_models
from toolkit.recipe.model_files import ModelFiles
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource

HIDDEN, VOCABULARY, MASK_TOKEN = 8, 32, 3
METHODS = ("p-eagle", "eagle3", "draft-model", "pard")
Shapes = Mapping[str, tuple[int, ...]]

RECIPE = """\
name: tiny
description: a pair of a few kB
target: {model: ./target}
speculation:
  method: p-eagle
  model: ./drafter
  num_speculative_tokens: 7
engine:
  name: vllm
  version: 0.32.0
  max_model_len: 1024
  max_num_seqs: 16
  max_num_batched_tokens: 2048
  args:
    dtype: float32
    enforce-eager: true
  env: {HF_HUB_OFFLINE: "1"}
platform: {name: local}
"""

HUB_RECIPE = """\
name: hub
target: {model: org/target}
speculation:
  method: p-eagle
  model: org/drafter
  num_speculative_tokens: 7
engine:
  version: 0.30.0
  max_model_len: 1024
  max_num_batched_tokens: 16384
platform: {name: sagemaker, instance_types: [ml.g6.xlarge], health_check_timeout: 600}
"""

_LANGUAGE_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": HIDDEN,
    "intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 1024,
}
_HEAD = {
    **_LANGUAGE_MODEL,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 2,
    "target_hidden_size": HIDDEN,
    "num_aux_hidden_states": 3,
}
_HEAD_TENSORS: Shapes = {"fc.weight": (HIDDEN, 3 * HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN)}
_DRAFTERS: Mapping[str, tuple[Mapping[str, Any], Shapes]] = {
    "p-eagle": ({**_HEAD, "ptd_token_id": MASK_TOKEN}, {**_HEAD_TENSORS, "mask_hidden": (1, 1, 3 * HIDDEN)}),
    "eagle3": (_HEAD, _HEAD_TENSORS),
    "draft-model": (_LANGUAGE_MODEL, {"lm_head.weight": (VOCABULARY, HIDDEN)}),
    "pard": ({**_LANGUAGE_MODEL, "pard_token": MASK_TOKEN}, {"lm_head.weight": (VOCABULARY, HIDDEN)}),
}


def write_pair(root: Path, method: str = "p-eagle") -> Path:
    """A target and a drafter that fit, and a recipe for them; the recipe's path."""
    config, tensors = _DRAFTERS[method]
    write_model(root / "target", _LANGUAGE_MODEL, {"lm_head.weight": (VOCABULARY, HIDDEN)})
    write_tokenizer(root / "target")
    write_model(root / "drafter", config, tensors)
    return write_recipe(root, RECIPE.replace("p-eagle", method))


def write_hub_pair(root: Path, text: str = HUB_RECIPE, **facts: Mapping[str, Any]) -> Path:
    """The pair of `write_pair` as the hub would have it: a recipe that names repositories, and their lock.

    `facts` changes what the lock says of `target` or `drafter`; a `config` in it is merged into the model's own.
    """
    method = text.split("method: ")[1].split()[0]
    folders = load(write_pair(root, method if method in _DRAFTERS else "p-eagle"))
    path = write_recipe(root, text)
    lock = read_models(folders, open_files=_nowhere)
    assert lock.drafter
    models: dict[str, Any] = {"target": lock.target}
    if "model:" in text.partition("speculation:")[2].partition("engine:")[0]:
        models["drafter"] = lock.drafter
    for name, model in models.items():
        changes = {"model": f"org/{name}", "revision": "abc", **facts.get(name, {})}
        models[name] = replace(model, **{**changes, "config": {**model.config, **changes.get("config", {})}})
    path.with_suffix(".lock.json").write_text(json.dumps(Lock(**models).to_dict()))
    return path


def _nowhere(source: ModelSource) -> ModelFiles:
    raise AssertionError(f"{source} is in a folder")


def write_recipe(root: Path, text: str) -> Path:
    path = root / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def write_model(folder: Path, config: Mapping[str, Any], tensors: Shapes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)


def write_safetensors(path: Path, tensors: Shapes) -> None:
    """A genuine safetensors file of bfloat16 zeros."""
    header, end = {}, 0
    for name, shape in tensors.items():
        start, end = end, end + 2 * prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": (start, end)}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def write_tokenizer(folder: Path, first_token: str = "w0", chat_template: bool = True) -> None:
    vocabulary = {first_token: 0, **{f"w{i}": i for i in range(1, VOCABULARY)}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
    template = {"chat_template": "{{ messages }}"} if chat_template else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(template))


def edit_config(folder: Path, **changes: object) -> None:
    """Change keys of config.json; None removes one."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def edit_tensors(folder: Path, changes: Mapping[str, tuple[int, ...] | None]) -> None:
    """Change shapes of tensors; None removes one."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    shapes = {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    write_safetensors(path, {name: shape for name, shape in {**shapes, **changes}.items() if shape is not None})


def recipe_with(recipe: Recipe, **changes: Any) -> Recipe:
    """The recipe with other values of its fields or its platform's settings; `platform` is another platform's name."""
    of_platform = type(recipe.platform).model_fields.keys() - {field.name for field in fields(Recipe)}
    settings = {key: changes.pop(key) for key in of_platform & changes.keys()}
    if own := changes.pop("overrides", None):
        types = settings.get("instance_types", recipe.platform.types)
        settings["instance_types"] = [own.get(name, name) for name in dict.fromkeys((*types, *own))]
    if name := changes.pop("platform", None):
        settings["name"], changes["platform_rules"] = name, registry.rules_of(name)
    return replace(recipe, **changes, platform=recipe.platform.edit(**settings))


def of_engine(recipe: Recipe, name: str, **changes: Any) -> Recipe:
    """The recipe on another engine."""
    return replace(
        recipe, engine=recipe.engine.edit(name=name, **changes), engine_rules=engine_registry.engine_rules(name)
    )
