"""What heads are trained towards is what the target says, for each architecture of the table in docs/training.md."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.unit.training.heads import SHIPPED, VOCAB, job_for
from toolkit.errors import UsageError
from toolkit.training.data import prepare_data
from toolkit.training.exact import require_exact
from toolkit.training.head import build_head, layers_read
from toolkit.training.states import Extractor, load_target

DOCS = Path(__file__).parents[3] / "docs" / "training.md"
PROMPTS = [list(range(3, 30)), list(range(100, 120))]
COMMON = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_routed_experts": 4, "n_group": 1,
           "topk_group": 1, "num_local_experts": 4}  # fmt: skip
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
LATENT = {**EXPERTS, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
          "v_head_dim": 16, "head_dim": 8, "num_key_value_heads": 2, "first_k_dense_replace": 1}  # fmt: skip
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1,
          "image_size": 28, "patch_size": 14}  # fmt: skip
EXACT: Mapping[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "qwen2": {},
    "qwen3": {},
    "qwen3_moe": EXPERTS,
    "qwen3_next": {**EXPERTS, **LINEAR, "shared_expert_intermediate_size": 32},
    "qwen3_5_text": LINEAR,
    "gemma2": {"query_pre_attn_scalar": 16},
    "gemma3_text": {"query_pre_attn_scalar": 16, "sliding_window": 64},
    "gemma3": {"text_config": {**COMMON, "model_type": "gemma3_text"}, "vision_config": VISION},
    "gemma4_text": {"hidden_size_per_layer_input": 0, "global_head_dim": 16, "sliding_window": 64},
    "granite": {"logits_scaling": 8.0},
    "cohere2": {"logit_scale": 0.25},
    "starcoder2": {},
    "gpt_oss": {**EXPERTS, "sliding_window": 64},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "phi": {},
    "phi3": {},
    "glm": {},
    "glm4": {},
    "glm4_moe": EXPERTS,
    "olmo": {},
    "olmo2": {},
    "olmo3": {},
}
REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "falcon_h1": (
        {"lm_head_multiplier": 0.5, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_n_groups": 1},
        "what is done to the logits",
    ),
    "gpt2": ({"n_embd": 32, "n_layer": 4, "n_head": 2}, "has no `layers` and `norm`"),
}


def saved(kind: str, folder: Path, **settings: Any) -> str:
    """A random model of that architecture, with weights as large as trained ones where it matters."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**COMMON, **settings}))
    output = model.get_output_embeddings()
    output.weight.data.normal_()
    for name, weight in model.named_parameters():
        if re.search(r"norm\.(weight|bias)$", name):
            weight.data.normal_(0.3, 0.5)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / name, folder)
    return str(folder)


def agreement(target: PreTrainedModel, states: torch.Tensor, job: Any) -> float:
    """How much of the target's own distribution is in what a head is trained towards: 0 is all of it (KL)."""
    head = build_head(job)
    with torch.inference_mode():
        wanted = torch.cat([target(input_ids=torch.tensor([one])).logits[0] for one in PROMPTS]).log_softmax(-1)
        found = head.verifier_lm_head(head.verifier_norm(states)).log_softmax(-1)
    return float((wanted.exp() * (wanted - found)).sum(-1).mean())


@pytest.mark.parametrize("kind", EXACT)
def test_heads_are_trained_towards_what_the_target_says(kind: str, tmp_path: Path) -> None:
    folder = saved(kind, tmp_path, **EXACT[kind])
    job = job_for(tmp_path, layers=1, depth=3)
    target = load_target(folder, dtype="float32")
    require_exact(folder, target, PROMPTS)
    states = Extractor(target, layers_read(job)).states([torch.tensor(one) for one in PROMPTS])
    assert agreement(target, states.last_hidden_states, job) < 1e-4


@pytest.mark.parametrize("kind", REFUSED)
def test_a_target_whose_words_are_not_known_is_refused(kind: str, tmp_path: Path) -> None:
    settings, why = REFUSED[kind]
    folder = saved(kind, tmp_path, **settings)
    with pytest.raises(UsageError, match=why) as refused:
        require_exact(folder, load_target(folder, dtype="float32"), PROMPTS)
    assert "a drafter that needs no training" in refused.value.hint


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("module", "named"), [("norm", r"the final norm `norm` \(Gemma2RMSNorm\)"), ("lm_head", "the output layer `lm_head`")])  # fmt: skip  # noqa: E501
def test_the_module_that_differs_is_named(dtype: str, module: str, named: str, tmp_path: Path) -> None:
    folder = saved("gemma2", tmp_path)
    target: Any = load_target(folder, dtype=dtype)
    require_exact(folder, target, PROMPTS)
    changed = target.model.norm if module == "norm" else target.lm_head
    changed.weight = torch.nn.Parameter(changed.weight * 1.2)
    with pytest.raises(UsageError, match=named):
        require_exact(folder, target, PROMPTS)


def test_it_is_refused_before_the_target_answers_anything(tmp_path: Path) -> None:
    settings, why = REFUSED["falcon_h1"]
    folder, data = saved("falcon_h1", tmp_path / "target", **settings), tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"Count to {number}."}) + "\n" for number in range(9)))
    places = {name: str(tmp_path / name) for name in ("work", "checkpoints", "head")}
    job = job_for(Path(folder), data=(str(data),), dtype="float32", **places)
    with pytest.raises(UsageError, match=why):
        prepare_data(job, (1, 2, 3), lambda _: None, lambda _: None)
    assert not (tmp_path / "checkpoints" / "responses.jsonl").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logit_scale", 0.5),
        ("eagle_config", {"use_aux_hidden_state": False}),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_what_a_head_computes_and_training_does_not_is_named(key: str, value: object, tmp_path: Path) -> None:
    head = shutil.copytree(SHIPPED.parent / "p-eagle", tmp_path / "head")
    config = json.loads((head / "config.json").read_text())
    job = job_for(SHIPPED, start_from=str(head))
    assert layers_read(job) == (2, 3, 5)
    (head / "config.json").write_text(json.dumps({**config, key: value}))
    named = next(iter(value)) if key == "eagle_config" and isinstance(value, dict) else key
    with pytest.raises(UsageError, match=f"`{named}` of .* which engines compute, and training does not"):
        layers_read(job)


def test_the_table_of_architectures_is_this_one() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (exact|refused)\b", DOCS.read_text(), re.MULTILINE))
    assert rows == {**dict.fromkeys(EXACT, "exact"), **dict.fromkeys(REFUSED, "refused")}
