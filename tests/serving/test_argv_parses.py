"""vLLM's own parser reads what our entrypoint makes of an environment as that environment meant it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm

from toolkit.catalog.lookup import FOLDER

pytestmark = pytest.mark.serving

ENTRYPOINT = Path(__file__).parents[2] / "containers" / "on-vllm" / "entrypoint.py"
CHAT_TEMPLATE = "{% for m in messages %}\n{{ m['content'] }} ;100% #\n{% endfor %}"
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "dtype": "float32",
}
TARGET = SHAPE | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 4}
HEAD = SHAPE | {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "draft_vocab_size": 256,
    "ptd_token_id": 3,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
}


def folder(path: Path, config: dict[str, Any]) -> Path:
    """A model as far as the configuration goes: no weights."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_vllm_reads_the_environment_as_it_was_meant(tmp_path: Path, vllm: ForkedVllm) -> None:
    target = folder(tmp_path / "model", TARGET)
    head = folder(tmp_path / "head", HEAD)
    speculation = {"method": "eagle3", "model": str(head), "num_speculative_tokens": 3, "parallel_drafting": True}
    loras = [{"name": name, "path": f"/{name}"} for name in ("one", "two")]
    env = {
        "SAGEMAKER_BIND_TO_PORT": "9123",
        "SM_VLLM_HOST": "127.0.0.1",
        "SM_VLLM_SPECULATIVE_CONFIG": json.dumps(speculation, indent=1),
        "SM_VLLM_KV_CACHE_MEMORY_BYTES": "268435456",
        "SM_VLLM_ENFORCE_EAGER": "true",
        "SM_VLLM_PER_REQUEST_SPEC_DECODE_METRICS": "detailed",
        "SM_VLLM_NO_ENABLE_PREFIX_CACHING": "",
        "SM_VLLM_ASYNC_SCHEDULING": "false",
        "SM_VLLM_SERVED_MODEL_NAME": '["tiny", "my model"]',
        "SM_VLLM_ENABLE_LORA": "true",
        "SM_VLLM_LORA_MODULES": json.dumps(loras),
        "SM_VLLM_ALLOWED_ORIGINS": '["https://example.com"]',
        "SM_VLLM_CHAT_TEMPLATE": CHAT_TEMPLATE,
    }
    options = runpy.run_path(str(ENTRYPOINT))["vllm_options"](env, target)

    assert vllm.run("parse", command_line=[token for option in options for token in option]) == {
        "method": "eagle3",
        "drafter": str(head),
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
        "kv_cache_memory_bytes": 268435456,
        "enforce_eager": True,
        "metrics": "detailed",
        "prefix_caching": False,
        "model": str(target),
        "served_model_name": ["tiny", "my model"],
        "lora_modules": ["/one", "/two"],
        "allowed_origins": ["https://example.com"],
        "chat_template": CHAT_TEMPLATE,
        "port": 9123,
        "host": "127.0.0.1",
    }


def test_the_installed_vllm_makes_the_catalogue_s_files_byte_for_byte(vllm: ForkedVllm) -> None:
    """Else run: python -m tools.catalogue."""
    made = vllm.run("catalogue")

    assert {name: (FOLDER / name).read_text() for name in made} == made
    flags = json.loads(made["engines/vllm/values.json"])["flags"]
    several = [flag for flag, spans in flags.items() if spans[-1][2].get("takes") == "several" and not spans[-1][1]]
    listed = runpy.run_path(str(ENTRYPOINT))["SEVERAL_VALUES"]
    assert {flag.removeprefix("--") for flag in listed} == set(several)
