"""Does this version of vLLM accept these settings?"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.engines.arguments import check_flags
from toolkit.engines.vllm.clashes import check_clashes
from toolkit.engines.vllm.facts import facts, flag_known, flag_removed, flags, short_for, subtracts_draft_slots
from toolkit.engines.vllm.flags import COMPILING_FLAGS, draft_slots
from toolkit.engines.vllm.hidden_states import STATES_SINCE
from toolkit.engines.vllm.keys import VllmEngine
from toolkit.engines.vllm.setting_checks import check_combinations, check_settings, check_speculation
from toolkit.engines.vllm.value_checks import check_risks, check_values
from toolkit.findings import Finding, Severity
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import makes_norms

# vLLM warns below this (config/vllm.py): prompts are then processed in small chunks.
_SLOW_PREFILL_TOKENS = 8192
_BUDGET = "engine.max_num_batched_tokens"


def check_engine(recipe: Recipe) -> Iterator[Finding]:
    """Findings on version, flags, runner and token budget."""
    yield from _version(recipe)
    yield from check_flags(recipe, lambda flag: unknown_flag(flag, recipe.engine.version))
    values, combinations = [*check_values(recipe)], [*check_combinations(recipe)]
    yield from values
    yield from check_risks(recipe)
    yield from check_speculation(recipe)
    yield from check_settings(recipe)
    yield from combinations
    # A value that is none, or that the hardware does not have, clashes with nothing.
    told = {finding.path for finding in (*values, *combinations)}
    yield from (finding for finding in check_clashes(recipe) if finding.path not in told)
    yield from _warm_start(recipe)
    if recipe.engine.max_num_batched_tokens is None:
        return
    if subtracts_draft_slots(recipe.engine.version):
        yield from _subtracted_budget(recipe, recipe.engine.max_num_batched_tokens)
    else:
        yield from _token_budget(recipe, recipe.engine.max_num_batched_tokens)


def _warm_start(recipe: Recipe) -> Iterator[Finding]:
    args, path = recipe.engine.args, "engine.warm_start"
    if not VllmEngine.of(recipe.engine).warm_start:
        return
    if recipe.target.kind == "jumpstart":
        message = "JumpStart's own container starts vLLM, and takes nothing of an earlier start"
        yield Finding("engine.warm-start", message, path, hint="Remove it, or serve the model from the hub or from S3.")
        return
    compiles_by_default = recipe.platform_rules.facts.has_instance_types
    if args.get("enforce-eager") is True or not (compiles_by_default or args.keys() & {*COMPILING_FLAGS}):
        why = "`enforce-eager`" if "enforce-eager" in args else "this machine's default"
        message = f"with {why} vLLM compiles no model, so that there is nearly nothing to keep"
        hint = "Remove it, or let vLLM compile: `args: {no-enforce-eager: true}`, without `enforce-eager`."
        yield Finding("engine.warm-start", message, path, hint=hint, severity="warning")


def _version(recipe: Recipe) -> Iterator[Finding]:
    if recipe.speculation is None:
        return
    engine, drafting = recipe.engine, recipe.drafting
    if drafting is None:
        message = f"{engine.name} does not support method `{recipe.method}`"
        yield Finding("engine.method", message, "speculation.method", hint="Choose another method, or another engine.")
        return
    listed = lookup.head(recipe.drafter.model) if recipe.drafter else None
    needs = [(f"method `{recipe.method}`", drafting.since), *([(listed.repo, listed.min_engine)] if listed else [])]
    if recipe.training and recipe.training.states == "engine":
        needs.append(("`training.states: engine`", STATES_SINCE))
    if makes_norms(recipe):
        needs.append(("`training.norms`", facts().head_norms_since))
    if old := [(what, since) for what, since in needs if since and lookup.older(engine.version, since)]:
        what, since = old[0]
        message = f"{what} needs {engine.name} {since} or newer"
        yield Finding("engine.version", message, "engine.version", hint=f"Set `version: {since}` or newer.")


def unknown_flag(flag: str, version: str, severity: Severity = "error") -> Iterator[Finding]:
    """A finding if that version of vLLM does not have the flag; none for an unknown version."""
    if flag_known(version, flag) is not False:
        return
    if whole := short_for(version, flag):
        message = f"`{flag}` is short for `{whole}`: vllm {version} takes it, but the checks know the whole name only"
        hint = f"Write `{whole}`, which a flag of a later version cannot make ambiguous."
        yield Finding("engine.unknown-flag", message, f"engine.args.{flag}", hint=hint, severity="warning")
        return
    near = difflib.get_close_matches(flag, flags(version), n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"See the flags of vllm {version}: vllm serve --help=all"
    message = f"vllm {version} has no flag `--{flag}`"
    removed = flag_removed(flag)
    if removed and not lookup.older(version, removed):
        message, hint = f"{message}: {removed} removed it", "Delete it, or see that version's release notes."
    yield Finding("engine.unknown-flag", message, f"engine.args.{flag}", hint=hint, severity=severity)


def _subtracted_budget(recipe: Recipe, budget: int) -> Iterator[Finding]:
    """Findings for versions that always reserve the draft slots of `max_num_seqs` requests in every step's budget."""
    engine, slots = recipe.engine, draft_slots(recipe)
    for_prompts = budget - slots * engine.max_num_seqs
    hint = f"Set it to {slots * engine.max_num_seqs + _SLOW_PREFILL_TOKENS} or more, or lower engine.max_num_seqs."
    taken = f"{engine.max_num_seqs} requests x {slots} draft slots"
    if for_prompts < max(1, engine.max_num_seqs) and slots:
        message = f"{taken} leave {for_prompts} of {budget} tokens per step for prompts"
        yield Finding("engine.token-budget", message, _BUDGET, hint=hint)
    elif for_prompts < _SLOW_PREFILL_TOKENS and slots:
        message = f"{taken} leave {for_prompts} tokens per step for prompts, which are then processed in small chunks"
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
        message = f"{budget} tokens per step are too few: the minimum is {least}"
        yield Finding("engine.token-budget", message, _BUDGET, hint=hint)
    elif budget < enough:
        message = (
            f"{engine.max_num_seqs} requests can take {enough} tokens a step, each with {drafted} draft tokens "
            f"and {slots} slots to make the next: with {budget} some of them wait"
        )
        yield Finding("engine.token-budget", message, _BUDGET, hint=hint, severity="warning")
