"""vLLM's flags on a CPU, where its defaults do not work or take too long."""

from __future__ import annotations

from collections.abc import Collection

from toolkit.engines.vllm import fork_plugin
from toolkit.engines.vllm.flags import PREFIX
from toolkit.recipe.rules import CpuBuild

# As /proc/cpuinfo calls them.
_BFLOAT16_FEATURES = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
_BINDING, _THREADS = "VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS"
# vLLM drafts n-grams with numba, which sets OpenMP's threads to its own: all cores, of which each waits in a busy loop.
_NUMBA_THREADS = "NUMBA_NUM_THREADS"
# vLLM writes to the whole KV cache when it makes it, and an endpoint may have several variants.
_KV_CACHE_SHARE, _MOST_KV_CACHE_BYTES = 0.25, 8 * 1024**3


class VllmOnCpu(CpuBuild):
    package = "vllm-cpu"

    def variables(
        self, given: Collection[str], free_bytes: int, cpu_features: Collection[str], cores: int
    ) -> dict[str, str]:
        """Variables for memory, dtype, eager mode and threads, each only if `given` has none that decides the same.

        By default vLLM asks for 92 % of the machine's memory, and refuses to start if that is not free. Without
        bfloat16 instructions, float32 is faster and exact. Compiling takes longer than most local uses. vLLM binds its
        threads to all cores but the last one: several servers on a machine would then share some cores and leave the
        last one idle. Unbound, a server's processes have the same variables, so they can be forked (`forking_cpu`).
        """
        kv_cache = round(min(free_bytes * _KV_CACHE_SHARE, _MOST_KV_CACHE_BYTES))
        dtype = "bfloat16" if _BFLOAT16_FEATURES.intersection(cpu_features) else "float32"
        wanted = (
            ("KV_CACHE_MEMORY_BYTES", str(kv_cache), ("GPU_MEMORY_UTILIZATION", "KV_CACHE_MEMORY")),
            ("DTYPE", dtype, ()),
            ("ENFORCE_EAGER", "true", ("NO_ENFORCE_EAGER", "COMPILATION_CONFIG", "OPTIMIZATION_LEVEL")),
        )
        flags = {
            f"{PREFIX}{flag}": value
            for flag, value, others in wanted
            if not any(f"{PREFIX}{name}" in given for name in (flag, *others))
        }
        count = str(max(1, cores - 1))
        threads = {_BINDING: "nobind", _THREADS: count, _NUMBA_THREADS: count, fork_plugin.VARIABLE: "1"}
        return flags if self.binds_threads(given) else {**flags, **threads}

    def binds_threads(self, given: Collection[str]) -> bool:
        """vLLM then has a process for each worker."""
        return not {_BINDING, _THREADS}.isdisjoint(given)
