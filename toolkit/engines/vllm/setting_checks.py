"""Keys of `speculation` and flags that vLLM refuses together, or that its public issues report to fail or to be slow.

They show before a deployment, and without the files of the models. The issues are in docs/known-threads.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.catalog.methods import EngineMethod, Key
from toolkit.engines.arguments import builds
from toolkit.engines.vllm.fields import as_number, whole_number
from toolkit.engines.vllm.flags import only_runner
from toolkit.engines.vllm.installed import is_for_cpu
from toolkit.engines.vllm.keys import VllmSpeculation
from toolkit.findings import Finding, Severity
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import SpeculationSection

RUNNER_VARIABLE, STAGES = "VLLM_USE_V2_MODEL_RUNNER", "pipeline-parallel-size"
_COMPILATION = "compilation-config"
_CAPTURE, _CAPTURE_KEY = "max-cudagraph-capture-size", f"{_COMPILATION}.max_cudagraph_capture_size"
_TOOLS = "enable-auto-tool-choice"
# Of 0 and 1 nothing is divided.
_UBATCH = "ubatch-size"
# Flags that vLLM refuses without one of these, as far as its validators do not say it themselves (clashes.json).
_NEEDS = {
    "enable-fault-tolerance": ("data-parallel-external-lb", "data-parallel-rank"),
    "data-parallel-hybrid-lb": ("data-parallel-size-local",),
    "data-parallel-multi-port-external-lb": ("data-parallel-size",),
    "data-parallel-rank": ("data-parallel-size",),
    "enable-dbo": ("all2all-backend",),
    _UBATCH: ("all2all-backend",),
    "data-parallel-external-lb": ("data-parallel-size", "data-parallel-rank"),
}
_ON_GPU = ("enable-eplb", "enable-sleep-mode", "enable-cumem-allocator")
_NSIGHT = "ray-workers-use-nsight"
_V2_RUNNER_SINCE = "0.29.0"
# Release notes of 0.25.0: "Model Runner V2 is now the default for all dense models" (pull request 44443).
_V2_DENSE_MODELS_SINCE = "0.25.0"
# Plain draft models have a speculator of their own there since (pull request 55990; v1/worker/gpu/spec_decode/).
_V2_DRAFT_MODELS_SINCE = "0.32.0"
# With runs of two tokens half of the tool calls were broken, with eight none (issue 40875).
_SAFE_MATCH, _DEFAULT_MATCH = 8, 5
# The share of accepted tokens falls with each position; published K of such drafters are 2 to 5 (methods.json).
_LONG_DRAFT = 10


def check_settings(recipe: Recipe) -> Iterator[Finding]:
    """Findings on parallelism, runner, CUDA graphs, KV cache and draft length; empty without speculation."""
    speculation = recipe.speculation
    if speculation is None:
        return
    yield from _stages(recipe)
    yield from _runner(recipe)
    yield from _capture(recipe, speculation)
    yield from _eager(recipe, speculation)
    yield from _long_draft(speculation)
    yield from _short_matches(recipe, speculation)
    dtype, path = speculation.settings.get("kv_cache_dtype", "auto"), "speculation.kv_cache_dtype"
    if dtype != "auto":
        message = f"a KV cache of {dtype} for the drafter alone was reported to end the engine at its start"
        hint = "Remove it, so that the drafter's is like the target's (vLLM issues 54690, 51581)."
        yield Finding("engine.draft-kv-cache", message, path, hint=hint, severity="warning")


def check_combinations(recipe: Recipe) -> Iterator[Finding]:
    """Findings on flags whose values vLLM refuses together (config/parallel.py, config/lora.py)."""
    args = recipe.engine.args
    at_once, kept = whole_number(args.get("max-loras", 1)), whole_number(args.get("max-cpu-loras"))
    if args.get("enable-lora") and at_once and kept and kept < at_once:
        message = f"`max-cpu-loras: {kept}` is below `max-loras: {at_once}`"
        hint = f"Set it to {at_once} or more, or remove it."
        yield Finding("engine.combination", message, "engine.args.max-cpu-loras", hint=hint)
    copies, here = whole_number(args.get("data-parallel-size", 1)), whole_number(args.get("data-parallel-size-local"))
    if copies and here and here > copies:
        message = f"`data-parallel-size-local: {here}` is more than `data-parallel-size: {copies}`"
        hint = f"Set it to {copies} or less, or remove it."
        yield Finding("engine.combination", message, "engine.args.data-parallel-size-local", hint=hint)
    yield from _no_size(recipe)
    yield from _alone(recipe)


def _no_size(recipe: Recipe) -> Iterator[Finding]:
    """A size of no graph, where vLLM is to capture some (config/vllm.py, _set_cudagraph_sizes)."""
    args = recipe.engine.args
    config = args.get(_COMPILATION)
    config = as_number(config) if isinstance(config, str) else config
    config = {key: value for key, value in config.items() if value is not None} if isinstance(config, Mapping) else {}
    without_graphs = (
        args.get("enforce-eager") is True
        or whole_number(args.get("optimization-level")) == 0
        or str(config.get("cudagraph_mode", "")).upper() in ("NONE", "0")
        # Graphs in pieces, as they are by default, need vLLM's own way to compile and to split a model.
        or str(config.get("mode", "3")).upper() not in ("3", "VLLM_COMPILE")
        or not config.keys().isdisjoint(("level", "splitting_ops"))
    )
    if without_graphs or not recipe.platform_rules.facts.has_instance_types:
        return
    for key, value in ((_CAPTURE, args.get(_CAPTURE)), (_CAPTURE_KEY, config.get(_CAPTURE_KEY.partition(".")[2]))):
        if (largest := whole_number(value)) is not None and largest < 1:
            message, hint = f"`{key}: {largest}` is no size of a CUDA graph", "Set `enforce-eager: true` instead."
            yield Finding("engine.combination", message, f"engine.args.{key}", hint=hint)


def _alone(recipe: Recipe) -> Iterator[Finding]:
    """Findings on flags without another that they need, or without a GPU."""
    args, no_gpu = recipe.engine.args, _is_without_gpu(recipe)
    given = [flag for flag in (*_NEEDS, *_ON_GPU) if args.get(flag, False) is not False]
    given = [flag for flag in given if flag != _UBATCH or (whole_number(args[flag]) or 0) > 1]
    given = [flag for flag in given if not (no_gpu and flag == "enable-dbo")]  # which a CPU's platform turns off
    for flag in dict.fromkeys(given):
        needed = _NEEDS.get(flag, ())
        if flag in _ON_GPU and no_gpu:
            message, hint = f"vLLM has no `{flag}` on a CPU", "Remove it."
        elif needed and all(args.get(other, False) is False for other in needed):
            names = " or ".join(f"`{other}`" for other in needed)
            message, hint = f"`{flag}` needs {names}", "Add it, or remove this one."
        else:
            continue
        yield Finding("engine.combination", message, f"engine.args.{flag}", hint=hint)
    if args.get(_NSIGHT) is True and args.get("distributed-executor-backend") in (None, "mp", "uni"):
        message, hint = f"`{_NSIGHT}` needs `distributed-executor-backend: ray`", "Add it, or remove this one."
        yield Finding("engine.combination", message, f"engine.args.{_NSIGHT}", hint=hint)


def model_runner(recipe: Recipe) -> str:
    """The model runner that is sure to serve the recipe: `V1`, `V2`, or empty where vLLM chooses one."""
    written, only = recipe.engine.env.get(RUNNER_VARIABLE), only_runner(recipe)
    if only or written:
        return only or ("V1" if written in _OFF else "V2")
    return "V1" if _is_without_gpu(recipe) else ""


def _is_without_gpu(recipe: Recipe) -> bool:
    """Whether the engine is known to run without a GPU; an image that runs here may have one, and use the machine's."""
    here = not recipe.platform_rules.facts.has_instance_types and not builds(recipe)
    return here and is_for_cpu()


def runs_on_v1(recipe: Recipe, *, dense: bool = False) -> bool:
    """Whether vLLM's V1 model runner serves the recipe: by version and target, by its variable, or without a GPU."""
    since = _V2_DENSE_MODELS_SINCE if dense else _V2_RUNNER_SINCE
    since = _V2_DRAFT_MODELS_SINCE if recipe.method == "draft-model" else since
    written = recipe.engine.env.get(RUNNER_VARIABLE)
    on_cpu = not recipe.platform_rules.facts.has_instance_types
    by_default = written is None and lookup.older(recipe.engine.version, since)
    return only_runner(recipe) == "V1" or on_cpu or written == "0" or by_default


def _stages(recipe: Recipe) -> Iterator[Finding]:
    """Hidden states and KV caches of drafters do not reach other stages with every model (issues 30436, 49355)."""
    stages = recipe.engine.args.get(STAGES)
    if isinstance(stages, int) and not isinstance(stages, bool) and stages > 1:
        message = f"speculation was reported to fail with {stages} pipeline stages for several models and methods"
        hint = "Set `tensor-parallel-size` instead (vLLM issues 30436, 36643, 49355, 50098)."
        yield Finding("engine.pipeline", message, f"engine.args.{STAGES}", hint=hint, severity="warning")


def _runner(recipe: Recipe) -> Iterator[Finding]:
    """Heads that accepted fewer drafts on the V2 runner: EAGLE-3 (issue 40551), DFlash before 0.29 (49559)."""
    written = recipe.engine.env.get(RUNNER_VARIABLE)
    by_default = not lookup.older(recipe.engine.version, _V2_RUNNER_SINCE)
    if written == "1" or (written is None and by_default):
        yield from fewer_accepted(recipe)


def fewer_accepted(recipe: Recipe) -> Iterator[Finding]:
    """The finding of a recipe that runs on the V2 runner; empty for other methods."""
    written = recipe.engine.env.get(RUNNER_VARIABLE)
    mended = recipe.method == "dflash" and not lookup.older(recipe.engine.version, _V2_RUNNER_SINCE)
    issue = {"eagle3": "40551", "dflash": "49559"}.get(recipe.method, "")
    if issue and not mended and recipe.platform_rules.facts.has_instance_types:
        message = f"`{recipe.method}` heads were reported to accept fewer drafts on the V2 model runner"
        hint = f'Compare with `{RUNNER_VARIABLE}: "0"` in engine.env: toolkit bench (vLLM issue {issue}).'
        yield Finding("quality.runner", message, "engine.version", hint=hint, severity="warning" if written else "info")


def _capture(recipe: Recipe, speculation: SpeculationSection) -> Iterator[Finding]:
    written = recipe.engine.args.get(_CAPTURE)
    per_request = speculation.num_speculative_tokens + 1
    needed = recipe.engine.max_num_seqs * per_request
    if isinstance(written, int) and not isinstance(written, bool) and 0 < written < needed:
        message = (
            f"CUDA graphs for {written} tokens cover {written // per_request} requests of {per_request} tokens a step; "
            f"larger batches, up to {recipe.engine.max_num_seqs}, run without and are slower"
        )
        hint = f"Set it to {needed}, or lower engine.max_num_seqs."
        yield Finding("engine.capture-size", message, f"engine.args.{_CAPTURE}", hint=hint, severity="warning")


def _eager(recipe: Recipe, speculation: SpeculationSection) -> Iterator[Finding]:
    """Without CUDA graphs each pass of a drafter costs almost what a pass of the target costs (issue 39790)."""
    on_gpu = recipe.platform_rules.facts.has_instance_types
    if recipe.engine.args.get("enforce-eager") is True and speculation.facts.kind != "text" and on_gpu:
        message = "without CUDA graphs, drafting takes most of the time that it saves"
        hint = "Remove the flag, unless the engine does not start without it (vLLM issue 39790)."
        yield Finding("quality.eager", message, "engine.args.enforce-eager", hint=hint, severity="warning")


def _long_draft(speculation: SpeculationSection) -> Iterator[Finding]:
    tokens = speculation.num_speculative_tokens
    if speculation.facts.kind != "text" and not speculation.facts.parallel and tokens > _LONG_DRAFT:
        message = (
            f"K={tokens} takes {tokens} passes of the drafter one after the other, and the last are rarely accepted"
        )
        path, hint = "speculation.num_speculative_tokens", "Measure 3 and 5 first: toolkit tune (vLLM issue 39790)."
        yield Finding("quality.long-draft", message, path, hint=hint, severity="warning")


def _short_matches(recipe: Recipe, speculation: SpeculationSection) -> Iterator[Finding]:
    shortest = speculation.settings.get("prompt_lookup_min", speculation.settings.get("prompt_lookup_max"))
    shortest = _DEFAULT_MATCH if shortest is None else shortest
    looks_up = recipe.drafting is not None and "prompt_lookup_min" in recipe.drafting.keys
    if looks_up and recipe.engine.args.get(_TOOLS) is True and shortest < _SAFE_MATCH:
        message = f"tool calls were reported to be broken by drafts from matches of few tokens (here {shortest})"
        hint = f"Set `prompt_lookup_min: {_SAFE_MATCH}` or more, and `prompt_lookup_max` too (vLLM issue 40875)."
        yield Finding("quality.short-matches", message, "speculation.prompt_lookup_min", hint=hint, severity="warning")


_OFF = ("0", "false", "False")
_SCHEDULE, _TENSOR_PARALLEL = "num_speculative_tokens_per_batch_size", "draft_tensor_parallel_size"


def check_speculation(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the keys of `speculation`, and on flags and variables that conflict with the method."""
    speculation = recipe.speculation
    if speculation is None:
        return
    yield from _flags(recipe, speculation)
    if drafting := recipe.drafting:
        for key, value in speculation.settings.items():
            yield from _key(recipe, drafting, key, value)
        yield from _schedule(recipe, drafting)
        yield from _runner_of_method(recipe, drafting)
        yield from _packages(recipe, drafting)
    yield from _draft_tensor_parallel(recipe, speculation)
    yield from _two_vocabularies(speculation)
    yield from _adaptive(recipe, speculation)
    length, longest = speculation.settings.get("max_model_len"), recipe.engine.max_model_len
    if length and longest and length > longest:
        message = f"{length} tokens are more than the {longest} of a request (engine.max_model_len)"
        hint = f"Set it to {longest} or less, or remove it."
        yield Finding("engine.speculation-value", message, "speculation.max_model_len", hint=hint)


def _flags(recipe: Recipe, speculation: SpeculationSection) -> Iterator[Finding]:
    """Flags that vLLM refuses, or that have no effect, together with speculation (config/vllm.py)."""
    args, kind = recipe.engine.args, speculation.facts.kind
    if args.get("enable-lora") and kind != "text":
        message = "LoRA adapters change the target but not the drafter: fewer drafts are accepted"
        hint = "Serve fine-tunes without speculation, or measure with `toolkit prove`."
        yield Finding("engine.lora", message, "engine.args.enable-lora", hint=hint, severity="warning")
    if args.get("kv-sharing-fast-prefill") and kind not in ("text", "model"):
        message = "`kv-sharing-fast-prefill` cannot be combined with drafters that read the target's hidden states"
        path = "engine.args.kv-sharing-fast-prefill"
        yield Finding("engine.fast-prefill", message, path, hint="Remove the flag.")
    for flag in recipe.drafting.not_with if recipe.drafting else ():
        if args.get(flag):
            message = f"`{flag}` cannot be combined with method `{speculation.method}`"
            yield Finding("engine.clash", message, f"engine.args.{flag}", hint="Remove the flag.")


def _key(recipe: Recipe, drafting: EngineMethod, key: str, value: Any) -> Iterator[Finding]:
    path, engine = f"speculation.{key}", recipe.engine
    known = drafting.keys.get(key)
    if known is None:
        message = f"method `{recipe.method}` does not have the key `{key}`"
        others = ", ".join(drafting.keys)
        yield Finding("engine.speculation-key", message, path, hint=f"Remove it. Its keys are: {others}.")
    elif key != _SCHEDULE and (since := _newer(engine.version, known, value)):
        what = f"`{key}: {value}`" if isinstance(value, str) else f"`{key}`"
        message = f"{what} needs {engine.name} {since} or newer"
        hint = f"Set `version: {since}` or newer, or remove it."
        yield Finding("engine.speculation-key", message, path, hint=hint)


def _newer(version: str, key: Key, value: Any) -> str:
    """The first version with the key, or with this value of it, if `version` is older; else empty."""
    since = key.values.get(value, key.since) if isinstance(value, str) else key.since
    return since if lookup.older(version, since) else ""


def _schedule(recipe: Recipe, drafting: EngineMethod) -> Iterator[Finding]:
    known, path = drafting.keys.get(_SCHEDULE), f"speculation.{_SCHEDULE}"
    if known is None or not (recipe.speculation and recipe.speculation.schedule):
        return
    if not drafting.takes(_SCHEDULE, recipe.engine.version):
        message = f"a K per batch size needs {recipe.engine.name} {known.since} or newer"
        yield Finding("engine.schedule", message, path, hint=f"Set `version: {known.since}` or newer.")
    if recipe.engine.args.get("data-parallel-size", 1) != 1:
        message = "with data parallelism, a K per batch size has no effect"
        yield Finding("engine.schedule", message, path, hint="Remove one of the two.", severity="warning")


def _draft_tensor_parallel(recipe: Recipe, speculation: SpeculationSection) -> Iterator[Finding]:
    """A head runs on one accelerator or on all of the target's, a draft model on all (config/speculative.py)."""
    wanted = VllmSpeculation.of(speculation).draft_tensor_parallel_size
    target = recipe.engine.args.get("tensor-parallel-size", 1)
    allowed = [target] if speculation.facts.kind == "model" else [1, target]
    if wanted is not None and wanted not in allowed:
        message = f"a `{recipe.method}` drafter cannot run on {wanted} accelerators if the target runs on {target}"
        hint = f"Set it to {' or '.join(map(str, dict.fromkeys(allowed)))}, or remove it."
        path = "speculation.draft_tensor_parallel_size"
        yield Finding("engine.draft-tensor-parallel", message, path, hint=hint)


def _two_vocabularies(speculation: SpeculationSection) -> Iterator[Finding]:
    """A drafter with a vocabulary of its own has to take its first choice (config/speculative.py)."""
    if speculation.own_vocabulary and speculation.settings.get("draft_sample_method") == "probabilistic":
        message = "with a vocabulary of its own (`use_heterogeneous_vocab`) the drafter can only take its first choice"
        hint = "Set it to greedy, or remove it."
        yield Finding("engine.speculation-value", message, "speculation.draft_sample_method", hint=hint)


def _adaptive(recipe: Recipe, speculation: SpeculationSection) -> Iterator[Finding]:
    """Adaptive verification needs full CUDA graphs of one stage without adapters (config/vllm.py)."""
    if not speculation.adaptive:
        return
    args = recipe.engine.args
    clashes = {
        "enable-lora": bool(args.get("enable-lora")),
        "enforce-eager": args.get("enforce-eager") is True,
        "pipeline-parallel-size": args.get("pipeline-parallel-size", 1) != 1,
    }
    for flag in (flag for flag, clashing in clashes.items() if clashing):
        message = f"`{flag}` cannot be combined with `enable_adaptive_verification`"
        yield Finding("engine.clash", message, f"engine.args.{flag}", hint="Remove one of the two.")


def _runner_of_method(recipe: Recipe, drafting: EngineMethod) -> Iterator[Finding]:
    written, runner = recipe.engine.env.get(RUNNER_VARIABLE), only_runner(recipe)
    if runner == "V2" and not recipe.platform_rules.facts.has_instance_types:
        message = f"method `{recipe.method}` runs on vLLM's V2 model runner only, which needs a GPU"
        hint = "Serve it on a platform with GPUs, or use another method here."
        severity: Severity = "warning" if recipe.training else "error"  # its head can be trained here all the same
        yield Finding("engine.runner", message, "speculation.method", hint=hint, severity=severity)
    if written is None or not runner:
        return
    if (runner == "V1") != (written in _OFF):
        because = "" if drafting.runner else " with these keys of `speculation`"
        message = f"method `{recipe.method}` runs on the {runner} model runner only{because}"
        hint = "Remove it: the toolkit sets it to 0." if runner == "V1" else "Remove it."
        yield Finding("engine.runner", message, f"engine.env.{RUNNER_VARIABLE}", hint=hint)


def _packages(recipe: Recipe, drafting: EngineMethod) -> Iterator[Finding]:
    """Findings on packages that no image of the engine is known to have; a custom image may have them."""
    if recipe.container is not None:
        return
    for package in drafting.packages:
        message = (
            f"method `{recipe.method}` needs the Python package {package}, which {recipe.engine.name} does not include"
        )
        hint = "Use an image that has it (`container: {base: …}`), or install it (`container: {dockerfile: …}`)."
        if not recipe.platform_rules.facts.has_instance_types:
            hint = f"Run: pip install {package}"
        yield Finding("engine.package", message, "speculation.method", hint=hint, severity="warning")
