"""Mangled recipes, configs, headers and locks: a finding or a clear error each time, in bounded time."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import HUB_RECIPE, RECIPE, write_hub_pair, write_pair

from toolkit.checks.run import check
from toolkit.errors import ToolkitError
from toolkit.findings import Report

FUZZ = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63, 2**64 - 1, 7, 10**18])
CONFIG_KEYS = st.sampled_from(
    [
        "architectures", "hidden_size", "vocab_size", "text_config", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "layer_types", "sliding_window", "quantization_config", "eagle_config",
        "eagle_aux_hidden_state_layer_ids", "speculators_config", "num_depths", "ptd_token_id", "dflash_config",
        "max_position_embeddings", "num_experts", "kv_lora_rank", "draft_vocab_size", "target_hidden_size", "dtype",
        "transformer_layer_config", "num_aux_hidden_states",
    ]
)  # fmt: skip


def outcome(recipe: Path) -> Report | None:
    """What a user sees: a report, or None for an error of ours. Anything else fails the test."""
    try:
        return check(recipe)
    except ToolkitError:
        return None


@FUZZ
@given(st.data())
def test_a_mangled_recipe(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([RECIPE, HUB_RECIPE]))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    noise = data.draw(
        st.text(max_size=20) | st.sampled_from(["&a [*a]", "<<: {}", "!!python/object:os.system", "\t", "{"])
    )
    with TemporaryDirectory() as folder:
        recipe = write_pair(Path(folder))
        recipe.write_text(text[:start] + noise + text[end:], encoding="utf-8", errors="surrogateescape")
        outcome(recipe)


@FUZZ
@given(st.sampled_from(["target", "drafter"]), st.dictionaries(CONFIG_KEYS, JSON | NUMBERS, max_size=4))
def test_a_mangled_config(model: str, changes: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        recipe = write_pair(Path(folder))
        path = Path(folder) / model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        outcome(recipe)


@FUZZ
@given(st.sampled_from(["target", "drafter"]), st.dictionaries(CONFIG_KEYS, JSON | NUMBERS, max_size=4))
def test_a_mangled_config_in_a_lock(model: str, changes: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        recipe = write_hub_pair(Path(folder))
        path = recipe.with_suffix(".lock.json")
        lock = json.loads(path.read_text())
        lock[model]["config"] |= changes
        path.write_text(json.dumps(lock))
        outcome(recipe)


@FUZZ
@given(JSON, st.sampled_from(["target", "drafter", "target.tensors", "drafter.tokenizer", "target.config"]))
def test_a_mangled_lock(value: Any, where: str) -> None:
    with TemporaryDirectory() as folder:
        recipe = write_hub_pair(Path(folder))
        path = recipe.with_suffix(".lock.json")
        lock = json.loads(path.read_text())
        part, _, key = where.partition(".")
        if key:
            lock[part][key] = value
        else:
            lock[part] = value
        path.write_text(json.dumps(lock))
        outcome(recipe)


NEURON_RECIPE = """\
name: trn
target: {model: org/target}
speculation:
  method: draft-model
  model: org/drafter
engine:
  name: neuron
  max_model_len: 64
  args: %s
platform: {name: %s}
"""
NEURON_FLAGS = st.sampled_from(
    [
        "tensor-parallel-size", "additional-config", "override-neuron-config", "num-gpu-blocks-override",
        "override-generation-config", "kv-cache-dtype", "dtype", "speculative-config",
    ]
)  # fmt: skip
PLACES = ["sagemaker, instance_types: [ml.trn2.48xlarge]", "kubernetes, instance_types: [trn1.32xlarge]"]


@FUZZ
@given(
    st.dictionaries(NEURON_FLAGS, JSON | NUMBERS, max_size=3),
    st.dictionaries(CONFIG_KEYS, JSON | NUMBERS, max_size=3),
    st.sampled_from(PLACES),
    st.sampled_from(["draft-model", "eagle3"]),
)
def test_mangled_flags_and_config_for_trainium(
    flags: dict[str, Any], changes: dict[str, Any], place: str, method: str
) -> None:
    with TemporaryDirectory() as folder:
        text = (NEURON_RECIPE % (json.dumps(flags), place)).replace("draft-model", method)
        recipe = write_hub_pair(Path(folder), text)
        path = recipe.with_suffix(".lock.json")
        lock = json.loads(path.read_text())
        lock["target"]["config"] |= changes
        path.write_text(json.dumps(lock))
        outcome(recipe)


@FUZZ
@given(
    JSON
    | st.dictionaries(
        st.text(max_size=12),
        st.fixed_dictionaries(
            {"dtype": JSON, "shape": st.lists(NUMBERS | SCALARS, max_size=4), "data_offsets": st.lists(NUMBERS)}
        ),
        max_size=3,
    ),
    st.none() | NUMBERS,
)
def test_a_mangled_safetensors_header(header: Any, length: int | None) -> None:
    text = json.dumps(header).encode()
    content = struct.pack("<Q", (len(text) if length is None else length) % 2**64) + text
    with TemporaryDirectory() as folder:
        recipe = write_pair(Path(folder))
        (Path(folder) / "drafter" / "model.safetensors").write_bytes(content)
        outcome(recipe)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b'{"hidden_size": NaN}', b'{"vocab_size": 1e999}',
     b'{"hidden_size": ' + b"9" * 5000 + b"}", b"null", b'{"model": {"vocab": 5}}', b'{"model": {"vocab": [[]]}}'],
)  # fmt: skip
def test_a_file_that_is_none(tmp_path: Path, name: str, content: bytes) -> None:
    recipe = write_pair(tmp_path)
    (tmp_path / "target" / name).write_bytes(content)
    outcome(recipe)


@pytest.mark.parametrize(
    "text", ["a: " * 3000, "[" * 5000, "a: &a [" + "*a," * 10 + "]", "- " * 5000, '"' + "x" * 10**6]
)
def test_a_recipe_that_is_none(tmp_path: Path, text: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    outcome(recipe)
