"""Which Trainium and Inferentia instances a pair fits: an estimate, held against what AWS says of published pairs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from models import GPT_OSS_120B, LLAMA_8B, facts
from pairs import write_pair

from toolkit.catalog import lookup
from toolkit.catalog.lookup import Instance
from toolkit.catalog.trainium import logical_cores
from toolkit.loading import load
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import Recipe
from toolkit.sizing.fit import fit, fits

LLAMA = Lock(facts(LLAMA_8B), facts({**LLAMA_8B, "num_hidden_layers": 16}))


def recipe(folder: Path, method: str = "draft-model", args: str = "", **limits: int) -> Recipe:
    """A recipe for Trainium with these limits and flags; its models come from elsewhere."""
    path = write_pair(folder, method)
    settings = {"max_model_len": 1024, "max_num_seqs": 4, **limits}
    written = "".join(f"  {key}: {value}\n" for key, value in settings.items())
    head = path.read_text().partition("engine:")[0]
    path.write_text(
        f"{head}engine:\n  name: neuron\n{written}  args: {{{args}}}\n"
        "platform: {name: sagemaker, instance_types: [ml.trn2.48xlarge]}\n"
    )
    return load(path)


def instance(name: str) -> Instance:
    found = lookup.instance(name)
    assert found
    return found


TRN1, TRN2 = instance("ml.trn1.32xlarge"), instance("ml.trn2.48xlarge")


def test_weights_and_kv_cache_of_a_logical_core(tmp_path: Path) -> None:
    found = fit(recipe(tmp_path, args="tensor-parallel-size: 8"), LLAMA, TRN2)
    assert (found.fits, found.tensor_parallel, found.accelerators) == (True, 8, 16)
    assert found.weights_gib == pytest.approx(14.99 / 8, rel=0.01)
    assert found.weights_gib + found.drafter_gib + found.kv_gib == pytest.approx(96 / 4, rel=1e-6)
    # 48 layers with one KV head of 128 keys and values each on a core, in bfloat16
    assert found.kv_tokens == int(found.kv_gib * 2**30) // (48 * 256 * 2)


def test_as_few_cores_as_will_do(tmp_path: Path) -> None:
    assert fit(recipe(tmp_path), LLAMA, TRN2).tensor_parallel == 2
    assert fit(recipe(tmp_path), LLAMA, TRN1).tensor_parallel == 2
    assert fit(recipe(tmp_path), Lock(facts(LLAMA_8B)), TRN2).tensor_parallel == 1


def test_gpt_oss_120b_takes_sixteen_cores_as_published(tmp_path: Path) -> None:
    """AWS Neuron's tutorial: with 8 the weights do not fit, since Trainium2 has no MXFP4."""
    pair = Lock(facts(GPT_OSS_120B, weight_bytes=65 * 10**9))
    eight = fit(recipe(tmp_path, "eagle3", "tensor-parallel-size: 8", max_num_seqs=1), pair, TRN2)
    assert not eight.fits
    assert eight.reason.endswith("of each of 8 logical cores, which has 24.0 (an estimate)")
    assert fit(recipe(tmp_path, "eagle3", "tensor-parallel-size: 16", max_num_seqs=1), pair, TRN2).fits


def test_the_fork_makes_its_kv_cache_for_all_requests(tmp_path: Path) -> None:
    long = recipe(tmp_path, args="tensor-parallel-size: 2", max_num_seqs=8, max_model_len=65536)
    found = fit(long, LLAMA, TRN2)
    assert found.reason.startswith("8 x 65,536 tokens need ")
    needed, left = map(float, re.findall(r"(\d+\.\d)(?: GiB| are left)", found.reason))
    assert found.largest_context == pytest.approx(65_536 * left / needed, rel=0.02)
    fitting = recipe(tmp_path, args="tensor-parallel-size: 2", max_num_seqs=8, max_model_len=found.largest_context)
    assert fit(fitting, LLAMA, TRN2).fits
    assert fit(recipe(tmp_path, "eagle3", "tensor-parallel-size: 2", max_model_len=65536), LLAMA, TRN2).fits


def test_dflash_has_a_kv_cache_for_all_requests_too(tmp_path: Path) -> None:
    eagle3 = recipe(tmp_path, "eagle3", "tensor-parallel-size: 2", max_num_seqs=8, max_model_len=65536)
    assert eagle3.speculation
    assert fit(eagle3, LLAMA, TRN2).fits
    dflash = replace(eagle3, speculation=eagle3.speculation.edit(method="dflash"))
    assert fit(dflash, LLAMA, TRN2).reason.startswith("8 x 65,536 tokens need ")


@pytest.mark.parametrize(
    ("method", "args", "name", "reason"),
    [
        ("draft-model", "", "ml.g6.xlarge", "nxd-inference runs on Trainium and Inferentia only"),
        ("eagle3", "", "ml.trn1.32xlarge", "vllm-neuron 0.29.0.1.2.0 (Neuron SDK 2.33.0) does not run on trn1"),
        ("draft-model", "tensor-parallel-size: 8", "ml.trn1.2xlarge",
         "tensor-parallel-size 8 needs that many logical cores, but there are 2"),
        ("draft-model", "data-parallel-size: 4", "ml.trn1.2xlarge",
         "data-parallel-size 4 needs that many logical cores, but there are 2"),
    ],
)  # fmt: skip
def test_instances_that_it_does_not_run_on(tmp_path: Path, method: str, args: str, name: str, reason: str) -> None:
    found = fit(recipe(tmp_path, method, args), LLAMA, instance(name))
    assert (found.fits, found.reason) == (False, reason)


@pytest.mark.parametrize(
    ("env", "cores"),
    [({}, 64), ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 128), ({"NEURON_RT_VIRTUAL_CORE_SIZE": "2"}, 64)],
)
def test_logical_cores_are_one_or_two_physical_ones(env: dict[str, str], cores: int) -> None:
    assert logical_cores(TRN2, env) == cores


def test_families_with_the_same_chips_are_estimated_each(tmp_path: Path) -> None:
    """An engine knows some of them only."""
    found = {one.instance: one for one in fits(recipe(tmp_path), LLAMA, [TRN2, instance("ml.trn2u.48xlarge")])}
    assert found[TRN2.name].fits
    assert found["ml.trn2u.48xlarge"].reason.endswith("does not run on trn2u")
