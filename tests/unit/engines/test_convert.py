"""Heads as SpecForge, NeMo AutoModel and speculators export them become folders that vLLM loads."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from head_exports import (
    DRAFTED,
    EXPORTS,
    HIDDEN,
    MASK_TOKEN,
    SIZES,
    VOCAB,
    WIDTH,
    export,
    maps,
    nemo,
    specforge_eagle3,
    specforge_peagle,
    speculators,
    weights,
)
from pairs import write_model, write_tokenizer
from safetensors.numpy import load_file, save_file
from typer import Typer
from typer.testing import CliRunner

from toolkit.cli import make_commands
from toolkit.cli.make_commands import check_head
from toolkit.engines.vllm.convert import convert
from toolkit.errors import UnreadableModel, UsageError
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.model_files import read_folder
from toolkit.training.engine import Conversion

DSPARK: dict[str, Any] = {
    "speculators_model_type": "dspark",
    "aux_hidden_state_layer_ids": [2, 4, 5],
    "mask_token_id": 3,
    "sample_from_anchor": True,
    "markov_head_type": "vanilla",
}


def write_target(folder: Path) -> Path:
    config = {"hidden_size": HIDDEN, "vocab_size": VOCAB, "num_hidden_layers": 8}
    write_model(folder, config, {"lm_head.weight": (VOCAB, HIDDEN)})
    return folder


def edit_tensors(head: Path, add: Mapping[str, np.ndarray[Any, Any]] | None = None, *, remove: str = "") -> None:
    stored = {**load_file(head / "model.safetensors"), **(add or {})}
    stored.pop(remove, None)
    save_file(stored, head / "model.safetensors")


def config_of(made: Conversion) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((made.out / "config.json").read_text())
    return config


@pytest.mark.parametrize(("kind", "write"), EXPORTS.items(), ids=map("-".join, EXPORTS))
def test_each_export_becomes_a_head_that_fits_its_target(tmp_path: Path, kind: tuple[str, str], write: Any) -> None:
    head, target = write(tmp_path / "head"), write_target(tmp_path / "target")
    before = {path.name: path.read_bytes() for path in head.iterdir()}

    made = convert(head, tmp_path / "out", target=target)

    assert (made.format, made.method) == kind
    assert made.changes
    assert check_head(read_folder(target), read_folder(made.out), made.method) == ()
    assert {path.name: path.read_bytes() for path in head.iterdir()} == before
    source = load_file(head / "model.safetensors")
    for name, tensor in load_file(made.out / "model.safetensors").items():
        original = source.get(name, source.get(f"model.{name}"))
        assert original is not None, name
        assert (original.dtype, original.shape, original.tobytes()) == (tensor.dtype, tensor.shape, tensor.tobytes())


@pytest.mark.parametrize("write", EXPORTS.values(), ids=map("-".join, EXPORTS))
def test_a_converted_head_needs_no_other_change(tmp_path: Path, write: Any) -> None:
    once = convert(write(tmp_path / "head"), tmp_path / "once")
    twice = convert(once.out, tmp_path / "twice")
    assert (twice.method, twice.changes) == (once.method, ())
    assert config_of(twice) == config_of(once)


@pytest.mark.parametrize("method", ["p-eagle", "eagle3"])
def test_a_head_that_is_fine_is_copied(tmp_path: Path, method: str) -> None:
    head = catalogue_dir() / "tiny" / "models" / method
    made = convert(head, tmp_path / "out")
    assert (made.format, made.method, made.changes) == ("vllm", method, ())
    assert config_of(made) == json.loads((head / "config.json").read_text())
    assert read_folder(made.out).tensors == read_folder(head).tensors


def test_specforge_p_eagle(tmp_path: Path) -> None:
    made = convert(specforge_peagle(tmp_path / "head"), tmp_path / "out")
    config, tensors = config_of(made), load_file(made.out / "model.safetensors")
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert (config["ptd_token_id"], config["pard_token"], config["mask_token_id"]) == (MASK_TOKEN,) * 3
    assert (config["target_hidden_size"], config["num_aux_hidden_states"]) == (HIDDEN, 3)
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 5e5}
    assert "rope_scaling" not in config
    assert config["norm_before_residual"] is True
    assert "d2t" not in tensors, "vLLM has no place for it when the head drafts from the whole vocabulary"
    assert tensors["mask_hidden"].shape == (1, 1, WIDTH)


@pytest.mark.parametrize("key", ["mask_token_id", "pard_token", "ptd_token_id"])
def test_the_mask_token_may_stand_under_any_of_its_names(tmp_path: Path, key: str) -> None:
    head = specforge_peagle(tmp_path / "head", **{"mask_token_id": None, key: MASK_TOKEN})
    assert config_of(convert(head, tmp_path / "out"))["ptd_token_id"] == MASK_TOKEN


def test_specforge_counts_layers_from_one_lower_than_vllm(tmp_path: Path) -> None:
    made = convert(specforge_eagle3(tmp_path / "head"), tmp_path / "out")
    config = config_of(made)
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 6]
    assert "norm_output" not in config, "vLLM would feed normed hidden states back, which SpecForge does not train"
    assert any(name.startswith("midlayer.") for name in load_file(made.out / "model.safetensors"))


def test_nemo_keeps_too_much_of_the_target(tmp_path: Path) -> None:
    made = convert(nemo(tmp_path / "head", parallel=False), tmp_path / "out")
    config = config_of(made)
    assert (config["model_type"], config["num_hidden_layers"]) == ("llama", 1)
    assert not {"layer_types", "sliding_window", "quantization_config"} & config.keys()
    assert "Renamed 13 tensors: removed the prefix `model.`, which vLLM adds itself." in made.changes


def test_nemo_p_eagle_knows_its_depth(tmp_path: Path) -> None:
    config = config_of(convert(nemo(tmp_path / "head"), tmp_path / "out"))
    assert (config["num_depths"], config["ptd_token_id"], config["num_hidden_layers"]) == (8, MASK_TOKEN, 2)


def test_speculators_config_is_flat_afterwards(tmp_path: Path) -> None:
    config = config_of(convert(speculators(tmp_path / "head"), tmp_path / "out"))
    assert config["architectures"] == ["Eagle3Qwen3ForCausalLM"]
    assert (config["model_type"], config["hidden_size"], config["draft_vocab_size"]) == ("qwen3", HIDDEN, DRAFTED)
    assert (config["num_depths"], config["pard_token"], config["num_aux_hidden_states"]) == (8, MASK_TOKEN, 3)
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]
    assert config["norm_before_residual"] is True
    assert not {"speculators_model_type", "speculators_config", "transformer_layer_config"} & config.keys()


def test_norms_in_front_of_fc_stay(tmp_path: Path) -> None:
    head = speculators(tmp_path / "head", fc_norm=True, norm_output=True)
    edit_tensors(head, {f"fc_norm.{number}.weight": np.ones(HIDDEN, np.float32) for number in range(3)})
    made = convert(head, tmp_path / "out")
    assert (config_of(made)["fc_norm"], config_of(made)["norm_output"]) == (True, True)
    assert "fc_norm.2.weight" in load_file(made.out / "model.safetensors")


def test_norms_that_were_never_trained_are_switched_off(tmp_path: Path) -> None:
    """SpecForge's P-EAGLE heads have none, whatever their config says; vLLM would make some up."""
    made = convert(specforge_peagle(tmp_path / "head", fc_norm=True), tmp_path / "out")
    assert config_of(made)["fc_norm"] is False
    assert "Set `fc_norm` to false: norms in front of `fc` are not stored." in made.changes


def test_a_head_like_that_of_aws_only_loses_its_map(tmp_path: Path) -> None:
    """vLLM's format with `midlayer`, `t2d` and a `d2t` of zeros, as amazon/GPT-OSS-20B-P-EAGLE has them."""
    config = {**SIZES, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": VOCAB}
    changes = {"target_hidden_size": HIDDEN, "num_aux_hidden_states": 3, "ptd_token_id": 3, "pard_token": 3}
    tensors = weights(first="midlayer", parallel=True) | maps(VOCAB)
    made = convert(export(tmp_path / "head", {**config, **changes}, tensors), tmp_path / "out")
    assert (made.format, made.method) == ("vllm", "p-eagle")
    assert len(made.changes) == 1
    assert "Removed tensor `d2t`: the head drafts from the whole vocabulary" in made.changes[0]
    assert load_file(made.out / "model.safetensors").keys() == tensors.keys() - {"d2t"}


def test_a_map_from_the_whole_vocabulary_to_other_tokens_is_not_dropped(tmp_path: Path) -> None:
    head = specforge_peagle(tmp_path / "head")
    edit_tensors(head, {"d2t": np.ones(VOCAB, np.int64)})
    with pytest.raises(UnreadableModel, match="`d2t` maps tokens to other tokens") as error:
        convert(head, tmp_path / "out")
    assert "export the head in the target's token order" in error.value.hint


def test_what_the_target_keeps_for_itself_is_left_out(tmp_path: Path) -> None:
    head = speculators(tmp_path / "head", "eagle3")
    ours = {
        "verifier_lm_head.weight": np.zeros((DRAFTED, HIDDEN), np.float32),
        "verifier_norm.weight": np.zeros(HIDDEN),
    }
    edit_tensors(head, ours)
    made = convert(head, tmp_path / "out")
    assert not ours.keys() & load_file(made.out / "model.safetensors").keys()


def test_the_target_tells_the_layers_that_the_export_does_not_name(tmp_path: Path) -> None:
    made = convert(nemo(tmp_path / "head"), tmp_path / "out", target=write_target(tmp_path / "target"))
    assert config_of(made)["eagle_aux_hidden_state_layer_ids"] == [2, 4, 5]


def test_a_head_in_several_files_stays_in_several_files(tmp_path: Path) -> None:
    head = nemo(tmp_path / "head")
    stored = load_file(head / "model.safetensors")
    (head / "model.safetensors").unlink()
    files = {name: f"model-0000{1 + ('layers' in name)}-of-00002.safetensors" for name in stored}
    for file in set(files.values()):
        save_file({name: stored[name] for name in stored if files[name] == file}, head / file)
    index = {"metadata": {"total_size": 1}, "weight_map": files}
    (head / "model.safetensors.index.json").write_text(json.dumps(index))

    out = convert(head, tmp_path / "out").out

    written = json.loads((out / "model.safetensors.index.json").read_text())
    assert written["weight_map"] == {name.removeprefix("model."): file for name, file in files.items()}
    assert written["metadata"] == {"total_size": sum(tensor.nbytes for tensor in stored.values())}
    assert "layers.1.mlp.up_proj.weight" in load_file(out / "model-00002-of-00002.safetensors")


def test_tokenizer_licence_and_readme_travel_along(tmp_path: Path) -> None:
    head = specforge_eagle3(tmp_path / "head")
    write_tokenizer(head)
    for name in ("LICENSE", "README.md", "training_state.pt"):
        (head / name).write_text(name)
    out = convert(head, tmp_path / "out").out
    names = {path.name for path in out.iterdir()}
    assert names == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "LICENSE",
        "README.md",
    }
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    head = specforge_eagle3(tmp_path / "head")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    with pytest.raises(UsageError, match="exists and is not empty"):
        convert(head, tmp_path / "out")
    with pytest.raises(UsageError, match="the head's own folder"):
        convert(head, head / "out")


def test_nothing_is_left_of_a_conversion_that_fails(tmp_path: Path) -> None:
    head = nemo(tmp_path / "head")
    data = (head / "model.safetensors").read_bytes()
    (head / "model.safetensors").write_bytes(data[:-1])
    with pytest.raises(UnreadableModel, match=r"model\.safetensors is not a safetensors file: cut short"):
        convert(head, tmp_path / "new" / "out")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "header", [b"[" * 100_000, b'{"fc.weight":{"dtype":"F32","shape":[1],"data_offsets":["0","4"]}}']
)
def test_a_header_that_is_none_is_no_traceback(tmp_path: Path, header: bytes) -> None:
    head = nemo(tmp_path / "head")
    (head / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
    with pytest.raises(UnreadableModel, match=r"model\.safetensors is not a safetensors file"):
        convert(head, tmp_path / "out")


@pytest.mark.parametrize(
    ("write", "changes", "message", "hint"),
    [
        (specforge_peagle, {"mask_token_id": None}, "names no mask token", "`peagle_mask_token_id`"),
        (nemo, {"mask_token_id": None}, "names no mask token", "Add `mask_token_id`"),
        (speculators, {"mask_token_id": None}, "names no mask token", "Add `mask_token_id`"),
        (specforge_eagle3, {"norm_output": False}, "vLLM normalizes them", "without `norm_output`"),
        (speculators, {"speculators_model_type": "mtp"}, "is `mtp`", "Only `eagle3`, `peagle`, `dflash` and `dspark`"),
        (
            speculators,
            {**DSPARK, "markov_head_type": "rnn"},
            "`markov_head_type` is `rnn`",
            "`--markov-head-type vanilla`",
        ),
        (
            speculators,
            {**DSPARK, "sample_from_anchor": False},
            "`sample_from_anchor: false`",
            "Serve the export itself",
        ),
        (speculators, {**DSPARK, "mask_token_id": None}, "or `mask_token_id` is missing", "speculators 0.9"),
        (speculators, {"transformer_layer_config": None}, "`transformer_layer_config` is missing", "speculators 0.6"),
        (
            speculators,
            {"transformer_layer_config": {"model_type": "qwen3_next"}},
            "has `qwen3_next` layers",
            "arch llama",
        ),
        (nemo, {"target_hidden_size": 7}, "`fc.weight` is [8, 24]", "Correct `target_hidden_size`"),
        (nemo, {"vocab_size": None}, "`vocab_size` is missing", "Add `vocab_size`"),
        (nemo, {"architectures": ["LlamaForCausalLM"]}, "no known exporter", "SpecForge (peagle, eagle3)"),
        (nemo, {"architectures": None}, "no known exporter", "SpecForge (peagle, eagle3)"),
    ],
)
def test_a_config_that_cannot_be_converted(
    tmp_path: Path, write: Any, changes: dict[str, Any], message: str, hint: str
) -> None:
    head = write(tmp_path / "head", **changes)
    with pytest.raises(UnreadableModel) as error:
        convert(head, tmp_path / "out")
    assert message in error.value.message
    assert str(head / "config.json") in error.value.message
    assert hint in error.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("write", "remove", "message"),
    [
        (specforge_peagle, "mask_hidden", "`mask_hidden` is missing"),
        (nemo, "d2t", "drafts from 16 of 32 tokens, but no tensor `d2t`"),
        (speculators, "fc.weight", "`fc.weight` is missing"),
    ],
)
def test_a_tensor_that_is_missing(tmp_path: Path, write: Any, remove: str, message: str) -> None:
    head = write(tmp_path / "head")
    edit_tensors(head, remove=remove)
    with pytest.raises(UnreadableModel, match=message):
        convert(head, tmp_path / "out")


@pytest.mark.parametrize("width", [16, 48])
def test_a_mask_hidden_of_another_target(tmp_path: Path, width: int) -> None:
    head = nemo(tmp_path / "head")
    edit_tensors(head, {"mask_hidden": np.zeros((1, 1, width), np.float32)})
    with pytest.raises(UnreadableModel, match=rf"`mask_hidden` has {width} values, but `fc\.weight` needs 24"):
        convert(head, tmp_path / "out")


def test_a_tensor_that_vllm_does_not_know(tmp_path: Path) -> None:
    head = nemo(tmp_path / "head")
    edit_tensors(head, {"model.layers.0.self_attn.kv_a_proj.weight": np.zeros(2, np.float32)})
    with pytest.raises(UnreadableModel, match=r"cannot load tensor `layers\.0\.self_attn\.kv_a_proj\.weight`"):
        convert(head, tmp_path / "out")


def test_a_tensor_that_is_stored_twice(tmp_path: Path) -> None:
    head = nemo(tmp_path / "head")
    edit_tensors(head, {"norm.weight": np.zeros(HIDDEN, np.float32)})
    with pytest.raises(UnreadableModel, match="contains a tensor twice"):
        convert(head, tmp_path / "out")


def test_a_folder_that_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    with pytest.raises(UnreadableModel, match=r"config\.json is missing") as error:
        convert(tmp_path / "head", tmp_path / "out")
    assert "model/consolidated" in error.value.hint
    (tmp_path / "head" / "config.json").write_text("{}")
    with pytest.raises(UnreadableModel, match=r"contains no \*\.safetensors file"):
        convert(tmp_path / "head", tmp_path / "out")


def test_an_index_that_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    head = nemo(tmp_path / "head")
    index = {"weight_map": {"d2t": "model-00002-of-00002.safetensors"}}
    (head / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UnreadableModel, match=r"model-00002-of-00002\.safetensors is missing"):
        convert(head, tmp_path / "out")


def toolkit_convert(*arguments: object) -> tuple[int, str]:
    app = Typer()
    app.command()(make_commands.convert)
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return ended.exit_code, ended.stdout


def test_the_command_answers_in_json(tmp_path: Path) -> None:
    head, out, target = nemo(tmp_path / "head"), tmp_path / "out", write_target(tmp_path / "target")
    code, stdout = toolkit_convert(head, "--out", out, "--target", target, "--json")
    answer = json.loads(stdout)
    assert (code, answer["out"], answer["format"], answer["findings"]) == (0, str(out), "nemo-automodel", [])
    assert answer["changes"]


def test_the_command_says_no_to_a_head_of_another_target(tmp_path: Path) -> None:
    head, target = nemo(tmp_path / "head"), tmp_path / "target"
    write_model(target, {"hidden_size": 16, "vocab_size": VOCAB, "num_hidden_layers": 8}, {"norm.weight": (16,)})
    code, stdout = toolkit_convert(head, "--out", tmp_path / "out", "--target", target, "--json")
    assert code == 1
    assert [finding["code"] for finding in json.loads(stdout)["findings"]] == ["pair.hidden-size", "pair.mask-hidden"]


def test_the_command_tells_people_what_changed(tmp_path: Path) -> None:
    code, stdout = toolkit_convert(specforge_eagle3(tmp_path / "head"), "--out", tmp_path / "out")
    assert code == 0
    assert "out: eagle3 head, converted from specforge" in stdout
    assert "Set `num_aux_hidden_states` to 3" in stdout
    code, stdout = toolkit_convert(tmp_path / "out", "--out", tmp_path / "again")
    assert (code, stdout.splitlines()[1].strip()) == (0, "no changes were needed")
