"""EngineRules of vLLM, and the base of those of engines that are built on it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkit.catalog.lookup import FOLDER, Instance, older, read
from toolkit.engines.vllm import fork_plugin
from toolkit.engines.vllm.artifacts import VllmArtifacts
from toolkit.engines.vllm.budget import kv_cache_bytes, reserved_bytes
from toolkit.engines.vllm.checks import check_engine
from toolkit.engines.vllm.facts import facts
from toolkit.engines.vllm.flags import (
    COMPILING_FLAGS,
    NO_MODEL_CODE,
    OWN_FLAGS,
    PREFIX,
    ranks,
    vllm_flags,
    vllm_variables,
)
from toolkit.engines.vllm.head import check_listed_positions
from toolkit.engines.vllm.keys import SECTIONS
from toolkit.engines.vllm.memory import VllmMemory, runs_on
from toolkit.engines.vllm.model_checks import YARN_UNSCALED_SINCE, check_models, downloads
from toolkit.engines.vllm.scoring import SCORING
from toolkit.engines.vllm.thread_checks import check_threads
from toolkit.findings import Finding
from toolkit.recipe.assemble import Sections
from toolkit.recipe.facts import Lock
from toolkit.recipe.imported import Imported
from toolkit.recipe.recipe import EngineRules, Metrics, Recipe
from toolkit.recipe.rules import Ask, CpuBuild, Download, EngineAnswer, MetricNames, Rank
from toolkit.recipe.schema import EngineSection

# As /proc/cpuinfo calls them.
_BFLOAT16_FEATURES = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_COMPILING = tuple(flag.upper().replace("-", "_") for flag in COMPILING_FLAGS)
# On a CPU, vLLM 0.32 saves what it compiled ahead of time in a form that it then cannot load ("'function' object has no
# attribute 'finalize_loading'"), and compiles again: 46 s of CPU instead of 25 for a second start of the tiny pair.
_AOT = "VLLM_USE_AOT_COMPILE"
_BINDING, _THREADS = "VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS"
# vLLM drafts n-grams with numba, which sets OpenMP's threads to its own: all cores, of which each waits in a busy loop.
_NUMBA_THREADS = "NUMBA_NUM_THREADS"


class VllmMetrics(Metrics):
    names = MetricNames(**read("engines/vllm.json")["metrics"])

    def reports_drafts(self, recipe: Recipe) -> bool:
        return True

    def draft_line(self, k: int) -> str:
        """Fields are counted from the end of the line, because its beginning varies.

        `… Mean acceptance length: 2.32, …, Accepted: 141 tokens, Drafted: 204 tokens, Per-position acceptance rate:
        0.897, 0.676, 0.500, Avg Draft acceptance rate: 69.1%` (vllm/v1/spec_decode/metrics.py of 0.32; logs of 0.2x
        are the same). Fields end at spaces, so `2.32,` is not a number for CloudWatch, but the two token counts are.
        """
        positions = ", ".join(f"p{position}" for position in range(1, k + 1))
        return (
            '[..., a="Accepted:", accepted, t="tokens,", d="Drafted:", drafted, u="tokens,", '
            f'v="Per-position", w="acceptance", x="rate:", {positions}, '
            'y="Avg", z="Draft", r="acceptance", s="rate:", share]'
        )


class VllmOnCpu(CpuBuild):
    """vLLM's flags on a CPU, where its defaults do not work or take too long."""

    package = "vllm-cpu"
    spare = Path(__file__).with_name("spare.py")
    spare_variables = ("HF_HUB_", "OMP_", "VLLM_", *NO_MODEL_CODE)

    def variables(
        self, given: Collection[str], free_bytes: int, cpu_features: Collection[str], cores: int
    ) -> dict[str, str]:
        """Variables for memory, dtype, eager mode and threads, each only if `given` has none that decides the same.

        By default vLLM asks for 92 % of the machine's memory, and refuses to start if that is not free. Without
        bfloat16 instructions, float32 is faster and exact. Compiling takes longer than most local uses. vLLM binds its
        threads to all cores but the last one: several servers on a machine would then share some cores and leave the
        last one idle. Unbound, a server's processes have the same variables, so they can be forked (`forking_cpu`).
        """
        dtype = "bfloat16" if _BFLOAT16_FEATURES.intersection(cpu_features) else "float32"
        wanted = (
            ("KV_CACHE_MEMORY_BYTES", str(kv_cache_bytes(free_bytes)), ("GPU_MEMORY_UTILIZATION", "KV_CACHE_MEMORY")),
            ("DTYPE", dtype, ()),
            ("ENFORCE_EAGER", "true", _COMPILING),
        )
        flags = {
            f"{PREFIX}{flag}": value
            for flag, value, others in wanted
            if not any(f"{PREFIX}{name}" in given for name in (flag, *others))
        }
        if any(f"{PREFIX}{name}" in given for name in _COMPILING):
            flags[_AOT] = "0"
        count = str(max(1, cores - 1))
        threads = {_BINDING: "nobind", _THREADS: count, _NUMBA_THREADS: count, fork_plugin.VARIABLE: "1"}
        return flags if self.binds_threads(given) else {**flags, **threads}

    def reserved_bytes(self, args: Mapping[str, Any]) -> int:
        return reserved_bytes(args)

    def binds_threads(self, given: Collection[str]) -> bool:
        """vLLM then has a process for each worker."""
        return not {_BINDING, _THREADS}.isdisjoint(given)


class OnVllm(EngineRules):
    """What vLLM and the engines that are built on it have in common."""

    sections: Sections = SECTIONS
    variable_prefix = PREFIX
    own_flags = OWN_FLAGS
    causes: Sequence[Path] = (
        Path(__file__).with_name("causes.json"),
        FOLDER / "engines/vllm/refusals.json",
        FOLDER / "engines/vllm/libraries.json",
        FOLDER / "engines/vllm/requests.json",
    )
    scoring = SCORING
    # vLLM's inspection of a model class takes 8 s without its cache.
    cache_folders: Mapping[str, str] = {"VLLM_CACHE_ROOT": "vllm"}
    length_variable = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"

    def downloads(self, recipe: Recipe) -> Sequence[Download]:
        return downloads(recipe)

    def runs_model_code(self, recipe: Recipe) -> bool:
        return recipe.engine.args.get("trust-remote-code") is True


class Vllm(OnVllm):
    """vLLM on GPUs, and on this machine's CPU."""

    memory = VllmMemory()
    metrics = VllmMetrics()
    artifacts = VllmArtifacts()
    cpu = VllmOnCpu()
    cache_salt = "cache_salt"
    gpt_oss_method_since = "0.20.0"  # `gpt_oss_mxfp4`
    yarn_counted_since = YARN_UNSCALED_SINCE

    def fill_in(self, written: EngineSection, method: str, instance_type: str) -> EngineSection:
        known = facts()
        return written.edit(
            max_num_seqs=written.max_num_seqs or known.default_max_num_seqs,
            max_num_batched_tokens=written.max_num_batched_tokens or known.default_max_num_batched_tokens,
        )

    def knows(self, version: str) -> bool:
        return True

    def import_settings(self, settings: str | Mapping[str, Any], variant: str | None) -> Imported | None:
        from toolkit.engines.vllm.importing import read_settings  # 5 ms, for one command

        return read_settings(settings, variant)

    def runs_on(self, instance: Instance) -> bool:
        return runs_on(instance)

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        return ranks(recipe.engine.args)

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        return vllm_flags(recipe)

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        return vllm_variables(recipe, flags)

    def rank_flags(self, rank: Rank) -> Mapping[str, Any]:
        """Its own launch on several nodes, without Ray: the ranks after the first serve no HTTP."""
        flags = {
            "nnodes": rank.nodes,
            "node-rank": rank.number,
            "master-addr": rank.leader,
            "distributed-executor-backend": "mp",
        }
        return flags if rank.leads else {**flags, "headless": True}

    def accepts_synthetically(self, recipe: Recipe) -> bool:
        """On GPUs only: "Synthetic acceptance not supported with CPU sampling" (vLLM 0.32.0)."""
        is_older = older(recipe.engine.version, facts().synthetic_acceptance_since)
        if is_older or not recipe.platform_rules.facts.has_instance_types:
            return False
        instances = [recipe.platform_rules.instance(name) for name in recipe.platform.types]
        return bool(instances) and all(instance and runs_on(instance) for instance in instances)

    def ask(self, recipe: Recipe, models: Lock | None, now: Ask) -> EngineAnswer:
        from toolkit.engines.vllm.asking import ask

        return ask(recipe, models, now)

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from check_engine(recipe)
        if models is None:
            yield from check_listed_positions(recipe)
            return
        yield from check_models(recipe, models)
        yield from check_threads(recipe, models)


RULES = Vllm()
