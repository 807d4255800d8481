"""Settings that public issues of vLLM report to fail or to be slow together with speculation.

They show before a deployment, and without the files of the models. The issues are in docs/known-threads.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.engines.vllm.flags import only_runner
from toolkit.findings import Finding
from toolkit.recipe.parts import Speculation
from toolkit.recipe.resolve import Recipe

RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_CAPTURE, _STAGES, _TOOLS = "max-cudagraph-capture-size", "pipeline-parallel-size", "enable-auto-tool-choice"
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


def runs_on_v1(recipe: Recipe, *, dense: bool = False) -> bool:
    """Whether vLLM's V1 model runner serves the recipe: by version and target, by its variable, or without a GPU."""
    since = _V2_DENSE_MODELS_SINCE if dense else _V2_RUNNER_SINCE
    since = _V2_DRAFT_MODELS_SINCE if recipe.method == "draft-model" else since
    written = recipe.engine.env.get(RUNNER_VARIABLE)
    on_cpu = not recipe.platform_rules.facts.has_instance_types
    return (
        only_runner(recipe) == "V1"
        or on_cpu
        or written == "0"
        or (written is None and lookup.older(recipe.engine.version, since))
    )


def _stages(recipe: Recipe) -> Iterator[Finding]:
    """Hidden states and KV caches of drafters do not reach other stages with every model (issues 30436, 49355)."""
    stages = recipe.engine.args.get(_STAGES)
    if isinstance(stages, int) and not isinstance(stages, bool) and stages > 1:
        message = f"speculation was reported to fail with {stages} pipeline stages for several models and methods"
        hint = "Set `tensor-parallel-size` instead (vLLM issues 30436, 36643, 49355, 50098)."
        yield Finding("engine.pipeline", message, f"engine.args.{_STAGES}", hint=hint, severity="warning")


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


def _capture(recipe: Recipe, speculation: Speculation) -> Iterator[Finding]:
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


def _eager(recipe: Recipe, speculation: Speculation) -> Iterator[Finding]:
    """Without CUDA graphs each pass of a drafter costs almost what a pass of the target costs (issue 39790)."""
    on_gpu = recipe.platform_rules.facts.has_instance_types
    if recipe.engine.args.get("enforce-eager") is True and speculation.facts.kind != "text" and on_gpu:
        message = "without CUDA graphs, drafting takes most of the time that it saves"
        hint = "Remove the flag, unless the engine does not start without it (vLLM issue 39790)."
        yield Finding("quality.eager", message, "engine.args.enforce-eager", hint=hint, severity="warning")


def _long_draft(speculation: Speculation) -> Iterator[Finding]:
    tokens = speculation.num_speculative_tokens
    if speculation.facts.kind != "text" and not speculation.facts.parallel and tokens > _LONG_DRAFT:
        message = (
            f"K={tokens} takes {tokens} passes of the drafter one after the other, and the last are rarely accepted"
        )
        hint = "Measure 3 and 5 first: toolkit tune (vLLM issue 39790)."
        yield Finding(
            "quality.long-draft", message, "speculation.num_speculative_tokens", hint=hint, severity="warning"
        )


def _short_matches(recipe: Recipe, speculation: Speculation) -> Iterator[Finding]:
    shortest = speculation.settings.get("prompt_lookup_min", speculation.settings.get("prompt_lookup_max"))
    shortest = _DEFAULT_MATCH if shortest is None else shortest
    looks_up = recipe.drafting is not None and "prompt_lookup_min" in recipe.drafting.keys
    if looks_up and recipe.engine.args.get(_TOOLS) is True and shortest < _SAFE_MATCH:
        message = f"tool calls were reported to be broken by drafts from matches of few tokens (here {shortest})"
        hint = f"Set `prompt_lookup_min: {_SAFE_MATCH}` or more, and `prompt_lookup_max` too (vLLM issue 40875)."
        yield Finding("quality.short-matches", message, "speculation.prompt_lookup_min", hint=hint, severity="warning")
