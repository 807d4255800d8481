"""The tiny P-EAGLE head in a real vLLM: as the trainer sees it, and converted from the shape of each exporter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_vllm import ForkedVllm
from safetensors.torch import load_file, save_file

from toolkit.engines.vllm.convert import convert
from toolkit.recipe.known import catalogue_dir
from toolkit.training.head import aux_layers, build_head
from toolkit.training.job import TrainingJob
from toolkit.training.learn import Lesson, PEagleLearner
from toolkit.training.partition import DraftMasks, Drafts
from toolkit.training.states import Extractor, load_target

pytestmark = pytest.mark.serving

TINY = catalogue_dir() / "tiny"
HEAD = TINY / "models" / "p-eagle"
LAYERS = "eagle_aux_hidden_state_layer_ids"
TOP_LEVEL = ("lm_head.weight", "mask_hidden")
Config = dict[str, Any]
Tensors = dict[str, torch.Tensor]


def as_specforge(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    layers = [layer - 1 for layer in config.pop(LAYERS)]
    maps = {
        "d2t": torch.zeros(config["vocab_size"], dtype=torch.int64),
        "t2d": torch.ones(config["vocab_size"], dtype=torch.bool),
    }
    changes = {"architectures": ["PEagleDraftModel"], "eagle_config": {LAYERS: layers}}
    return config | changes, tensors | maps


def as_nemo(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    """Its export does not name the layers; with others than its defaults, as here, the user adds them."""
    changes = {
        "architectures": ["LlamaEagle3DraftModel"],
        "model_type": "qwen3",
        "parallel_drafting": True,
        "layer_types": ["full_attention"] * config["num_hidden_layers"],
    }
    return config | changes, {name if name in TOP_LEVEL else f"model.{name}": tensors[name] for name in tensors}


def as_speculators(config: Config, tensors: Tensors) -> tuple[Config, Tensors]:
    outer = {
        "architectures": ["PEagleDraftModel"],
        "speculators_model_type": "peagle",
        "speculators_config": {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 8}]},
        "target_hidden_size": None,
        "norm_before_residual": config.pop("norm_before_residual", False),
        "fc_norm": config.pop("fc_norm", False),
        **{key: config.pop(key) for key in ("draft_vocab_size", "mask_token_id", LAYERS)},
    }
    return outer | {"transformer_layer_config": config}, tensors


SHAPES = {"specforge": as_specforge, "nemo-automodel": as_nemo, "speculators": as_speculators}


def with_fc_norm(folder: Path) -> Path:
    """The shipped head with norms in front of `fc`, which it was not trained with: it drafts worse."""
    config, tensors = json.loads((HEAD / "config.json").read_text()), load_file(HEAD / "model.safetensors")
    norms = {f"fc_norm.{number}.weight": torch.full((config["hidden_size"],), 6.0) for number in range(3)}
    return write_head(folder, config | {"fc_norm": True}, tensors | norms)


def write_head(folder: Path, config: Config, tensors: Tensors) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def write_export(folder: Path, shape: Any, head: Path = HEAD) -> Path:
    """A head in vLLM's format as that exporter would have written it."""
    config = json.loads((head / "config.json").read_text())
    token = config.pop("ptd_token_id")
    for key in ("pard_token", "target_hidden_size", "num_aux_hidden_states"):
        config.pop(key, None)
    return write_head(folder, *shape(config | {"mask_token_id": token}, load_file(head / "model.safetensors")))


@pytest.fixture(scope="module")
def drafted(vllm: ForkedVllm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM says and drafts with the shipped head and with each converted one."""
    root = tmp_path_factory.mktemp("heads")
    made = [
        convert(write_export(root / f"{name}-export", shape), root / name, target=TINY / "models" / "target")
        for name, shape in SHAPES.items()
    ]
    assert [(one.format, one.method, bool(one.changes)) for one in made] == [(n, "p-eagle", True) for n in SHAPES]
    normed = with_fc_norm(root / "fc-norm")
    export = write_export(root / "fc-norm-export", as_speculators, normed)
    converted = convert(export, root / "fc-norm-converted", target=TINY / "models" / "target")
    lines = (TINY / "prompts" / "structured.jsonl").read_text().splitlines()[:2]
    prompts = [json.loads(line)["prompt"] for line in lines]
    heads = {
        "original": HEAD,
        **{name: one.out for name, one in zip(SHAPES, made, strict=True)},
        "fc_norm": normed,
        "fc_norm converted": converted.out,
    }
    return {name: vllm.run("answer", arguments=llm_arguments(head), prompts=prompts) for name, head in heads.items()}


def llm_arguments(head: Path) -> dict[str, Any]:
    return {
        "model": str(TINY / "models" / "target"),
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 2,
        "kv_cache_memory_bytes": 64 << 20,
        "disable_log_stats": False,
        "speculative_config": {
            "method": "eagle3",
            "model": str(head),
            "num_speculative_tokens": 5,
            "parallel_drafting": True,
        },
    }


@pytest.mark.parametrize("name", SHAPES)
def test_a_converted_head_drafts_as_the_original(drafted: dict[str, dict[str, Any]], name: str) -> None:
    assert drafted["original"]["accepted"] > 0
    assert drafted[name] == drafted["original"]


def test_norms_in_front_of_fc_work_as_in_vllms_own_format(drafted: dict[str, dict[str, Any]]) -> None:
    assert drafted["fc_norm"]["accepted"] > 0
    assert drafted["fc_norm converted"] == drafted["fc_norm"] != drafted["original"]


K = 5


def drafts_in_training(tokens: list[int]) -> torch.Tensor:
    """What the shipped head drafts after each of the tokens but the first, [tokens - 1, K], in the trainer's pass."""
    target = TINY / "models" / "target"
    job = TrainingJob(
        name="tiny", method="p-eagle", target=str(target), target_name="tiny", data=(), layers=2, depth=K, steps=1,
        start_from=str(HEAD),
    )  # fmt: skip
    head = build_head(job)
    extractor = Extractor(load_target(str(target), dtype="float32"), aux_layers(6))
    states = extractor.states([torch.tensor(tokens)])
    length, padded = len(tokens) - 1, len(tokens) - 1 + K  # drafts go on beyond the last token
    sequence = Lesson(
        torch.tensor(tokens[1:] + [0] * K),
        torch.ones(padded, dtype=torch.long).index_fill(0, torch.tensor(0), 0),
        torch.nn.functional.pad(states.hidden_states[:-1].float(), (0, 0, 0, K)),
        torch.nn.functional.pad(states.last_hidden_states[1:].float(), (0, 0, 0, K)),
    )
    said: list[torch.Tensor] = []

    def remember(logits: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        said.append(logits.argmax(dim=-1)[0])
        return torch.zeros(logits.shape[:2])

    masks = DraftMasks(padded, torch.float32, torch.device("cpu"))
    drafts = Drafts(torch.arange(length).repeat_interleave(K - 1), torch.arange(1, K).repeat(length))
    with torch.no_grad():
        PEagleLearner(head, masks, remember, K, segments=1)._pass(sequence, drafts)
    table = torch.full((padded, K), -1)
    table[:, 0] = said[0]
    table[drafts.anchor, drafts.depth] = said[1]
    return table[:length]


def test_the_trainers_parallel_pass_drafts_the_very_tokens_that_vllm_drafts(vllm: ForkedVllm) -> None:
    """Token by token and step by step, so that the accepted ones at each position are as many, too."""
    prompt = json.loads((TINY / "prompts" / "structured.jsonl").read_text().splitlines()[3])["prompt"]
    found = vllm.run("drafts", arguments=llm_arguments(HEAD), prompt=prompt)
    tokens = found["prompt"] + found["tokens"]
    table = drafts_in_training(tokens).tolist()

    known, drafted, accepted = len(found["prompt"]), [], [0] * K
    while known < len(tokens) - 1:
        draft, following = table[known - 1], tokens[known + 1 :]
        right = next((n for n, pair in enumerate(zip(draft, following, strict=False)) if pair[0] != pair[1]), None)
        right = min(K, len(following)) if right is None else right
        accepted = [count + (position < right) for position, count in enumerate(accepted)]
        drafted.append(draft)
        known += right + 1

    assert found["drafts"][: len(drafted)] == drafted
    assert len(drafted) > 5
    assert found["accepted_per_position"] == accepted
