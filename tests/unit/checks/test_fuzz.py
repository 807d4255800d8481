"""Mangled recipes, configs, headers and locks: a report each time, or a clear error for what is no recipe at all.

Whatever was mangled, the report is the same at every look, and each of its findings is documented and can be printed.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import HUB_RECIPE, RECIPE, edit_config, write_hub_pair, write_pair
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from toolkit.api.checking import check
from toolkit.checks.codes import codes
from toolkit.checks.run import Report
from toolkit.errors import UnreadableRecipe

FUZZ = settings(max_examples=60, suppress_health_check=list(HealthCheck))
REQUIRED = (
    "name",
    "target",
    "speculation",
    "engine",
    "platform",
    "target.model",
    "speculation.method",
    "platform.name",
)
# Plain text, and what files are broken with: YAML's own signs, quotes, control characters, an emoji.
TEXT = st.text("abZ09 _-./:,&*!?|>%@#'\"\\{}[]\t\n\r\0\x7f\x85\u2028\ufeffé€😀", max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXT
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
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


def reported(recipe: Path) -> Report:
    """The report on it."""
    report, lines = check(recipe), len(recipe.read_text(errors="replace").splitlines())
    assert check(recipe) == report
    for finding in report.findings:
        assert finding.code in codes()
        assert finding.message
        assert finding.line is None or 1 <= finding.line <= lines
        finding.line_for(str(recipe)).encode()
    return report


def is_recipe(text: str) -> bool:
    """Whether it is YAML, and a mapping that has what a recipe needs."""
    try:
        found = YAML(pure=True).load(text)
    except (YAMLError, ValueError, RecursionError):
        return False
    needed = set(REQUIRED) - {"speculation.method"}  # `speculation: null` serves the target alone
    return all(has(found, key.split(".")) for key in needed)


def has(document: Any, keys: list[str]) -> bool:
    return not keys or (isinstance(document, dict) and keys[0] in document and has(document[keys[0]], keys[1:]))


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
        mangled = text[:start] + noise + text[end:]
        recipe.write_bytes(mangled.encode("utf-8", "surrogatepass"))
        try:
            report = reported(recipe)
        except UnreadableRecipe:
            assert not is_recipe(mangled) or "!!" in mangled  # a scalar with a tag of Python's is refused
        else:
            assert is_recipe(mangled) or not report.ok


@pytest.mark.parametrize("key", REQUIRED)
def test_a_recipe_without_a_key_that_it_needs(tmp_path: Path, key: str) -> None:
    recipe = write_pair(tmp_path)
    document = YAML(typ="safe", pure=True).load(recipe)
    *sections, last = key.split(".")
    del (document[sections[0]] if sections else document)[last]
    recipe.write_text(json.dumps(document))
    assert (key, "recipe.missing-key") in [(finding.path, finding.code) for finding in reported(recipe).errors]


WITH_TEXT = [
    "name: tiny",
    "description: a pair of a few kB",
    "model: ./target",
    "model: ./drafter",
    "version: 0.32.0",
    "dtype: float32",
    'HF_HUB_OFFLINE: "1"',
]


@pytest.mark.parametrize("line", WITH_TEXT)
def test_half_an_emoji_is_no_text(tmp_path: Path, line: str) -> None:
    with pytest.raises(UnreadableRecipe, match="half of a surrogate pair"):
        with_value(tmp_path, line, r'"\ud83d"')


@pytest.mark.parametrize("line", WITH_TEXT)
def test_an_emoji_as_json_writes_it_gets_a_report(tmp_path: Path, line: str) -> None:
    """As two halves, which are one character."""
    found = {finding.path.rpartition(".")[2] for finding in with_value(tmp_path, line, r'"\ud83d\ude00"').errors}
    assert found <= {line.partition(":")[0]}


def test_half_an_emoji_in_a_config(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    edit_config(tmp_path / "drafter", architectures=["\ud83d"])
    assert not reported(recipe).ok


@pytest.mark.parametrize("line", ["model: ./target", "model: ./drafter"])
def test_a_folder_cannot_have_a_null_byte_in_its_name(tmp_path: Path, line: str) -> None:
    assert not with_value(tmp_path, line, r'"./a\0b"').ok


def with_value(root: Path, line: str, value: str) -> Report:
    """The report on a recipe whose line has another value."""
    recipe = write_pair(root)
    assert line in RECIPE
    recipe.write_text(RECIPE.replace(line, f"{line.partition(':')[0]}: {value}"))
    return reported(recipe)


@FUZZ
@given(st.sampled_from(["target", "drafter"]), st.dictionaries(CONFIG_KEYS, JSON | NUMBERS, max_size=4))
def test_a_mangled_config(model: str, changes: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        recipe = write_pair(Path(folder))
        path = Path(folder) / model / "config.json"
        before, config = reported(recipe), json.loads(path.read_text())
        path.write_text(json.dumps({**config, **changes}))
        after = reported(recipe)
        assert after == before or any(config.get(key) != value for key, value in changes.items())


@FUZZ
@given(st.sampled_from(["target", "drafter"]), st.dictionaries(CONFIG_KEYS, JSON | NUMBERS, max_size=4))
def test_a_mangled_config_in_a_lock(model: str, changes: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        recipe = write_hub_pair(Path(folder))
        path = recipe.with_suffix(".lock.json")
        lock = json.loads(path.read_text())
        lock[model]["config"] |= changes
        path.write_text(json.dumps(lock))
        reported(recipe)


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
        report = reported(recipe)
        assert key or not report.ok


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
        reported(recipe)


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
        assert not reported(recipe).ok


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"NaN", b'{"hidden_size": NaN}', b'{"hidden_size": 1e999}',
     b'{"hidden_size": ' + b"9" * 5000 + b"}", b"null"],
)  # fmt: skip
def test_a_file_that_is_no_json_object(tmp_path: Path, name: str, content: bytes) -> None:
    (finding,) = broken_file(tmp_path, name, content).errors
    assert (finding.code, finding.path) == ("model.unreadable", "target.model")
    assert str(tmp_path / "target" / name) in finding.message


STRANGE = [b'{"vocab_size": "1"}', b'{"model": {"vocab": 5}}', b'{"model": {"vocab": [[]]}}']


@pytest.mark.parametrize("content", STRANGE)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_an_object_that_is_no_config_and_no_tokenizer(tmp_path: Path, name: str, content: bytes) -> None:
    (finding,) = broken_file(tmp_path, name, content).errors
    assert (finding.code, finding.path) == ("model.unreadable", "target.model")


@pytest.mark.parametrize("content", STRANGE)
@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
def test_keys_that_nobody_reads(tmp_path: Path, name: str, content: bytes) -> None:
    assert broken_file(tmp_path, name, content).ok


def broken_file(root: Path, name: str, content: bytes) -> Report:
    recipe = write_pair(root)
    (root / "target" / name).write_bytes(content)
    return reported(recipe)


@pytest.mark.parametrize(
    "text", ["a: " * 3000, "[" * 5000, "a: &a [" + "*a," * 10 + "]", "- " * 5000, '"' + "x" * 10**6]
)
def test_a_recipe_that_is_none(tmp_path: Path, text: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    with pytest.raises(UnreadableRecipe, match=r"not YAML|nested too deeply|larger than"):
        check(recipe)
