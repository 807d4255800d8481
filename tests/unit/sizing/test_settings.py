"""Which flags of a recipe move memory, and what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import LLAMA_8B, LLAMA_8B_HEAD, facts
from pairs import RECIPE, write_pair

from toolkit.engines.vllm.settings import Settings, settings_of
from toolkit.errors import ToolkitError
from toolkit.loading import load
from toolkit.recipe.facts import Lock

PAIR = Lock(facts(LLAMA_8B), facts(LLAMA_8B_HEAD))


def settings_with(folder: Path, args: str) -> Settings:
    recipe = write_pair(folder)
    recipe.write_text(RECIPE.replace("    enforce-eager: true\n", f"    {args}\n"))
    return settings_of(load(recipe), PAIR)


def test_the_recipes_limits(tmp_path: Path) -> None:
    assert settings_with(tmp_path, "enforce_eager: true") == Settings(
        max_model_len=1024,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        num_speculative_tokens=7,
        dtype="float32",
        enforce_eager=True,
    )


@pytest.mark.parametrize(
    ("args", "key", "value"),
    [
        ("kv-cache-dtype: fp8", "kv_cache_dtype", "fp8"),
        ("block-size: 32", "block_size", 32),
        ('block-size: "32"', "block_size", 32),
        ("gpu-memory-utilization: 0.8", "memory_utilization", 0.8),
        ("kv-cache-memory-bytes: 1000", "kv_cache_memory_bytes", 1000),
        ("tensor-parallel-size: 4", "tensor_parallel", 4),
        ("disable-hybrid-kv-cache-manager: true", "hybrid_kv_cache", False),
        ("no-async-scheduling: true", "steps_in_flight", 1),
        ("async-scheduling: false", "steps_in_flight", 1),
        ("enable-expert-parallel: true", "expert_parallel", True),
    ],
)
def test_flags(tmp_path: Path, args: str, key: str, value: object) -> None:
    assert getattr(settings_with(tmp_path, args), key) == value


@pytest.mark.parametrize(
    ("version", "utilization", "steps_in_flight", "kv_group_factor"),
    [("0.32.0", 0.92, 2, 1.5), ("0.25.1", 0.92, 1, 1.5), ("0.18.1", 0.9, 1, 1.5), ("0.17.1", 0.9, 1, 1.25)],
)
def test_what_changed_between_versions(
    tmp_path: Path, version: str, utilization: float, steps_in_flight: int, kv_group_factor: float
) -> None:
    recipe = write_pair(tmp_path)
    recipe.write_text(RECIPE.replace("0.32.0", version))
    settings = settings_of(load(recipe), PAIR)
    assert (settings.memory_utilization, settings.steps_in_flight) == (utilization, steps_in_flight)
    assert settings.kv_group_factor == kv_group_factor


@pytest.mark.parametrize("args", ["block-size: many", "tensor-parallel-size: true", "gpu-memory-utilization: 1.2"])
def test_a_flag_of_another_type_is_named(tmp_path: Path, args: str) -> None:
    with pytest.raises(ToolkitError, match=f"engine.args.{args.split(':')[0]}"):
        settings_with(tmp_path, args)


def test_a_lock_alone_takes_the_engines_defaults() -> None:
    settings = settings_of(None, PAIR)
    assert (settings.max_model_len, settings.max_num_seqs, settings.dtype) == (None, 128, "auto")
    assert settings.num_speculative_tokens == 15, "as many as any method with a drafter does by default: DFlash"
    assert settings_of(None, Lock(facts(LLAMA_8B))).num_speculative_tokens == 0
