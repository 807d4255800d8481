"""Will this version of the engine take these settings, and this target?"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.checks.head import HEAD_METHODS
from toolkit.findings import Finding, Severity
from toolkit.recipe.arguments import OWN_FLAGS, draft_slots
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.resolve import Recipe

_FLAG_VARIABLE = "SM_VLLM_"
_RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_READS_HIDDEN_STATES = (*HEAD_METHODS, "dflash")
_DRAFT_MODELS = ("draft-model", "pard")
# vLLM warns below it (config/vllm.py): prompts are then read in small pieces.
_SLOW_PREFILL_TOKENS = 8192
_BUDGET = "engine.max_num_batched_tokens"


def check_engine(recipe: Recipe) -> Iterator[Finding]:
    """Findings on vLLM's version, flags, runner and token budget; nothing for another engine."""
    if recipe.on_neuron:
        return
    yield from _version(recipe)
    yield from check_flags(recipe)
    yield from _speculation_flags(recipe)
    yield from _runner(recipe)
    yield from _schedule(recipe)
    yield from _draft_tensor_parallel(recipe)
    if recipe.engine.max_num_batched_tokens is None:
        return
    if lookup.subtracts_draft_slots(recipe.engine.name, recipe.engine.version):
        yield from _subtracted_budget(recipe, recipe.engine.max_num_batched_tokens)
    else:
        yield from _token_budget(recipe, recipe.engine.max_num_batched_tokens)


def check_target(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Findings on what the engine would make of the target."""
    wanted, limit = recipe.engine.max_model_len, target.text_config.get("max_position_embeddings")
    if wanted and isinstance(limit, int) and wanted > limit:
        message = f"{wanted} tokens are more than the target's {limit} positions"
        hint = f"Set it to {limit} or less."
        yield Finding("engine.max-model-len", message, "engine.max_model_len", hint=hint)
    tokenizer = target.tokenizer
    if tokenizer and not tokenizer.chat_template_sha256 and "chat-template" not in recipe.engine.args:
        message = "the target's tokenizer has no chat template: vLLM refuses every chat request"
        hint = "Add chat_template.jinja to the folder; an instruction-tuned target has one."
        yield Finding("engine.chat-template", message, "target.model", hint=hint, severity="warning")
    if not recipe.on_neuron:
        yield from _target_architecture(recipe, target)
    yield from _quantization(recipe, target)


def _quantization(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """A flag that contradicts the checkpoint; names such as `awq_marlin` are ways to run `awq` (config/model.py)."""
    stored = (target.config.get("quantization_config") or target.text_config.get("quantization_config") or {}).get(
        "quant_method"
    )
    wanted = recipe.engine.args.get("quantization")
    if stored and isinstance(wanted, str) and not wanted.startswith(stored):
        message = f"the target is quantized with `{stored}`, which `{wanted}` contradicts"
        hint = "Remove the flag: the engine reads it from the target's config.json."
        yield Finding("engine.quantization", message, "engine.args.quantization", hint=hint)


def _target_architecture(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    engine, architectures = recipe.engine, target.config.get("architectures")
    if recipe.method not in _READS_HIDDEN_STATES or not isinstance(architectures, list) or not architectures:
        return
    named = str(architectures[0])
    if lookup.supports_eagle3(engine.name, engine.version, named) is False:
        message = f"{engine.name} {engine.version} cannot give the hidden states of a `{named}` to a head"
        hint = "Take a newer engine, or `method: draft-model`."
        yield Finding("engine.target-architecture", message, "target.model", hint=hint)
    since = lookup.engine(engine.name).multimodal_parallel_since
    parallel = lookup.engine(engine.name).methods[recipe.method].parallel_drafting
    if parallel and "vision_config" in target.config and _older(recipe, since):
        message = f"{engine.name} {engine.version} drafts in parallel for text-only targets"
        yield Finding("engine.multimodal", message, "engine.version", hint=f"Set `version: {since}` or newer.")


def _version(recipe: Recipe) -> Iterator[Finding]:
    if recipe.speculation is None:
        return
    method = lookup.engine(recipe.engine.name).methods[recipe.speculation.method]
    listed = lookup.head(recipe.speculation.drafter.written)
    if _older(recipe, method.since):
        message = f"method `{recipe.speculation.method}` needs {recipe.engine.name} {method.since} or newer"
        yield Finding("engine.version", message, "engine.version", hint=f"Set `version: {method.since}` or newer.")
    elif listed and listed.min_engine and _older(recipe, listed.min_engine):
        message = f"{listed.repo} needs {recipe.engine.name} {listed.min_engine} or newer"
        yield Finding("engine.version", message, "engine.version", hint=f"Set `version: {listed.min_engine}` or newer.")


def check_flags(recipe: Recipe) -> Iterator[Finding]:
    """Findings on flags that the toolkit sets, or that the engine does not know."""
    for variable in recipe.engine.env:
        if variable.startswith(_FLAG_VARIABLE):
            flag = variable.removeprefix(_FLAG_VARIABLE).lower().replace("_", "-")
            message, hint = f"`{variable}` is the engine's flag `{flag}`", f"Write `{flag}` in engine.args."
            yield Finding("engine.own-flag", message, f"engine.env.{variable}", hint=hint)
    for flag in recipe.engine.args:
        path = f"engine.args.{flag}"
        if flag in OWN_FLAGS:
            hint = f"Remove it, and set {OWN_FLAGS[flag]}."
            yield Finding("engine.own-flag", f"`{flag}` is set by the toolkit", path, hint=hint)
        elif near := difflib.get_close_matches(flag, OWN_FLAGS, n=1, cutoff=0.9):
            message = f"`{flag}` looks like `{near[0]}`, which the toolkit sets"
            hint = f"If you mean that, remove it and set {OWN_FLAGS[near[0]]}."
            yield Finding("engine.own-flag", message, path, hint=hint, severity="warning")
        else:
            yield from _unknown_flag(recipe, flag)


def _unknown_flag(recipe: Recipe, flag: str) -> Iterator[Finding]:
    name, version = recipe.engine.name, recipe.engine.version
    severity: Severity = "error"
    if recipe.on_neuron:  # vLLM's own command line, whose version is the first three numbers; a plugin may add to it
        name, version, severity = "vllm", ".".join(version.split(".")[:3]), "warning"
    if lookup.flag_known(name, version, flag) is not False:
        return
    near = difflib.get_close_matches(flag, lookup.flags(name, version), n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"See the flags of {name} {version}: vllm serve --help=all"
    message = f"{name} {version} has no flag `--{flag}`"
    yield Finding("engine.unknown-flag", message, f"engine.args.{flag}", hint=hint, severity=severity)


def _speculation_flags(recipe: Recipe) -> Iterator[Finding]:
    """Flags that vLLM refuses, or leaves without effect, together with speculation (config/vllm.py)."""
    if recipe.speculation is None:
        return
    args = recipe.engine.args
    if args.get("enable-lora"):
        message = "adapters change the target, the drafter knows nothing of them: acceptance falls"
        hint = "Serve fine-tunes without speculation, or measure with `toolkit prove`."
        yield Finding("engine.lora", message, "engine.args.enable-lora", hint=hint, severity="warning")
    if args.get("kv-sharing-fast-prefill"):
        message = "fast prefill with shared KV layers does not go with speculation"
        path = "engine.args.kv-sharing-fast-prefill"
        yield Finding("engine.fast-prefill", message, path, hint="Remove the flag.")


def _runner(recipe: Recipe) -> Iterator[Finding]:
    facts = lookup.engine(recipe.engine.name)
    parallel = recipe.speculation and facts.methods[recipe.method].parallel_drafting
    if parallel and recipe.engine.env.get(_RUNNER_VARIABLE, "0") not in ("0", "false", "False"):
        message = f"method `{recipe.method}` runs on the {facts.parallel_drafting_runner} model runner only"
        path = f"engine.env.{_RUNNER_VARIABLE}"
        yield Finding("engine.runner", message, path, hint="Remove it: the toolkit sets it to 0.")


def _schedule(recipe: Recipe) -> Iterator[Finding]:
    if recipe.speculation is None or not recipe.speculation.schedule:
        return
    path = "speculation.num_speculative_tokens_per_batch_size"
    since = lookup.engine(recipe.engine.name).batch_size_schedule_since
    if _older(recipe, since):
        message = f"{recipe.engine.name} knows a K per batch size from {since} on"
        yield Finding("engine.schedule", message, path, hint=f"Set `version: {since}` or newer.")
    if recipe.engine.args.get("data-parallel-size", 1) != 1:
        message = "the schedule has no effect with data parallelism"
        yield Finding("engine.schedule", message, path, hint="Remove one of the two.", severity="warning")


def _draft_tensor_parallel(recipe: Recipe) -> Iterator[Finding]:
    """Heads run on one accelerator or on all of the target's, draft models on all (config/speculative.py)."""
    if recipe.speculation is None or recipe.speculation.tensor_parallel is None:
        return
    wanted, target = recipe.speculation.tensor_parallel, recipe.engine.args.get("tensor-parallel-size", 1)
    allowed = [target] if recipe.method in _DRAFT_MODELS else [1, target]
    if wanted not in allowed:
        message = f"a `{recipe.method}` drafter cannot run on {wanted} accelerators beside a target on {target}"
        hint = f"Set it to {' or '.join(map(str, dict.fromkeys(allowed)))}, or remove it."
        path = "speculation.draft_tensor_parallel_size"
        yield Finding("engine.draft-tensor-parallel", message, path, hint=hint)


def _subtracted_budget(recipe: Recipe, budget: int) -> Iterator[Finding]:
    """Versions that take the slots of `max_num_seqs` requests off the budget of every step, whoever is scheduled."""
    engine, slots = recipe.engine, draft_slots(recipe)
    left = budget - slots * engine.max_num_seqs
    hint = f"Set it to {slots * engine.max_num_seqs + _SLOW_PREFILL_TOKENS} or more, or lower engine.max_num_seqs."
    taken = f"{engine.max_num_seqs} requests x {slots} draft slots"
    if left < max(1, engine.max_num_seqs) and slots:
        message = f"{taken} leave {left} of {budget} tokens a step"
        yield Finding("engine.token-budget", message, _BUDGET, hint=hint)
    elif left < _SLOW_PREFILL_TOKENS and slots:
        message = f"{taken} leave {left} tokens a step: prompts are read in small pieces, the first token comes late"
        yield Finding("engine.token-budget", message, _BUDGET, hint=hint, severity="warning")
    elif budget < engine.max_num_seqs:
        yield from _token_budget(recipe, budget)


def _token_budget(recipe: Recipe, budget: int) -> Iterator[Finding]:
    engine, slots = recipe.engine, draft_slots(recipe)
    drafted = recipe.speculation.num_speculative_tokens if recipe.speculation else 0
    least = max(engine.max_num_seqs, slots + 1)
    enough = engine.max_num_seqs * (1 + drafted + slots)
    hint = f"Set it to {enough} or more, or lower engine.max_num_seqs."
    if budget < least:
        message = f"{budget} tokens a step are too few, {least} is the least"
        yield Finding("engine.token-budget", message, _BUDGET, hint=hint)
    elif budget < enough:
        message = (
            f"{engine.max_num_seqs} requests can take {enough} tokens a step, each with {drafted} draft tokens "
            f"and {slots} slots to make the next: with {budget} some of them wait"
        )
        yield Finding("engine.token-budget", message, _BUDGET, hint=hint, severity="warning")


def _older(recipe: Recipe, version: str) -> bool:
    return lookup.older(recipe.engine.version, version)
