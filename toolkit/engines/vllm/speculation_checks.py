"""Does the engine accept these keys of `speculation`, and these flags together with the method?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.catalog.methods import EngineMethod, Key
from toolkit.engines.vllm.flags import only_runner
from toolkit.findings import Finding
from toolkit.recipe.parts import Speculation
from toolkit.recipe.resolve import Recipe

_RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_OFF = ("0", "false", "False")
_SCHEDULE, _TENSOR_PARALLEL = "num_speculative_tokens_per_batch_size", "draft_tensor_parallel_size"


def check_speculation(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the keys of `speculation`, and on flags and variables that conflict with the method."""
    speculation = recipe.speculation
    if speculation is None:
        return
    yield from _flags(recipe, speculation)
    if drafting := recipe.drafting:
        for key, value in _written(speculation).items():
            yield from _key(recipe, drafting, key, value)
        yield from _schedule(recipe, drafting)
        yield from _runner(recipe, drafting)
        yield from _packages(recipe, drafting)
    yield from _draft_tensor_parallel(recipe, speculation)
    yield from _two_vocabularies(speculation)
    yield from _adaptive(recipe, speculation)
    length, longest = speculation.settings.get("max_model_len"), recipe.engine.max_model_len
    if length and longest and length > longest:
        message = f"{length} tokens are more than the {longest} of a request (engine.max_model_len)"
        hint = f"Set it to {longest} or less, or remove it."
        yield Finding("engine.speculation-value", message, "speculation.max_model_len", hint=hint)


def _flags(recipe: Recipe, speculation: Speculation) -> Iterator[Finding]:
    """Flags that vLLM refuses, or that have no effect, together with speculation (config/vllm.py)."""
    args, has_model = recipe.engine.args, speculation.facts.kind != "text"
    if args.get("enable-lora") and has_model:
        message = "LoRA adapters change the target but not the drafter: fewer drafts are accepted"
        hint = "Serve fine-tunes without speculation, or measure with `toolkit prove`."
        yield Finding("engine.lora", message, "engine.args.enable-lora", hint=hint, severity="warning")
    if args.get("kv-sharing-fast-prefill") and has_model:
        message = "`kv-sharing-fast-prefill` cannot be combined with speculation"
        path = "engine.args.kv-sharing-fast-prefill"
        yield Finding("engine.fast-prefill", message, path, hint="Remove the flag.")
    for flag in recipe.drafting.not_with if recipe.drafting else ():
        if args.get(flag):
            message = f"`{flag}` cannot be combined with method `{speculation.method}`"
            yield Finding("engine.clash", message, f"engine.args.{flag}", hint="Remove the flag.")


def _written(speculation: Speculation) -> Mapping[str, Any]:
    """The optional keys that the recipe sets, with their values."""
    schedule = {_SCHEDULE: speculation.schedule} if speculation.schedule else {}
    size = {_TENSOR_PARALLEL: speculation.tensor_parallel} if speculation.tensor_parallel else {}
    return {**schedule, **size, **speculation.settings}


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


def _draft_tensor_parallel(recipe: Recipe, speculation: Speculation) -> Iterator[Finding]:
    """A head runs on one accelerator or on all of the target's, a draft model on all (config/speculative.py)."""
    wanted, target = speculation.tensor_parallel, recipe.engine.args.get("tensor-parallel-size", 1)
    allowed = [target] if speculation.facts.kind == "model" else [1, target]
    if wanted is not None and wanted not in allowed:
        message = f"a `{recipe.method}` drafter cannot run on {wanted} accelerators if the target runs on {target}"
        hint = f"Set it to {' or '.join(map(str, dict.fromkeys(allowed)))}, or remove it."
        path = "speculation.draft_tensor_parallel_size"
        yield Finding("engine.draft-tensor-parallel", message, path, hint=hint)


def _two_vocabularies(speculation: Speculation) -> Iterator[Finding]:
    """A drafter with a vocabulary of its own has to take its first choice (config/speculative.py)."""
    if speculation.own_vocabulary and speculation.settings.get("draft_sample_method") == "probabilistic":
        message = "with a vocabulary of its own (`use_heterogeneous_vocab`) the drafter can only take its first choice"
        hint = "Set it to greedy, or remove it."
        yield Finding("engine.speculation-value", message, "speculation.draft_sample_method", hint=hint)


def _adaptive(recipe: Recipe, speculation: Speculation) -> Iterator[Finding]:
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


def _runner(recipe: Recipe, drafting: EngineMethod) -> Iterator[Finding]:
    written, runner = recipe.engine.env.get(_RUNNER_VARIABLE), only_runner(recipe)
    if written is None or not runner:
        return
    if (runner == "V1") != (written in _OFF):
        because = "" if drafting.runner else " with these keys of `speculation`"
        message = f"method `{recipe.method}` runs on the {runner} model runner only{because}"
        hint = "Remove it: the toolkit sets it to 0." if runner == "V1" else "Remove it."
        yield Finding("engine.runner", message, f"engine.env.{_RUNNER_VARIABLE}", hint=hint)


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
