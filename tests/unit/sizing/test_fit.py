"""Which instances a pair fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from models import FP8, GPT_OSS_20B, GPT_OSS_120B, GPT_OSS_HEAD, LLAMA_8B, QWEN3_14B, QWEN3_CODER_30B, facts
from pairs import RECIPE, write_pair

from toolkit.catalog.lookup import Instance, Price
from toolkit.engines.vllm.memory import cache_of, divisibility
from toolkit.engines.vllm.rules import RULES as VLLM
from toolkit.engines.vllm.settings import settings_of
from toolkit.errors import ToolkitError
from toolkit.loading import load
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.fit import Fit, fit, fits, sizable
from toolkit.sizing.shape import shape_of

PAIR = Lock(facts(GPT_OSS_20B), facts(GPT_OSS_HEAD))


def instance(
    name: str, accelerator: str, count: int, gib: float, price: float | None = None, host_gib: float = 64
) -> Instance:
    return Instance(
        name=name,
        architecture="x86_64",
        accelerator=accelerator,
        accelerator_count=count,
        memory_per_accelerator_mib=int(gib * 1024),
        compute_capability="8.9" if count and "Trainium" not in accelerator else "",
        interconnect="",
        vcpus=8,
        host_memory_gib=host_gib,
        local_nvme_gb=0,
        neuron_cores=8 * count if "Trainium" in accelerator else 0,
        neuron_cores_logical=4 * count if "Trainium" in accelerator else 0,
        hostable=True,
        regions=(),
        prices=(Price(price, "us-east-1", "2026-11-01", "a test", "good"),) if price else (),
    )


L4 = instance("ml.g6.xlarge", "L4", 1, 22.4, price=1.1)
FOUR_L4 = instance("ml.g6.12xlarge", "L4", 4, 22.4, price=5.8)
RTX_PRO = instance("ml.g7e.2xlarge", "RTX PRO Server 6000", 1, 96, price=4.2)
EIGHT_H100 = instance("ml.p5.48xlarge", "H100", 8, 80)
TRAINIUM = instance("ml.trn2.48xlarge", "Trainium2", 16, 96)
EIGHT_T4 = replace(instance("ml.g4dn.metal", "T4", 8, 15), compute_capability="7.5")
CPU = instance("ml.c7i.8xlarge", "", 0, 0, price=1.7, host_gib=64)


def recipe(folder: Path, args: str = "", **limits: int) -> Recipe:
    """A recipe with these limits and flags; its models come from elsewhere."""
    path = write_pair(folder)
    text = RECIPE.replace("    dtype: float32\n    enforce-eager: true\n", f"    dtype: auto\n{args}")
    for key, value in {"max_model_len": 32768, "max_num_seqs": 128, "max_num_batched_tokens": 8192, **limits}.items():
        before = next(line for line in text.splitlines() if f"  {key}:" in line)
        text = text.replace(before, f"  {key}: {value}")
    path.write_text(text)
    return load(path)


def test_a_pair_that_fits(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path), PAIR, RTX_PRO)
    assert found.fits
    assert found.reason == ""
    assert (found.tensor_parallel, found.accelerators, found.price_per_hour) == (1, 1, 4.2)
    assert found.weights_gib == pytest.approx(13.7, abs=0.1)
    assert found.drafter_gib == pytest.approx(2.6, abs=0.1)
    total = found.weights_gib + found.drafter_gib + found.workspace_gib + found.kv_gib
    assert total == pytest.approx(0.92 * 0.989 * 96, rel=1e-6)
    assert (found.max_model_len, found.largest_context) == (32768, 131072)
    assert found.kv_tokens == int(found.max_concurrency * 32768)


def test_the_cheapest_that_fits_comes_first(tmp_path: Path) -> None:
    small = replace(L4, memory_per_accelerator_mib=18 * 1024)
    found = fits(recipe(tmp_path), PAIR, [EIGHT_H100, FOUR_L4, small, RTX_PRO])
    assert [(one.instance, one.fits) for one in found] == [
        ("ml.g7e.2xlarge", True),
        ("ml.g6.12xlarge", True),
        ("ml.p5.48xlarge", True),  # no price is known
        ("ml.g6.xlarge", False),
    ]


def test_the_cheapest_kv_tokens_come_first(tmp_path: Path) -> None:
    """Eight accelerators with one copy each: what they hold together counts."""
    priced = replace(EIGHT_H100, prices=(Price(20, "us-east-1", "2026-11-01", "a test", "good"),))
    found = fits(recipe(tmp_path), PAIR, [RTX_PRO, priced, FOUR_L4], "kv-price")
    assert [one.instance for one in found] == ["ml.p5.48xlarge", "ml.g7e.2xlarge", "ml.g6.12xlarge"]
    assert (found[0].tensor_parallel, found[0].copies) == (1, 8)
    assert found[0].price_per_million_kv_tokens == pytest.approx(20e6 / (8 * found[0].kv_tokens))


def test_a_verdict_within_the_uncertainty_is_doubtful(tmp_path: Path) -> None:
    clear = fit(recipe(tmp_path), Lock(facts(LLAMA_8B)), L4)
    assert clear.uncertainty_gib
    spare = clear.kv_gib - 32768 * 128 / 1024**2  # one request of 32,768 tokens takes 128 KiB for each

    def smaller_by(gib: float) -> Fit:
        mib = round(L4.memory_per_accelerator_mib - gib * 1024 / 0.92 / 0.989)
        return fit(recipe(tmp_path), Lock(facts(LLAMA_8B)), replace(L4, memory_per_accelerator_mib=mib))

    assert [(found.fits, found.doubtful) for found in map(smaller_by, (spare - 0.1, spare + 0.1))] == [
        (True, True),
        (False, True),
    ]
    assert not smaller_by(spare + clear.uncertainty_gib + 0.2).doubtful


def test_copies_of_the_engine_share_the_experts_with_expert_parallelism(tmp_path: Path) -> None:
    """As vllm-project/recipes serve large mixtures of experts on one instance: data-parallel-size and no other."""
    four = instance("ml.g6e.12xlarge", "L40S", 4, 44.7)
    target = Lock(facts(GPT_OSS_120B))
    alone = fit(recipe(tmp_path), target, four)
    assert (alone.fits, alone.tensor_parallel) == (True, 2)
    flags = "    data-parallel-size: 4\n    enable-expert-parallel: true\n"
    shared = fit(recipe(tmp_path, flags), target, four)
    assert (shared.fits, shared.tensor_parallel) == (True, 1)
    assert shared.weights_gib < 0.4 * 2 * alone.weights_gib  # a fourth of the experts, and all of the attention
    apart = fit(recipe(tmp_path, "    data-parallel-size: 4\n"), target, four)
    assert not apart.fits
    assert apart.tensor_parallel == 1  # more would need more accelerators


def test_a_drafter_without_sizes_counts_by_its_files(tmp_path: Path) -> None:
    drafter = facts({"hidden_size": 2880, "vocab_size": 201088}, weight_bytes=3_600_000_000)
    models, problem = sizable(Lock(facts(GPT_OSS_20B), drafter))
    assert problem
    assert "not its KV cache" in problem.message
    found = fit(recipe(tmp_path), models, RTX_PRO)
    assert found.drafter_gib == pytest.approx(3.35, abs=0.01)
    nothing, problem = sizable(Lock(facts(GPT_OSS_20B), replace(drafter, weight_bytes=None)))
    assert nothing.drafter is None
    assert problem


def test_types_that_the_engine_has_no_images_for_do_not_fit(tmp_path: Path) -> None:
    assert fit(VLLM, Lock(facts(LLAMA_8B)), CPU).reason.startswith("images of vllm need NVIDIA GPUs")


def test_as_few_accelerators_as_will_do(tmp_path: Path) -> None:
    assert fit(recipe(tmp_path), Lock(facts(QWEN3_14B)), FOUR_L4).tensor_parallel == 2
    assert fit(recipe(tmp_path), Lock(facts(LLAMA_8B)), EIGHT_H100).tensor_parallel == 1
    fixed = recipe(tmp_path, "    tensor-parallel-size: 4\n")
    assert fit(fixed, Lock(facts(LLAMA_8B)), EIGHT_H100).tensor_parallel == 4


def test_more_accelerators_than_there_are(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path, "    tensor-parallel-size: 8\n"), PAIR, FOUR_L4)
    assert (found.fits, found.reason) == (False, "tensor-parallel-size 8 needs that many accelerators")
    flags = "    tensor-parallel-size: 2\n    data-parallel-size: {}\n"
    copies = [fit(recipe(tmp_path, flags.format(count)), Lock(facts(QWEN3_14B)), FOUR_L4) for count in (2, 4)]
    assert [one.fits for one in copies] == [True, False]
    assert copies[1].reason == "tensor-parallel-size 2 times data-parallel-size 4 needs that many accelerators"


def test_settings_of_the_type_itself(tmp_path: Path) -> None:
    path = recipe(tmp_path).path
    own = "[{type: ml.g6.12xlarge, args: {tensor-parallel-size: 4}}]"
    path.write_text(path.read_text().replace("{name: local}", f"{{name: local, instance_types: {own}}}"))
    loaded = load(path)
    assert fit(loaded, Lock(facts(QWEN3_14B)), FOUR_L4).tensor_parallel == 4
    assert fit(loaded, Lock(facts(LLAMA_8B)), EIGHT_H100).tensor_parallel == 1


def test_weights_that_are_too_large(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path), Lock(facts(GPT_OSS_120B)), L4)
    assert not found.fits
    assert found.reason.startswith("weights and workspace need 6")
    assert (found.kv_gib, found.kv_tokens, found.largest_context) == (0, 0, 0)


def test_a_context_that_is_too_long(tmp_path: Path) -> None:
    long = recipe(tmp_path, max_model_len=131072, max_num_seqs=8, max_num_batched_tokens=2048)
    found = fit(long, Lock(facts(LLAMA_8B)), L4)
    assert not found.fits
    assert found.reason.startswith("one request of 131,072 tokens needs 16.0 GiB of KV cache")
    shorter = recipe(tmp_path, max_model_len=found.largest_context, max_num_seqs=8, max_num_batched_tokens=2048)
    assert fit(shorter, Lock(facts(LLAMA_8B)), L4).fits


def test_memory_that_the_recipe_asks_for(tmp_path: Path) -> None:
    asked = fit(recipe(tmp_path, f"    kv-cache-memory-bytes: {2 * 1024**3}\n"), PAIR, RTX_PRO)
    assert (asked.fits, asked.kv_gib) == (True, 2.0)
    too_much = fit(recipe(tmp_path, f"    kv-cache-memory-bytes: {90 * 1024**3}\n"), PAIR, RTX_PRO)
    assert not too_much.fits
    assert too_much.reason.startswith("kv-cache-memory-bytes is 90.0 GiB")


def test_no_more_requests_than_the_recipe_allows(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path, max_num_seqs=2), PAIR, RTX_PRO)
    assert found.largest_concurrency == 2 < found.max_concurrency


def test_on_a_cpu_the_hosts_memory_counts(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path), Lock(facts(LLAMA_8B)), CPU)
    assert (found.fits, found.accelerators, found.tensor_parallel) == (True, 0, 1)
    assert found.weights_gib + found.workspace_gib + found.kv_gib == pytest.approx(0.92 * 64, rel=1e-6)
    assert fit(recipe(tmp_path, "    data-parallel-size: 2\n"), Lock(facts(LLAMA_8B)), CPU).fits  # it has none to count


def test_neuron_instances_are_not_for_vllms_own_engine(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path), PAIR, TRAINIUM)
    assert (found.fits, found.reason) == (False, "Trainium2 needs another engine: engine: {name: neuron}")


def test_a_lock_alone(tmp_path: Path) -> None:
    found = fit(VLLM, PAIR, RTX_PRO)
    assert (found.fits, found.max_model_len) == (True, 131072)


def test_a_target_without_a_limit(tmp_path: Path) -> None:
    endless = Lock(facts({**LLAMA_8B, "max_position_embeddings": None}))
    with pytest.raises(ToolkitError, match="no `max_position_embeddings`"):
        fit(VLLM, endless, RTX_PRO)
    assert fit(recipe(tmp_path), endless, RTX_PRO).largest_context == 32768


def test_steps_that_overlap_keep_their_tokens(tmp_path: Path) -> None:
    target = shape_of(facts(GPT_OSS_20B))
    settings = settings_of(recipe(tmp_path), PAIR)
    assert cache_of(target, None, settings).in_flight_tokens == 2 * 8192
    assert cache_of(target, None, settings, on_cpu=True).in_flight_tokens == 8192


def test_a_cpus_blocks_are_larger(tmp_path: Path) -> None:
    """vLLM 0.32: 16 tokens on a GPU, 128 on a CPU (platforms/cpu.py), and what the recipe says on both."""
    target = shape_of(facts(LLAMA_8B))

    def blocks(args: str = "") -> list[set[int]]:
        settings = settings_of(recipe(tmp_path, args), PAIR)
        caches = [cache_of(target, None, settings, on_cpu=on_cpu) for on_cpu in (False, True)]
        return [{group.block_size for group in cache.groups} for cache in caches]

    assert blocks() == [{16}, {128}]
    assert blocks("    block-size: 32\n") == [{32}, {32}]


def test_the_first_reason_names_what_keeps_larger_splits_out(tmp_path: Path) -> None:
    models = Lock(facts({**QWEN3_CODER_30B, **FP8}))
    found = fit(recipe(tmp_path), models, instance("ml.g5.12xlarge", "A10G", 4, 12))
    assert not found.fits
    assert "tensor parallelism 4: target: 768 values of an expert over 4 accelerators" in found.reason


@pytest.mark.parametrize(
    ("config", "tensor_parallel", "problems"),
    [
        (LLAMA_8B, 8, []),
        (LLAMA_8B, 16, []),  # 8 KV heads, each on two
        ({**LLAMA_8B, "vocab_size": 32001}, 8, []),  # vLLM pads it to 32,064
        (QWEN3_14B, 3, ["40 attention heads", "151,936 rows", "8 KV heads", "17,408 values of the MLP"]),
        ({**LLAMA_8B, "num_key_value_heads": 3}, 8, ["3 KV heads cannot be copied evenly"]),
        ({**QWEN3_CODER_30B, **FP8}, 2, []),
        ({**QWEN3_CODER_30B, "intermediate_size": 6145}, 2, []),  # no layer has an MLP besides its experts
        ({**QWEN3_CODER_30B, **FP8}, 4, ["768 values of an expert over 4 accelerators are not a multiple"]),
    ],
)
def test_sizes_that_cannot_be_split(config: Mapping[str, Any], tensor_parallel: int, problems: list[str]) -> None:
    found = list(divisibility(shape_of(facts(config)), tensor_parallel))
    assert len(found) == len(problems)
    assert all(sentence.startswith(problem) for sentence, problem in zip(found, problems, strict=True))


def test_whole_experts_need_no_split() -> None:
    assert not list(divisibility(shape_of(facts({**QWEN3_CODER_30B, **FP8})), 4, expert_parallel=True))


def test_each_layer_that_a_target_drafts_with_has_a_cache_of_its_own(tmp_path: Path) -> None:
    without = recipe(tmp_path)
    assert without.speculation
    mtp = replace(without, speculation=without.speculation.edit(method="mtp", model=None))
    one, eight = (fit(mtp, Lock(facts({**LLAMA_8B, "num_nextn_predict_layers": layers})), RTX_PRO) for layers in (1, 8))
    assert one.kv_tokens * 33 == pytest.approx(eight.kv_tokens * 40, rel=1e-3)


def test_mxfp4_weights_need_a_newer_gpu_than_a_t4() -> None:
    """get_min_capability of MXFP4 is 80 in vLLM: it refuses them on a T4, however many there are."""
    found = fit(VLLM, PAIR, EIGHT_T4)
    assert (found.fits, found.reason) == (False, "mxfp4 weights need a GPU of compute capability 8.0 or newer")
    assert fit(VLLM, Lock(facts(LLAMA_8B)), EIGHT_T4).fits
    assert fit(VLLM, PAIR, replace(EIGHT_T4, compute_capability="8.0")).fits


def test_as_many_copies_as_all_accelerators_have_room_for(tmp_path: Path) -> None:
    found = [
        fit(recipe(tmp_path), Lock(facts(QWEN3_14B)), one) for one in (FOUR_L4, replace(FOUR_L4, accelerator_count=8))
    ]
    assert [(one.tensor_parallel, one.copies) for one in found] == [(2, 2), (2, 4)]
    assert fit(recipe(tmp_path), PAIR, RTX_PRO).copies == 1


@pytest.mark.parametrize(
    "change",
    [
        {"accelerator_count": 2},
        {"memory_per_accelerator_mib": 18 * 1024},
        {"compute_capability": "7.5"},
        {"architecture": "arm64"},
    ],
    ids=str,
)
def test_types_that_differ_in_what_a_fit_depends_on_are_estimated_each(change: dict[str, Any]) -> None:
    """Those that are alike are estimated once: another CPU, disk or price makes no other fit."""
    other = replace(L4, name="other", **change)
    together = {one.instance: one for one in fits(VLLM, PAIR, [L4, other])}
    assert together["other"] == fit(VLLM, PAIR, other)
    assert replace(together["other"], instance=L4.name) != together[L4.name]


def test_without_accelerators_the_hosts_memory_is_what_a_fit_depends_on(tmp_path: Path) -> None:
    small = replace(CPU, name="small", host_memory_gib=16)
    found = {one.instance: one.fits for one in fits(recipe(tmp_path), Lock(facts(LLAMA_8B)), [CPU, small])}
    assert found == {CPU.name: True, "small": False}


def test_a_types_own_settings_are_not_those_of_a_type_like_it(tmp_path: Path) -> None:
    path = recipe(tmp_path).path
    own = "[{type: ml.g6.12xlarge, args: {tensor-parallel-size: 4}}]"
    path.write_text(path.read_text().replace("{name: local}", f"{{name: local, instance_types: {own}}}"))
    found = fits(load(path), Lock(facts(LLAMA_8B)), [FOUR_L4, replace(FOUR_L4, name="other")])
    assert {one.instance: one.tensor_parallel for one in found} == {"ml.g6.12xlarge": 4, "other": 1}
