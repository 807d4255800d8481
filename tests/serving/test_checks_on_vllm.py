"""What the checks refuse, a real vLLM refuses too, or it accepts no draft; what they let pass works.

Tiny heads and recipes with one fault each.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_vllm import ForkedVllm, Refused
from pairs import edit_config
from safetensors.torch import load_file, save_file

from toolkit.api.checking import check
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.model_files import read_folder

pytestmark = pytest.mark.serving

MODELS = catalogue_dir() / "tiny" / "models"
PROMPT = "Write JSON records of the books 205 to 215."
RECIPE = """\
name: provoked
target: {model: ./target}
speculation: {method: METHOD, model: ./drafter, num_speculative_tokens: 5}
engine:
  version: 0.32.0
  max_model_len: LENGTH
  max_num_seqs: 2
  max_num_batched_tokens: BUDGET
  args: ARGS
  env: ENV
platform: PLATFORM
"""
LOCAL, SAGEMAKER = "{name: local}", "{name: sagemaker, instance_types: [ml.g6.xlarge], health_check_timeout: 600}"

Edit = Callable[[Path], object]


def drafter(**changes: Any) -> Edit:
    return lambda root: edit_config(root / "drafter", **changes)


def tensors(edit: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Edit:
    def change(root: Path) -> None:
        path = root / "drafter" / "model.safetensors"
        save_file(edit(load_file(path)), path, metadata={"format": "pt"})

    return change


def other_tokens(root: Path) -> None:
    """A draft model that was trained with the same tokens under other ids."""
    order = torch.randperm(read_folder(root / "drafter").vocab_size, generator=torch.Generator().manual_seed(0))
    tensors(lambda found: {**found, "model.embed_tokens.weight": found["model.embed_tokens.weight"][order]})(root)
    path = root / "drafter" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    place = {int(old): new for new, old in enumerate(order)}
    tokenizer["model"]["vocab"] = {token: place[index] for token, index in tokenizer["model"]["vocab"].items()}
    path.write_text(json.dumps(tokenizer))


def windows(root: Path) -> None:
    """Two sliding and two full layers, and a head of two: three groups of two, the head's layers in two of them."""
    edit_config(
        root / "target",
        architectures=["LlamaForCausalLM"],
        model_type="llama",
        num_hidden_layers=4,
        sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * 2,
    )
    edit_config(
        root / "drafter", num_attention_heads=4, num_key_value_heads=2, eagle_aux_hidden_state_layer_ids=[1, 2, 3]
    )


def speculators_with_fc_norm(root: Path) -> None:
    path = root / "drafter" / "config.json"
    config = json.loads(path.read_text())
    outer = {key: config.pop(key) for key in ("draft_vocab_size", "eagle_aux_hidden_state_layer_ids")}
    methods = {"proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 8}]}
    outer |= {"speculators_config": methods, "speculators_model_type": "peagle", "mask_token_id": 3, "fc_norm": True}
    path.write_text(json.dumps({**outer, "transformer_layer_config": config}))
    norms = {f"fc_norm.{number}.weight": torch.ones(config["hidden_size"]) for number in range(3)}
    tensors(lambda found: {**found, **norms})(root)


def nothing(root: Path) -> None:
    """Leave it as it is."""


@dataclass(frozen=True)
class Case:
    """A fault, the code of its finding, and what vLLM says (empty: perhaps nothing, but it accepts half as much)."""

    code: str
    says: str = ""
    edit: Edit = nothing
    method: str = "p-eagle"
    length: int = 512
    budget: int = 512
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    platform: str = LOCAL


CASES = {
    "no mask token": Case(
        "pair.mask-token", "must have", drafter(ptd_token_id=None, pard_token=None, mask_token_id=None)
    ),
    "no mask_hidden": Case(
        "pair.mask-hidden", "mask_hidden", tensors(lambda found: {k: found[k] for k in found if k != "mask_hidden"})
    ),
    "prefix of the tensors": Case(
        "pair.tensor-prefix",
        "no module or parameter named",
        tensors(lambda found: {f"model.{k}": found[k] for k in found}),
    ),
    "two hidden states": Case("pair.fc-width", "", drafter(num_aux_hidden_states=2)),
    "a layer that is not there": Case("pair.aux-layers", "", drafter(eagle_aux_hidden_state_layer_ids=[2, 3, 99])),
    "another hidden size": Case("pair.hidden-size", "", drafter(target_hidden_size=128)),
    "another vocabulary": Case("pair.vocab-size", "", drafter(vocab_size=512, draft_vocab_size=512)),
    "an unknown architecture": Case("pair.architecture", "", drafter(architectures=["PEagleDraftModel"])),
    "fewer tokens than lm_head": Case("pair.draft-vocab-size", "", drafter(draft_vocab_size=512)),
    "no map of fewer tokens": Case(
        "pair.d2t",
        "",
        lambda root: (
            drafter(draft_vocab_size=512)(root),
            tensors(lambda found: {**found, "lm_head.weight": found["lm_head.weight"][-512:].clone()})(root),
        ),
    ),
    "a map of the whole vocabulary": Case(
        "pair.d2t",
        "draft_id_to_target_id",
        tensors(lambda found: {**found, "d2t": torch.zeros(len(found["lm_head.weight"]), dtype=torch.int64)}),
    ),
    "fc_norm in speculators' format": Case("pair.speculators-format", "'fc_norm'", speculators_with_fc_norm),
    "the tokens of another model": Case("pair.tokenizer", "", other_tokens, method="draft-model"),
    "more positions than there are": Case("engine.max-model-len", "max_model_len", length=4096),
    "a budget below one step": Case("engine.token-budget", "max_num_batched_tokens", budget=1),
    "a flag that is not there": Case("engine.unknown-flag", "unexpected keyword", args={"enforce-eger": True}),
    "the V2 runner": Case("engine.runner", "V2", env={"VLLM_USE_V2_MODEL_RUNNER": "1"}),
    "requests that are refused": Case(
        "quality.refused-sampling", "min_p", args={"override-generation-config": {"min_p": 0.1}}
    ),
    "layers that do not stay together": Case(
        "engine.kv-groups", "same kv cache group", windows, args={"load-format": "dummy"}, platform=SAGEMAKER
    ),
    "a cache below one request": Case(
        "memory.context", "memory for the cache", args={"kv-cache-memory-bytes": 2**20}, platform=SAGEMAKER
    ),
}
GOOD = {
    "p-eagle": Case(""),
    "eagle3": Case("", method="eagle3"),
    "draft-model": Case("", method="draft-model"),
    "windows": Case("", edit=lambda root: (windows(root), drafter(num_hidden_layers=1)(root)), method="eagle3",
                    args={"load-format": "dummy"}),
}  # fmt: skip


def write(root: Path, case: Case) -> Path:
    """The case as a recipe with folders of its own."""
    shutil.copytree(MODELS / "target", root / "target")
    shutil.copytree(MODELS / case.method, root / "drafter")
    case.edit(root)
    text = RECIPE
    for word, value in {
        "METHOD": case.method,
        "LENGTH": case.length,
        "BUDGET": case.budget,
        "ARGS": json.dumps(dict(case.args)),
        "ENV": json.dumps(dict(case.env)),
        "PLATFORM": case.platform,
    }.items():
        text = text.replace(word, str(value))
    path = root / "recipe.yaml"
    path.write_text(text)
    return path


def llm_arguments(root: Path, case: Case) -> dict[str, Any]:
    method = {"p-eagle": "eagle3", "eagle3": "eagle3", "draft-model": "draft_model"}[case.method]
    return {
        "model": str(root / "target"),
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": case.length,
        "max_num_seqs": 2,
        "max_num_batched_tokens": case.budget,
        "kv_cache_memory_bytes": 64 << 20,
        "disable_log_stats": False,
        "speculative_config": {
            "method": method,
            "model": str(root / "drafter"),
            "num_speculative_tokens": 5,
            "parallel_drafting": case.method == "p-eagle",
        },
        **{flag.replace("-", "_"): value for flag, value in case.args.items()},
    }


@pytest.fixture(scope="module")
def accepted(vllm: ForkedVllm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How many drafted tokens vLLM accepts from each drafter that is right."""
    return {name: tried(vllm, tmp_path_factory.mktemp("good") / "case", case) for name, case in GOOD.items()}


def tried(vllm: ForkedVllm, root: Path, case: Case) -> int:
    """How many drafted tokens vLLM accepts. Raises Refused."""
    write(root, case)
    environment = {"VLLM_USE_V2_MODEL_RUNNER": "0", **case.env}
    arguments = {"arguments": llm_arguments(root, case), "prompts": [PROMPT]}
    return int(vllm.run("answer", environment, **arguments)["accepted"])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.says])
def test_vllm_refuses_what_the_checks_refuse(vllm: ForkedVllm, tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match=re.escape(CASES[name].says)):
        tried(vllm, tmp_path / "case", CASES[name])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.says])
def test_vllm_refuses_what_the_checks_refuse_or_accepts_few_drafts(
    vllm: ForkedVllm, tmp_path: Path, accepted: dict[str, int], name: str
) -> None:
    with suppress(Refused):
        # what the drafter reads of a layer that is not there is whatever the memory holds
        assert tried(vllm, tmp_path / "case", CASES[name]) <= accepted[CASES[name].method] * 3 / 4


@pytest.mark.parametrize("name", CASES)
def test_the_check_names_it_first(tmp_path: Path, name: str) -> None:
    found = check(write(tmp_path / "case", CASES[name])).errors
    assert CASES[name].code in {finding.code for finding in found}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_right_passes_both(accepted: dict[str, int], tmp_path: Path, name: str) -> None:
    assert accepted[name] > 10 or name == "windows"
    assert check(write(tmp_path / "case", GOOD[name])).findings == ()
