"""EngineRules of Grove, in which nothing is vLLM's: drafts are trees, memory is tokens, prompts have no scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit.engines.grove.keys import SECTIONS, GroveSpeculation

from toolkit.catalog import lookup
from toolkit.catalog.lookup import Instance
from toolkit.engines.arguments import check_flags, drafter_path, fetched_by_container
from toolkit.findings import Finding
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import EngineRules, Metrics, Recipe
from toolkit.recipe.rules import CpuBuild, MetricNames
from toolkit.recipe.schema import EngineSection
from toolkit.sizing import weights
from toolkit.sizing.fit import GIB, Fit, MemoryModel
from toolkit.sizing.shape import shape_of

NAME, NEWEST = "grove", "2.1.0"
_FLAGS = ("chunked-prefill-size", "mem-fraction-static", "random-seed", "tp-size")
_STATIC_SHARE = 0.88
_GRAPHS_BYTES = 2 * GIB


class GroveMemory(MemoryModel):
    """A share of each accelerator is static: weights, and a pool of tokens for requests and their trees."""

    def fit(self, recipe: Recipe | None, models: Lock, instance: Instance, empty: Fit) -> Fit:
        target, size = shape_of(models.target), int(_args(recipe).get("tp-size", 1))
        drafter = shape_of(models.drafter) if models.drafter else None
        dtype = weights.serving_dtype(target, "auto")
        held = [weights.rank_bytes(item, size, dtype) for item in (models.target, models.drafter) if item]
        memory = instance.memory_per_accelerator_mib * 2**20 or instance.host_memory_gib * GIB
        pool = memory * _share(recipe) - sum(held)
        layers = target.cached_layers + (drafter.cached_layers if drafter else ())
        per_token = sum(layer.kv_heads_per_rank(size) * (layer.key_size + layer.value_size) * 2 for layer in layers)
        drafting = recipe.speculation if recipe and drafter else None
        trees = GroveSpeculation.of(drafting).draft_tokens * recipe.engine.max_num_seqs if recipe and drafting else 0
        length = (recipe.engine.max_model_len if recipe else None) or target.max_position_embeddings
        tokens = max(0, int(pool / per_token) - trees)
        sized = replace(
            empty,
            tensor_parallel=size,
            weights_gib=held[0] / GIB,
            drafter_gib=sum(held[1:]) / GIB,
            workspace_gib=_GRAPHS_BYTES / GIB,
            kv_gib=max(0, pool) / GIB,
            kv_tokens=tokens,
            max_model_len=length,
            largest_context=min(tokens, length),
        )
        if tokens < length:
            return replace(sized, reason=f"the pool holds {tokens:,} tokens besides the trees', of {length:,} wanted")
        return replace(sized, fits=True, max_concurrency=tokens / length, largest_concurrency=tokens // length)


class GroveMetrics(Metrics):
    names = MetricNames(
        *(f"grove:{name}" for name in ("ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds")),
        *(f"grove:{name}" for name in ("generated_tokens_total", "prompt_tokens_total")),
        *(f"grove:{name}" for name in ("running", "waiting", "pool_usage")),
        *(f"grove:{name}_total" for name in ("trees", "nodes", "accepted", "accepted_by_depth")),
    )

    def reports_drafts(self, recipe: Recipe) -> bool:
        return False  # not in its answers; its page of metrics does

    def draft_line(self, k: int) -> str:
        return '[..., a="accepted:", accepted, d="nodes:", drafted]'


class GroveOnCpu(CpuBuild):
    package = "grove-cpu"

    def variables(
        self, given: Collection[str], free_bytes: int, cpu_features: Collection[str], cores: int
    ) -> dict[str, str]:
        return {} if "GROVE_THREADS" in given else {"GROVE_THREADS": str(cores)}

    def reserved_bytes(self, args: Mapping[str, Any]) -> int:
        return 0

    def binds_threads(self, given: Collection[str]) -> bool:
        return False


class Grove(EngineRules):
    sections = SECTIONS
    variable_prefix = "GROVE_"
    own_flags: Mapping[str, str] = {
        "context-length": "`engine.max_model_len`",
        "max-running-requests": "`engine.max_num_seqs`",
        "model-path": "`target.model`",
        "served-model-name": "`name`",
        "speculative-algorithm": "`speculation.method`",
        "speculative-draft-model-path": "`speculation.model`",
        "speculative-num-steps": "`speculation.num_speculative_tokens`",
    }
    causes: Sequence[Path] = (Path(__file__).with_name("causes.json"),)
    memory = GroveMemory()
    metrics = GroveMetrics()
    cpu = GroveOnCpu()
    cache_folders: Mapping[str, str] = {"GROVE_CACHE": "grove"}

    def fill_in(self, written: EngineSection, method: str, instance_type: str) -> EngineSection:
        return written.edit(version=written.version or NEWEST, max_num_seqs=written.max_num_seqs or 32)

    def knows(self, version: str) -> bool:
        return not lookup.older(version, "2.0.0")

    def runs_on(self, instance: Instance) -> bool:
        return bool(instance.compute_capability)

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        return int(recipe.engine.args.get("tp-size", 1))

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        engine, speculation, drafting = recipe.engine, recipe.speculation, recipe.drafting
        flags: dict[str, Any] = {"max-running-requests": engine.max_num_seqs, "served-model-name": recipe.name}
        if engine.max_model_len:
            flags["context-length"] = engine.max_model_len
        if fetched_by_container(recipe, recipe.target):
            flags["model-path"] = recipe.target.model
        if speculation is None or drafting is None:
            return flags
        return {
            **flags,
            "speculative-algorithm": drafting.method,
            "speculative-draft-model-path": drafter_path(recipe),
            "speculative-num-steps": speculation.num_speculative_tokens,
            "speculative-eagle-topk": GroveSpeculation.of(speculation).topk,
            "speculative-num-draft-tokens": GroveSpeculation.of(speculation).draft_tokens,
        }

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        return {}

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from check_flags(recipe, self._unknown)
        if recipe.speculation is None:
            return
        if recipe.drafting is None:
            yield Finding(
                "engine.method",
                f"grove does not draft with {recipe.method}",
                "speculation.method",
                hint="Draft with a tree.",
            )
            return
        tree, steps = GroveSpeculation.of(recipe.speculation), recipe.speculation.num_speculative_tokens
        nodes = sum(tree.topk**depth for depth in range(1, steps + 1))
        if tree.draft_tokens > nodes:
            message = f"a tree of {steps} steps with {tree.topk} children each has {nodes} nodes"
            yield Finding("grove.tree", message, "speculation.draft_tokens", hint=f"Set it to {nodes} or less.")

    def _unknown(self, flag: str) -> Iterator[Finding]:
        if flag not in _FLAGS:
            yield Finding(
                "engine.unknown-flag", f"grove has no flag `--{flag}`", f"engine.args.{flag}", hint="Remove it."
            )


def _args(recipe: Recipe | None) -> Mapping[str, Any]:
    return recipe.engine.args if recipe else {}


def _share(recipe: Recipe | None) -> float:
    return float(_args(recipe).get("mem-fraction-static", _STATIC_SHARE))


RULES = Grove()
