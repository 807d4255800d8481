"""Will this version of vLLM take these settings?"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.engines.flag_checks import check_flags
from toolkit.engines.vllm.facts import facts, flag_known, flags, subtracts_draft_slots
from toolkit.engines.vllm.speculation import draft_slots
from toolkit.findings import Finding, Severity
from toolkit.recipe.resolve import Recipe

_RUNNER_VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
_DRAFT_MODELS = ("draft-model", "pard")
# vLLM warns below it (config/vllm.py): prompts are then read in small pieces.
_SLOW_PREFILL_TOKENS = 8192
_BUDGET = "engine.max_num_batched_tokens"


def check_engine(recipe: Recipe) -> Iterator[Finding]:
    """Findings on version, flags, runner and token budget."""
    yield from _version(recipe)
    yield from check_flags(recipe, lambda flag: unknown_flag(recipe, flag, recipe.engine.version))
    yield from _speculation_flags(recipe)
    yield from _runner(recipe)
    yield from _schedule(recipe)
    yield from _draft_tensor_parallel(recipe)
    if recipe.engine.max_num_batched_tokens is None:
        return
    if subtracts_draft_slots(recipe.engine.version):
        yield from _subtracted_budget(recipe, recipe.engine.max_num_batched_tokens)
    else:
        yield from _token_budget(recipe, recipe.engine.max_num_batched_tokens)


def _version(recipe: Recipe) -> Iterator[Finding]:
    if recipe.speculation is None:
        return
    method = facts().methods[recipe.speculation.method]
    listed = lookup.head(recipe.speculation.drafter.written)
    if _older(recipe, method.since):
        message = f"method `{recipe.speculation.method}` needs {recipe.engine.name} {method.since} or newer"
        yield Finding("engine.version", message, "engine.version", hint=f"Set `version: {method.since}` or newer.")
    elif listed and listed.min_engine and _older(recipe, listed.min_engine):
        message = f"{listed.repo} needs {recipe.engine.name} {listed.min_engine} or newer"
        yield Finding("engine.version", message, "engine.version", hint=f"Set `version: {listed.min_engine}` or newer.")


def unknown_flag(recipe: Recipe, flag: str, version: str, severity: Severity = "error") -> Iterator[Finding]:
    """A finding where vLLM's command line of that version has no such flag; nothing of a version that is not known."""
    if flag_known(version, flag) is not False:
        return
    near = difflib.get_close_matches(flag, flags(version), n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"See the flags of vllm {version}: vllm serve --help=all"
    message = f"vllm {version} has no flag `--{flag}`"
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
    known = facts()
    parallel = recipe.speculation and known.methods[recipe.method].parallel_drafting
    if parallel and recipe.engine.env.get(_RUNNER_VARIABLE, "0") not in ("0", "false", "False"):
        message = f"method `{recipe.method}` runs on the {known.parallel_drafting_runner} model runner only"
        path = f"engine.env.{_RUNNER_VARIABLE}"
        yield Finding("engine.runner", message, path, hint="Remove it: the toolkit sets it to 0.")


def _schedule(recipe: Recipe) -> Iterator[Finding]:
    if recipe.speculation is None or not recipe.speculation.schedule:
        return
    path = "speculation.num_speculative_tokens_per_batch_size"
    since = facts().batch_size_schedule_since
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
