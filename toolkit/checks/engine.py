"""Will this version of the engine take these settings?"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.recipe.arguments import OWN_FLAGS, draft_slots
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.resolve import Recipe

_FLAG_VARIABLE = "SM_VLLM_"


def check_engine(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the engine's version, flags and token budget."""
    yield from _version(recipe)
    yield from _flags(recipe)
    yield from _token_budget(recipe)


def check_target(recipe: Recipe, target: ModelFacts) -> Iterator[Finding]:
    """Findings on what the engine would make of the target."""
    wanted, limit = recipe.engine.max_model_len, target.text_config.get("max_position_embeddings")
    if wanted and limit and wanted > limit:
        message = f"{wanted} tokens are more than the target's {limit} positions"
        hint = f"Set it to {limit} or less."
        yield Finding("engine.max-model-len", message, "engine.max_model_len", hint=hint)
    templated = target.tokenizer is None or target.tokenizer.has_chat_template or "chat-template" in recipe.engine.args
    if not templated:
        message = "the target's tokenizer has no chat template: vLLM refuses every chat request"
        hint = "Add chat_template.jinja to the folder; an instruction-tuned target has one."
        yield Finding("engine.chat-template", message, "target.model", hint=hint, severity="warning")


def _version(recipe: Recipe) -> Iterator[Finding]:
    if recipe.speculation is None:
        return
    method = lookup.engine(recipe.engine.name).methods[recipe.speculation.method]
    if lookup.version_key(recipe.engine.version) < lookup.version_key(method.since):
        message = f"method `{recipe.speculation.method}` needs {recipe.engine.name} {method.since} or newer"
        yield Finding("engine.version", message, "engine.version", hint=f"Set `version: {method.since}` or newer.")


def _flags(recipe: Recipe) -> Iterator[Finding]:
    for variable in recipe.engine.env:
        if variable.startswith(_FLAG_VARIABLE):
            flag = variable.removeprefix(_FLAG_VARIABLE).lower().replace("_", "-")
            message, hint = f"`{variable}` is the engine's flag `{flag}`", f"Write `{flag}` in engine.args."
            yield Finding("engine.own-flag", message, f"engine.env.{variable}", hint=hint)
    for flag in recipe.engine.args:
        if flag in OWN_FLAGS:
            hint = f"Remove it, and set {OWN_FLAGS[flag]}."
            yield Finding("engine.own-flag", f"`{flag}` is set by the toolkit", f"engine.args.{flag}", hint=hint)
        elif near := difflib.get_close_matches(flag, OWN_FLAGS, n=1, cutoff=0.9):
            message = f"`{flag}` looks like `{near[0]}`, which the toolkit sets"
            hint = f"If you mean that, remove it and set {OWN_FLAGS[near[0]]}."
            yield Finding("engine.own-flag", message, f"engine.args.{flag}", hint=hint, severity="warning")


def _token_budget(recipe: Recipe) -> Iterator[Finding]:
    engine, slots = recipe.engine, draft_slots(recipe)
    drafted = recipe.speculation.num_speculative_tokens if recipe.speculation else 0
    least = max(engine.max_num_seqs, slots + 1)
    enough = engine.max_num_seqs * (1 + drafted + slots)
    path, hint = "engine.max_num_batched_tokens", f"Set it to {enough} or more, or lower engine.max_num_seqs."
    if engine.max_num_batched_tokens < least:
        message = f"{engine.max_num_batched_tokens} tokens a step are too few, {least} is the least"
        yield Finding("engine.token-budget", message, path, hint=hint)
    elif engine.max_num_batched_tokens < enough:
        message = (
            f"{engine.max_num_seqs} requests can take {enough} tokens a step, each with {drafted} draft tokens "
            f"and {slots} slots to make the next: with {engine.max_num_batched_tokens} some of them wait"
        )
        yield Finding("engine.token-budget", message, path, hint=hint, severity="warning")
