"""Commands that AWS publishes for Trainium become recipes for its engines, and drafting means there what it means here.

They are those of github aws-neuron/aws-neuron-eks-samples (speculative_decoding_trn2_vllm), and of awsdocs-neuron: the
tutorials on draft models (NxD Inference) and EAGLE 3 (vllm-neuron), and NxD Inference's guide for vLLM V1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from toolkit.api.importing import ImportedRecipe, import_recipe

SAMPLE = """\
export VLLM_NEURON_FRAMEWORK=neuronx-distributed-inference
export NEURON_COMPILED_ARTIFACTS=/var/mdl/Qwen-32B-SD-1-7B
vllm serve Qwen/Qwen3-32B --tensor-parallel-size 32 --max-num-seqs 4 --max-model-len 1024 \\
    --override-neuron-config '{"save_sharded_checkpoint": true, "enable_fused_speculation": true}' \\
    --speculative-config '{"model": "Qwen/Qwen3-1.7B", "num_speculative_tokens": 7, "max_model_len": 1024,
                           "method": "eagle"}'
"""
TUTORIAL = """\
VLLM_USE_V1=0 vllm serve Qwen/Qwen3-32B --device neuron --tensor-parallel-size 64 --max-num-seqs 1 \\
    --max-model-len 6400 --override-neuron-config '{"enable_fused_speculation": true}' \\
    --speculative-config '{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 7, "max_model_len": 2048}'
"""
FORK = {"name": "nxd-inference", "version": "0.9.1"}
GUIDE = """\
docker run --device=/dev/neuron0 \\
  public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.13.0-neuronx-py312-sdk2.28.0-ubuntu24.04 \\
  vllm serve Qwen/Qwen3-8B --tensor-parallel-size 8 --max-num-seqs 4 --max-model-len 8192 \\
  --num-gpu-blocks-override 4 --additional-config '{"override-neuron-config": {"async_mode": true}}'
"""
EAGLE3 = """\
vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 8 --max-num-seqs 2 --max-model-len 2048 \\
    --additional-config '{"neuron_config": {"on_device_sampling_config": {"all_greedy": true}}}' \\
    --speculative-config '{"method": "eagle3", "model": "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
                           "num_speculative_tokens": 3}'
"""
EAGLE3_OF_PLUGIN = EAGLE3.replace('"neuron_config": {', '"override_neuron_config": {"is_eagle3": true, ').replace(
    '"method": "eagle3"', '"method": "eagle"'
)


def imported(text: str, folder: Path) -> tuple[dict[str, Any], ImportedRecipe]:
    made = import_recipe(text, out=folder / "recipe.yaml", platform="kubernetes")
    return YAML(typ="safe").load(made.path.read_text()), made


@pytest.mark.parametrize("text", [SAMPLE, TUTORIAL], ids=["sample", "tutorial"])
def test_a_command_of_the_fork_drafts_with_a_model_whatever_method_it_names(text: str, tmp_path: Path) -> None:
    """There `method: eagle` only has to pass vLLM's own check."""
    recipe, made = imported(text, tmp_path)
    drafter = "Qwen/Qwen3-1.7B" if "1.7B" in text else "Qwen/Qwen3-0.6B"
    assert recipe["speculation"] == {"method": "draft-model", "model": drafter, "num_speculative_tokens": 7}
    assert recipe["engine"].items() >= FORK.items()
    assert "device" not in recipe["engine"]["args"]
    assert "env" not in recipe["engine"]
    assert "enable_fused_speculation" not in recipe["engine"]["args"]["override-neuron-config"]
    said = "\n".join(finding.message for finding in made.left_out)
    assert "enable_fused_speculation" in said
    assert not [finding for finding in made.findings if finding.code.startswith(("neuron.by-hand", "neuron.config"))]


def test_a_drafter_keeps_its_revision(tmp_path: Path) -> None:
    recipe, _ = imported(SAMPLE.replace('"method": "eagle"', '"revision": "abc"'), tmp_path)
    assert recipe["speculation"]["revision"] == "abc"


@pytest.mark.parametrize(("key", "method"), [("enable_eagle_speculation", "eagle"), ("is_medusa", "medusa")])
def test_a_head_that_no_engine_here_takes_is_no_draft_model(key: str, method: str, tmp_path: Path) -> None:
    recipe, made = imported(TUTORIAL.replace("enable_fused_speculation", key), tmp_path)
    assert recipe["speculation"]["method"] == method
    assert [finding for finding in made.findings if finding.severity == "error"]


def test_unfused_drafting_stays(tmp_path: Path) -> None:
    recipe, _ = imported(TUTORIAL.replace('speculation": true', 'speculation": false'), tmp_path)
    assert recipe["engine"]["args"]["override-neuron-config"] == {"enable_fused_speculation": False}


def test_the_guides_spelling_becomes_that_which_the_plugin_reads(tmp_path: Path) -> None:
    recipe, made = imported(GUIDE, tmp_path)
    assert recipe["speculation"] == {"method": "none"}
    assert recipe["engine"]["args"]["additional-config"] == {"override_neuron_config": {"async_mode": True}}
    assert (recipe["engine"]["name"], recipe["engine"]["version"]) == ("nxd-inference", "0.13.0")
    assert "neuron.config-place" not in {finding.code for finding in made.findings}


@pytest.mark.parametrize(("text", "engine"), [(EAGLE3, "vllm-neuron"), (EAGLE3_OF_PLUGIN, "nxd-inference")])
def test_an_eagle3_head_of_either_engine(text: str, engine: str, tmp_path: Path) -> None:
    recipe, _ = imported(text, tmp_path)
    assert recipe["speculation"]["method"] == "eagle3"
    assert recipe["engine"]["name"] == engine


def test_variables_alone_leave_the_engine_to_the_method(tmp_path: Path) -> None:
    recipe, _ = imported("NEURON_RT_NUM_CORES=8 vllm serve Qwen/Qwen3-8B -tp 8 --max-model-len 1024", tmp_path)
    assert recipe["engine"]["name"] == "neuron"


def test_a_configuration_that_is_none_is_left_to_the_checks(tmp_path: Path) -> None:
    text = """vllm serve Qwen/Qwen3-8B --additional-config '{"override_neuron_config": "no"}'"""
    recipe, _ = imported(text, tmp_path)
    assert recipe["engine"]["name"] == "nxd-inference"


def test_a_command_for_gpus_stays_one(tmp_path: Path) -> None:
    recipe, _ = imported("""vllm serve Qwen/Qwen3-8B --additional-config '{"a": {"b": 1}}'""", tmp_path)
    assert "name" not in recipe["engine"]
