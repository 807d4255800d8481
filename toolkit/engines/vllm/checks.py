"""Does this version of vLLM accept these settings, and which does it refuse together?

Its validators' own conditions say what it refuses together (catalog/engines/vllm/clashes.json), as far as they are
about settings alone.
"""

from __future__ import annotations

import difflib
import json
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolkit.catalog import lookup
from toolkit.catalog.lookup import older, read
from toolkit.engines.arguments import check_flags
from toolkit.engines.vllm.facts import entry, facts, flag_known, flag_removed, flags, short_for, subtracts_draft_slots
from toolkit.engines.vllm.fields import SWITCHES, as_number, flag_of, settings
from toolkit.engines.vllm.flags import COMPILING_FLAGS, draft_slots
from toolkit.engines.vllm.hidden_states import STATES_SINCE
from toolkit.engines.vllm.keys import VllmEngine
from toolkit.engines.vllm.setting_checks import check_combinations, check_settings, check_speculation, model_runner
from toolkit.engines.vllm.value_checks import check_risks, check_values, has_own_image, unmade_classes
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
    yield from (finding for finding in _check_clashes(recipe) if finding.path not in told)
    yield from _warm_start(recipe)
    yield from check_whole_prompts(recipe, "engine.token-budget")
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


def check_whole_prompts(recipe: Recipe, code: str) -> Iterator[Finding]:
    """Without chunked prefill, a step must be able to process the longest request (vLLM, config/scheduler.py)."""
    flags, tokens, length = recipe.flags, recipe.engine.max_num_batched_tokens, recipe.engine.max_model_len
    whole = flags.get("no-enable-chunked-prefill") is True or flags.get("enable-chunked-prefill") is False
    if whole and tokens and length and tokens < length:
        message = (
            f"without chunked prefill a step must process whole requests of {length} tokens, but is limited to {tokens}"
        )
        yield Finding(code, message, _BUDGET, hint=f"Set it to {length} or more, or remove it.")


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


_FILE = "engines/vllm/clashes.json"
# Not settings: which runner vLLM takes, where that is sure; and whether it is its build for NVIDIA's GPUs, or for CPUs.
_RUNNER, _PLATFORM = "runner V2", "CUDA or CPU"
_UNKNOWN = object()
_Atom = Sequence[Any]
"""A setting, a comparison, and a constant or (`{"of": setting}`) another setting."""

_OF_NUMBERS = ("<", "<=", ">", ">=", "multiple of", "no multiple of")
_HOLDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "on": lambda value, _: bool(value),
    "off": lambda value, _: not value,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, several: value in several,
    "not in": lambda value, several: value not in several,
    "multiple of": lambda value, other: other and value % other == 0,
    "no multiple of": lambda value, other: other and value % other != 0,
}


def _check_clashes(recipe: Recipe) -> Iterator[Finding]:
    """Findings on settings that are refused together, as they are given or by default."""
    found = [*_found(recipe)]
    # What a runner does not have at all, it does not have with other settings either.
    lacking = {finding.path for finding, of_runner in found if of_runner}
    yield from (finding for finding, of_runner in found if of_runner or finding.path not in lacking)


def _found(recipe: Recipe) -> Iterator[tuple[Finding, bool]]:
    """The findings, each with whether it is about the model runner."""
    version = _known(recipe.engine.version)
    set_by, values = _given(recipe, version)
    for says in read(_FILE)["clashes"]:
        found = entry(_FILE, "clashes", says, version) or {"ways": (), "defaults": {}}
        all_values = {**found["defaults"], **values}
        for way in found["ways"]:
            named = [name for name in dict.fromkeys(name for atom in way for name in _named(atom)) if name != _PLATFORM]
            written = [name for name in named if name in set_by]
            ours = [name for name in written if set_by[name][0].partition(".")[0] in recipe.engine.args]
            if ours and all(_holds(atom, all_values) for atom in way):
                others = [name for name in named if name not in set_by]
                first, *more = (_shown(name, set_by, all_values, version) for name in (*written, *others))
                shown = f"{first} with {' and '.join(more)}" if more else first
                of = version if version == recipe.engine.version else f"{version} (the last known before yours)"
                message = f"vLLM {of} refuses {shown}: {says.removeprefix('Error: ')}"
                # In the order of conditions, what needs something of the others stands behind them.
                changed = [name for name in ours if all_values[name] != found["defaults"].get(name, _UNKNOWN)]
                key = set_by[(changed or ours)[-1]][0]
                unset = (name for name in others if name != _RUNNER)
                absent = next((name for name in unset if all_values[name] is None or all_values[name] is False), "")
                hint = f"Change {' or '.join(f'`{set_by[name][0]}`' for name in ours)}." if ours[1:] else "Remove it."
                if absent:
                    hint = f"Add `{flag_of(absent, version)}`, or remove `{key}`."
                yield Finding("engine.combination", message, f"engine.args.{key}", hint=hint), _RUNNER in named
                break


def _known(version: str) -> str:
    """The version, or the last before it whose conditions were read; itself where there is none."""
    return next((one for one in reversed(read(_FILE)["versions"]) if not older(version, one)), version)


def _given(recipe: Recipe, version: str) -> tuple[Mapping[str, tuple[str, Any]], Mapping[str, Any]]:
    """The recipe's settings, each with the key that sets it; and their values, with what else conditions are about."""
    unmade = unmade_classes(recipe)
    given = [
        (name, f"{flag}{key}", inner)
        for flag, value in recipe.flags.items()
        if value != []  # which is no argument
        for name, key, inner in settings(flag, value, version)
        if name.partition(".")[0] not in unmade
    ]
    times = Counter(name for name, _, _ in given)
    set_by = {name: (key, value) for name, key, value in given}
    # Of one that is set twice, the order of variables decides.
    values = {name: value if times[name] == 1 else _UNKNOWN for name, (_, value) in set_by.items()}
    if runner := model_runner(recipe):
        values[_RUNNER] = runner == "V2"
    values[_PLATFORM] = _UNKNOWN if has_own_image(recipe) else True
    return set_by, values


def _shown(name: str, set_by: Mapping[str, tuple[str, Any]], values: Mapping[str, Any], version: str) -> str:
    if name == _RUNNER:
        return f"the model runner {'V2' if values[name] else 'V1'}"
    key = set_by[name][0].removeprefix("no-") if name in set_by else flag_of(name, version)
    return f"`{key}: {json.dumps(values[name])}`"


def _named(atom: _Atom) -> Iterator[str]:
    yield atom[0]
    if isinstance(atom[2], Mapping):
        yield atom[2]["of"]


def _holds(atom: _Atom, values: Mapping[str, Any]) -> bool:
    """Whether it does; not where a value is not known, or is of another kind than what it is compared with."""
    name, comparison, other = atom
    if any(values.get(one, _UNKNOWN) is _UNKNOWN for one in _named(atom)):
        return False
    value, other = values[name], values[other["of"]] if isinstance(other, Mapping) else other
    if comparison in ("on", "off"):
        value = SWITCHES.get(value.lower(), value) if isinstance(value, str) else value
    elif comparison in _OF_NUMBERS or isinstance(other, int | float):
        value, other = (as_number(one) if isinstance(one, str) else one for one in (value, other))
    try:
        return _HOLDS[comparison](value, other)
    except TypeError:
        return False
