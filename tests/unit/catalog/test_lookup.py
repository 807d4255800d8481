"""Finding one fact."""

from __future__ import annotations

import subprocess
import sys

import pytest

from toolkit.catalog import lookup
from toolkit.engines.vllm import facts

KEYS = ("dflash_config.mask_token_id", "mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")


def test_versions_are_compared_by_number_and_pre_releases_come_first() -> None:
    versions = ["0.30.0", "0.9.1", "0.22.1", "0.22.1rc0", "0.20.0.dev361", "0.20.0.dev60", "0.20.0", "0.29.0.1.2.0"]
    ordered = ["0.9.1", "0.20.0.dev60", "0.20.0.dev361", "0.20.0", "0.22.1rc0", "0.22.1", "0.29.0.1.2.0", "0.30.0"]
    assert sorted(versions, key=lookup.version_key) == ordered


def test_a_range_of_versions_ends_before_its_end() -> None:
    versions = facts.Versions("0.17.0", "0.28.0")
    assert [v in versions for v in ("0.16.0", "0.17.0", "0.27.1", "0.28.0")] == [False, True, True, False]
    assert "9.0.0" in facts.Versions("0.17.0", None)


def test_an_instance_is_found_by_name() -> None:
    instance = lookup.instance("ml.g7e.2xlarge")
    assert instance
    assert (instance.accelerator, instance.accelerator_count) == ("RTX PRO 6000 Server", 1)
    assert (instance.memory_per_accelerator_mib, instance.compute_capability) == (98304, "12.0")
    assert lookup.instance("ml.bogus.xlarge") is None


# GiB of one GPU in public logs of vLLM and PyTorch: a T4's in github Zheng-Chong/CatVTON#133, the others' as in
# tests/unit/sizing/published_memory.json.
@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("ml.g4dn.xlarge", 14.56),
        ("ml.g6e.xlarge", 44.42),
        ("ml.g7e.2xlarge", 95.01),
        ("ml.p4d.24xlarge", 39.49),
        ("ml.p4de.24xlarge", 79.25),
        ("ml.p5.48xlarge", 79.19),
    ],
)
def test_the_memory_of_a_gpu_is_what_a_program_sees(name: str, gib: float) -> None:
    instance = lookup.instance(name)
    assert instance
    assert instance.usable_bytes / 2**30 == pytest.approx(gib, rel=0.01)


def test_the_number_of_gpus_does_not_grow_with_the_size() -> None:
    sizes = [lookup.instance(f"ml.g6e.{size}xlarge") for size in (12, 16, 24)]
    assert [instance and instance.accelerator_count for instance in sizes] == [4, 1, 4]


def test_two_physical_neuron_cores_of_trainium2_are_one_logical_one() -> None:
    trainium = lookup.instance("ml.trn2.48xlarge")
    assert trainium
    assert (trainium.neuron_cores, trainium.neuron_cores_logical, trainium.interconnect) == (128, 64, "neuronlink")


def test_a_cpu_instance_has_no_accelerator() -> None:
    instance = lookup.instance("ml.m7i.large")
    assert instance
    assert (instance.accelerator, instance.vcpus, instance.host_memory_gib) == ("", 2, 8)


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "ml.c7i.12xlarge": "CPUs",
        "ml.g6.12xlarge": "L4 (compute capability 8.9)",
        "ml.p6e-gb200.36xlarge": "GB200 (compute capability 10.0) and arm64 CPUs",
        "ml.trn1.2xlarge": "Trainium",
    }.items(),
)
def test_what_an_instance_computes_with_is_said_in_words(name: str, words: str) -> None:
    instance = lookup.instance(name)
    assert instance
    assert instance.processors == words


def test_a_head_is_found_in_any_case() -> None:
    head = lookup.head("amazon/gpt-oss-20b-p-eagle")
    assert head
    assert (head.repo, head.card_k, head.trained_depth) == ("amazon/GPT-OSS-20B-P-EAGLE", 7, 10)
    assert lookup.head("nobody/nothing") is None


def test_images_come_newest_engine_first_and_the_patched_one_of_two() -> None:
    images = lookup.images("sagemaker", "vllm")
    assert [image.tag for image in images[:4]] == [
        "0.31.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
        "server-sagemaker-cuda-v2.6",
        "server-sagemaker-cuda-v2.5",
        "0.30.0-gpu-py312-cu130-ubuntu24.04-sagemaker",
    ]
    keys = [lookup.version_key(image.version) for image in images]
    assert keys == sorted(keys, reverse=True)
    assert lookup.images("sagemaker", "no-such-engine") == ()


def test_images_with_the_quoting_bug_are_known() -> None:
    broken = {image.tag for image in lookup.images("sagemaker", "vllm") if image.supervisor_quoting == "broken"}
    assert "server-sagemaker-cuda-v2.0" in broken
    assert "0.23.0-gpu-py312-cu130-ubuntu22.04-sagemaker" in broken
    assert "0.24.0-gpu-py312-cu130-ubuntu22.04-sagemaker" not in broken


def test_the_local_platform_has_its_one_image() -> None:
    (image,) = lookup.images("local", "vllm")
    assert image.version == "0.32.0"


@pytest.mark.parametrize(
    ("version", "flag", "known"),
    [
        ("0.28.0", "per-request-spec-decode-metrics", False),
        ("0.29.0", "per-request-spec-decode-metrics", True),
        ("0.29.0", "per_request_spec_decode_metrics", True),
        ("0.16.0", "swap-space", True),
        ("0.18.0", "swap-space", False),
        ("0.30.0", "no-enable-prefix-caching", True),
        ("0.30.0", "no-such-flag", False),
        ("0.32.0", "disable-prefix-caching", False),
        ("0.33.0", "disable-prefix-caching", True),
        ("0.33.0", "no-enable-prefix-caching", True),
        ("99.0.0", "model", None),
    ],
)
def test_flags_come_and_go_with_versions(version: str, flag: str, known: bool | None) -> None:
    assert facts.flag_known(version, flag) is known


def test_all_flags_of_a_version() -> None:
    assert "speculative-config" in facts.flags("0.30.0")
    assert "swap-space" not in facts.flags("0.30.0")
    assert facts.flags("99.0.0") == ()


@pytest.mark.parametrize(
    ("version", "architecture", "supported"),
    [
        ("0.16.0", "GptOssForCausalLM", True),
        ("0.19.1", "Gemma4ForConditionalGeneration", False),
        ("0.20.0", "Gemma4ForConditionalGeneration", True),
        ("0.33.0", "Gemma2ForCausalLM", False),
        ("0.33.0", "NoSuchForCausalLM", None),
        ("99.0.0", "LlamaForCausalLM", None),
    ],
)
def test_targets_take_heads_from_some_version_on(version: str, architecture: str, supported: bool | None) -> None:
    assert facts.supports_eagle3(version, architecture) is supported


def test_drafters_are_registered_from_some_version_on() -> None:
    registered = [facts.drafter_known(version, "PeagleQwen3ForCausalLM") for version in ("0.23.0", "0.24.0")]
    assert registered == [False, True]
    assert facts.drafter_known("99.0.0", "PeagleQwen3ForCausalLM") is None


def test_the_mask_token_is_looked_for_under_more_keys_in_later_versions() -> None:
    assert facts.mask_token_keys("0.15.0") == ()
    assert facts.mask_token_keys("0.19.1") == ("pard_token", "ptd_token_id")
    assert facts.mask_token_keys("0.27.1") == ("dflash_config.mask_token_id", "pard_token", "ptd_token_id")
    assert facts.mask_token_keys("0.33.0") == KEYS


def test_facts_that_changed_with_a_version() -> None:
    factors = [facts.kv_group_factor(version) for version in ("0.15.0", "0.17.1", "0.18.0", "0.33.0")]
    assert factors == [None, 1.25, 1.5, 1.5]
    subtracts = [facts.subtracts_draft_slots(version) for version in ("0.16.0", "0.17.0", "0.27.1", "0.28.0")]
    assert subtracts == [False, True, True, False]


def test_the_import_is_light() -> None:
    program = "import sys; before = set(sys.modules); import toolkit.catalog.lookup; print(*set(sys.modules) - before)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    packages = {name.partition(".")[0] for name in run.stdout.split()}
    assert packages - sys.stdlib_module_names == {"toolkit"}
