"""Does the target work with the engine's settings, does the drafter fit it, and does it make the recipe faster?

Do both fit the memory of the instance, with a KV cache for the requests?

A wrong pair fails after half an hour, or no draft token is ever accepted.

What only an engine reads in a drafter's files is checked by the engine's own checks. Facts that are missing, because
they were curated from publications, cause no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.catalog.lookup import Instance
from toolkit.errors import ToolkitError
from toolkit.findings import Finding, Severity
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Evidence
from toolkit.sizing.fit import TENSOR_PARALLEL, Fit, fit, fits, sizable

_DRAFTER = "speculation.model"
# Kinds of rotary embeddings whose factor vLLM multiplies the positions by (0.33.0, _get_and_verify_max_len).
_SCALED = ("linear", "dynamic", "ntk", "mrope")
# Names that vLLM takes for such weights (0.33.0, override_quantization_method), besides those that begin so.
_RUN_AS = {
    "awq": ("auto_awq", "marlin", "moe_wna16", "humming"),
    "gptq": ("auto_gptq", "marlin", "moe_wna16", "humming"),
    "mxfp4": (),
    "": ("humming",),
}


def check_pair(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on the pair; empty without a drafter."""
    if recipe.speculation is None or models.drafter is None:
        return
    target, drafter = models.target, models.drafter
    read_by_engine = recipe.speculation.facts.format  # whose checks look into the drafter's files
    if not read_by_engine and not recipe.speculation.own_vocabulary:
        yield from _vocabulary(recipe, target, drafter)
    yield from _precision(recipe, drafter)


def _vocabulary(recipe: Recipe, target: ModelFacts, drafter: ModelFacts) -> Iterator[Finding]:
    drafting, key = recipe.drafting, "use_heterogeneous_vocab"
    may_differ = drafting is not None and drafting.takes(key, recipe.engine.version)
    otherwise = f" Or write `{key}: true` under `speculation`: then it drafts the tokens that both have."
    if drafter.vocab_size != target.vocab_size:
        message = f"the draft model has {drafter.vocab_size} tokens in its vocabulary, the target {target.vocab_size}"
        hint = f"Use a draft model of the same family.{otherwise if may_differ else ''}"
        yield Finding("pair.vocab-size", message, _DRAFTER, hint=hint)
    else:
        yield from _tokenizers(target, drafter, otherwise if may_differ else "")


def _tokenizers(target: ModelFacts, drafter: ModelFacts, otherwise: str) -> Iterator[Finding]:
    ours, theirs = target.tokenizer, drafter.tokenizer
    if ours is None or theirs is None:
        return
    if not ours.agrees_with(theirs):
        message = "the two tokenizers give different token ids for the same text: almost no draft would be accepted"
        yield Finding(
            "pair.tokenizer", message, _DRAFTER, hint=f"Use a draft model with the target's tokenizer.{otherwise}"
        )
    elif differing := sorted(ours.special_tokens.items() ^ theirs.special_tokens.items()):
        names = ", ".join(sorted({f"`{name}`" for name, _ in differing})[:3])
        message = f"only one of the two models has the special tokens {names}"
        hint = "Drafts may be wrong where such tokens occur. Check that both models are of the same family."
        yield Finding("pair.special-tokens", message, _DRAFTER, hint=hint, severity="info")
    if ours.chat_template_sha256 and theirs.chat_template_sha256 not in (None, ours.chat_template_sha256):
        message = "the two models have different chat templates; requests use the target's"
        hint = "Measure the acceptance length of this pair: toolkit prove."
        yield Finding("pair.chat-template", message, _DRAFTER, hint=hint, severity="info")


def _precision(recipe: Recipe, drafter: ModelFacts) -> Iterator[Finding]:
    stored = drafter.text_config.get("dtype") or drafter.text_config.get("torch_dtype")
    if recipe.engine.args.get("dtype") in ("half", "float16") and stored == "bfloat16":
        message = "the drafter is stored in bfloat16 and would run in float16, which has a smaller range"
        yield Finding("pair.dtype", message, "engine.args.dtype", hint="Use `dtype: bfloat16`.", severity="warning")


def check_target(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Findings on length, chat template and quantization."""
    yield from _length(recipe, target)
    tokenizer = target.tokenizer
    if tokenizer and not tokenizer.chat_template_sha256 and "chat-template" not in recipe.engine.args:
        message = "the target's tokenizer has no chat template: the engine would reject every chat request"
        hint = "Add chat_template.jinja to the model's folder, or use an instruction-tuned target."
        yield Finding("engine.chat-template", message, "target.model", hint=hint, severity="warning")
    yield from _quantization(recipe, target)


def _length(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    wanted, limit = recipe.engine.max_model_len, target.text_config.get("max_position_embeddings")
    overrides = recipe.engine.args.get("hf-overrides", "")
    written = overrides.get("max_position_embeddings") if isinstance(overrides, Mapping) else None
    if isinstance(written, int) and not isinstance(written, bool) and "text_config" not in target.config:
        limit = written
    # How far a model reaches that is scaled is the engine's to reckon.
    scaled = "rope_" in str(overrides) or (limit is not written and "max_position_embeddings" in str(overrides))
    kinds = target.rope_kinds
    scaled = scaled or not kinds.isdisjoint(_SCALED)
    since = recipe.engine_rules.yarn_counted_since
    own_limit = not since or lookup.older(recipe.engine.version, since)
    if own_limit and "yarn" in kinds and isinstance(limit, int):
        scaled = scaled or limit is written
        limit = max(limit, _yarn_positions(target.ropes["yarn"], limit))
    if not wanted or not isinstance(limit, int) or wanted <= limit or scaled:
        return
    message = f"{wanted} tokens are more than the target supports ({limit} positions)"
    hint, path = f"Set it to {limit} or less.", "engine.max_model_len"
    variable = recipe.engine_rules.length_variable
    if variable and recipe.engine.env.get(variable, "").strip().lower() in ("1", "true"):
        message += f", which `{variable}` allows"
        hint = f"{hint} Positions beyond it may give wrong answers, or end the engine."
        yield Finding("engine.max-model-len", message, path, hint=hint, severity="warning")
    else:
        yield Finding("engine.max-model-len", message, path, hint=hint)


def _yarn_positions(rope: Mapping[str, Any], limit: int) -> int:
    """The positions that it was trained with, which are `limit` where it does not say them, times the factor."""
    trained, factor = rope.get("original_max_position_embeddings", limit), rope["factor"]
    return int(trained * factor) if isinstance(trained, int) and isinstance(factor, int | float) else limit


def _quantization(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """A flag that contradicts the checkpoint; names such as `awq_marlin` and `auto_awq` are ways to run `awq`."""
    stored = (target.config.get("quantization_config") or target.text_config.get("quantization_config") or {}).get(
        "quant_method"
    )
    written = recipe.engine.args.get("quantization")
    wanted = written.lower() if isinstance(written, str) else "none"
    if not stored or wanted == "none" or wanted.startswith(stored) or wanted in _RUN_AS.get(stored, _RUN_AS[""]):
        return
    if stored.startswith("modelopt"):  # its own algorithm decides, whatever the flag says
        return
    message = f"the target is quantized with `{stored}`, and the flag says `{wanted}`"
    hint = "Remove the flag: the engine reads it from the target's config.json."
    if stored == "mxfp4" and target.config.get("model_type") == "gpt_oss" and _has_own_method(recipe):
        if wanted != "humming":
            return
        hint = "Remove the flag; `moe-backend: humming` runs its experts on those kernels."
    yield Finding("engine.quantization", message, "engine.args.quantization", hint=hint)


def _has_own_method(recipe: Recipe) -> bool:
    """Whether the engine takes a method of its own for gpt-oss, whatever flag is given."""
    since = recipe.engine_rules.gpt_oss_method_since
    return bool(since) and not lookup.older(recipe.engine.version, since)


_K = "speculation.num_speculative_tokens"
# The best K of one pair differs by this much between workloads (vLLM blog 2026-03-13): a smaller difference is fine.
_FAR = 3


def check_quality(recipe: Recipe) -> Iterator[Finding]:
    """Compare K with the K that had the best measured speedup at the recipe's concurrency."""
    if recipe.speculation is None or recipe.speculation.schedule:
        return
    wanted, requests = recipe.speculation.num_speculative_tokens, recipe.engine.max_num_seqs
    best = _fastest(recipe.evidence, requests)
    if best is None or best.num_speculative_tokens is None:
        return
    if abs(wanted - best.num_speculative_tokens) >= _FAR:
        message = (
            f"K={wanted}, but the best that was measured at concurrency {best.concurrency} "
            f"is K={best.num_speculative_tokens} ({best.source})"
        )
        hint = f"Set it to {best.num_speculative_tokens}"
        if recipe.drafting and recipe.drafting.takes("num_speculative_tokens_per_batch_size", recipe.engine.version):
            low = min(item.num_speculative_tokens for item in recipe.evidence if item.num_speculative_tokens)
            schedule = f"[[1, 8, {max(wanted, best.num_speculative_tokens)}], [9, {requests}, {low}]]"
            hint += f", or give a K per batch size: `num_speculative_tokens_per_batch_size: {schedule}`"
        hint += "."
        yield Finding("quality.best-k", message, _K, hint=hint, severity="warning")


def _fastest(evidence: Sequence[Evidence], requests: int) -> Evidence | None:
    measured = [
        item
        for item in evidence
        if item.speedup and item.num_speculative_tokens and item.concurrency and item.concurrency <= requests
    ]
    # Use the nearest concurrency: the best K falls as more requests share a step.
    return max(measured, key=lambda item: (item.concurrency or 0, item.speedup or 0), default=None)


_TYPES = "platform.instance_types"
_LENGTH = "engine.max_model_len"
_OFFERED = 3


def check_memory(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on each instance type; empty on a platform without instance types."""
    if not recipe.platform_rules.facts.has_instance_types:
        return
    if recipe.engine_rules.compilation and recipe.engine.max_model_len is None:
        return  # the engine's own check asks for max_model_len, for which graphs are compiled
    try:
        models, problem = sizable(models)
    except ToolkitError as error:
        yield Finding("memory.unknown", error.message, "target.model", hint=error.hint, severity="info")
        return
    if problem:
        yield Finding("memory.unknown", problem.message, "speculation.model", hint=problem.hint, severity="info")
    if recipe.leaves_instance_type_open:
        return
    try:
        for index, name in enumerate(recipe.platform.types):
            instance = recipe.platform_rules.instance(name)
            if instance and recipe.engine_rules.runs_on(instance):  # else the hardware checks report the type
                yield from _instance(recipe, models, instance, f"{_TYPES}.{index}")
    except ToolkitError as error:  # a flag's value that the memory estimate does not support
        yield Finding("memory.unknown", error.message, "engine", hint=error.hint, severity="warning")


def _instance(recipe: Recipe, models: Lock, instance: Instance, path: str) -> Iterator[Finding]:
    sized = fit(recipe, models, instance)
    size = sized.tensor_parallel
    if sized.fits and size > 1 and TENSOR_PARALLEL not in recipe.on(sized.instance).engine.args:
        unit = "logical cores" if instance.neuron_cores else "accelerators"
        message = f"{sized.instance}: the models need {size} {unit}, and the engine uses one by default"
        hint = f"Add `{TENSOR_PARALLEL}: {size}` to engine.args."
        if len(recipe.platform.types) > 1 and recipe.platform_rules.facts.has_settings_by_type:
            hint = f"For this type only: `{{type: {sized.instance}, args: {{{TENSOR_PARALLEL}: {size}}}}}`. {hint}"
        message, severity = _verdict(sized, message)
        yield Finding("memory.tensor-parallel", message, path, hint=hint, severity=severity)
    if sized.fits or (recipe.engine_rules.hardware and not sized.weights_gib):  # not sized
        return
    others = f"Cheapest types that fit: {_cheapest(recipe, models)}."
    message, severity = _verdict(sized, f"{sized.instance}: {sized.reason}")
    if sized.largest_context:
        hint = f"Set it to {sized.largest_context} or less. {others}"
        yield Finding("memory.context", message, _LENGTH, hint=hint, severity=severity)
    else:
        hint = f"{others} See: toolkit fit {recipe.path}"
        yield Finding("memory.does-not-fit", message, path, hint=hint, severity=severity)


def _verdict(sized: Fit, message: str) -> tuple[str, Severity]:
    """The message with the estimate's uncertainty, and a warning instead of an error if that could change it."""
    if not sized.doubtful:
        return message, "error"
    return f"{message} (an estimate that may be off by {sized.uncertainty_gib:.1f} GiB)", "warning"


def _cheapest(recipe: Recipe, models: Lock) -> str:
    able = [instance for instance in recipe.platform_rules.instances() if instance.accelerator]
    fitting = [item.instance for item in fits(recipe, models, able) if item.fits]
    return ", ".join(fitting[:_OFFERED]) or "none, with these settings"
