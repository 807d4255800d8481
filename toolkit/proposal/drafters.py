"""What may draft for a target, the best first. Reads the catalogue and the toolkit's own recipes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from typing import Any

from toolkit.catalog import lookup, methods
from toolkit.catalog.lookup import Head
from toolkit.catalog.methods import Method
from toolkit.checks.listed import same_model
from toolkit.engines import registry as engine_registry
from toolkit.errors import ToolkitError
from toolkit.loading import load
from toolkit.proposal.model import Drafter, with_default_k
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.known import catalogue, catalogue_dir, known_model, known_models
from toolkit.recipe.lock import read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.sizing import weights
from toolkit.sizing.fit import OWN_LAYERS

# A draft model costs a pass for each token: one of more than an eighth of the target's size rarely pays. With experts
# it passes through few of its weights, and all of them stay in memory beside the target's. Of several,
# the nearest to a 25th comes first: AWS's study of Qwen3 32B has more from 1.7B than from 0.6B, whose drafts are worse.
_LARGEST_DRAFT_MODEL, _USUAL_DRAFT_MODEL = 1 / 8, 1 / 25
_SIZES = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
# A head of which nobody tells with what K it was served comes after layers that the target itself has.
_KINDS = ("head", "target", "untried head", "model", "text")
# What vLLM 0.33 loads such layers from (model_executor/models/*_mtp.py).
_OWN_TENSOR = re.compile(r"mtp|nextn|eh_proj")


def drafters(
    target: ModelFacts, found: Sequence[Drafter] = (), context: int | None = None, engine: str = ""
) -> list[Drafter]:
    """All that may draft for the target, the best first; `found` are drafters of the hub, which come after ours.

    `engine` is the default one unless it is named.
    """
    engine = engine or lookup.default_engine()
    listed = [*_heads(target), *_own_layers(target, engine), *_smaller_models(target), *_text(engine)]
    ours = list(_with_recipes(target, listed, engine))
    known = {(drafter.method, (drafter.model or "").lower()) for drafter in ours}
    new = [drafter for drafter in found if (drafter.method, (drafter.model or "").lower()) not in known]
    return sorted([*ours, *new], key=lambda drafter: _rank(drafter, target, context))


def relatives(target: ModelFacts) -> list[str]:
    """Public models with exactly the sizes of a target that is not one itself: it may be a fine-tune of them."""
    sizes = _sizes(target)
    if known_model(target.model) or None in (sizes["hidden_size"], sizes["num_hidden_layers"]):
        return []
    return [facts.model for facts in known_models().values() if _sizes(facts) == sizes]


def head_facts(target: ModelFacts, model: str, source: str) -> ModelFacts:
    """What is known of a head of which no file was read: it reads this target's hidden states and vocabulary."""
    known = known_model(model)
    if known:
        return known
    config = {"hidden_size": target.hidden_size, "vocab_size": target.vocab_size}
    unverified = ("hidden_size and vocab_size are those of the target", "its other files were not read")
    return ModelFacts(model, source, config, None, None, partial=True, unverified=unverified)


def recipes_for(target: ModelFacts) -> list[str]:
    """Names of the toolkit's own recipes for the target, on any engine."""
    return [name for name in catalogue() if _is_for(name, target)]


def _is_for(name: str, target: ModelFacts) -> bool:
    lock = read_lock(catalogue_dir() / f"{name}.lock.json")
    return lock is not None and same_model(lock.target.model) == same_model(target.model)


def _rank(drafter: Drafter, target: ModelFacts, context: int | None) -> tuple[Any, ...]:
    method, length = methods.method(drafter.method), context or 0
    too_long = bool(drafter.longest_context and length > drafter.longest_context)
    too_short = bool(drafter.shortest_context and length < drafter.shortest_context)
    tried = bool(drafter.recipe or drafter.served)
    order = [item.name for item in methods.methods()].index(method.spelling_of or method.name)
    return (
        not drafter.settings,  # what is compiled in is best not guessed
        _KINDS.index(method.kind if tried or method.kind != "head" else "untried head"),
        not drafter.exact,
        too_long or too_short,
        not tried,
        not drafter.recipe,
        not method.parallel,
        order,
        _unusual_size(drafter, target) if method.kind == "model" else 0.0,
        drafter.model or "",
    )


def _unusual_size(drafter: Drafter, target: ModelFacts) -> float:
    """How far a draft model's size is from the usual share of the target's, 0 where that cannot be told."""
    sizes = (_active_bytes(drafter.facts) if drafter.facts else 0, _active_bytes(target))
    return abs(log(sizes[0] / sizes[1] / _USUAL_DRAFT_MODEL)) if all(sizes) else 0.0


def _heads(target: ModelFacts) -> Iterator[Drafter]:
    """The catalogue's drafters of the target, of the same model in another precision, or of one with its sizes."""
    wanted = same_model(target.model)
    near = {same_model(name) for name in relatives(target)}
    for head in lookup.heads():
        trained_for = same_model(head.target)
        if trained_for == wanted or trained_for in near:
            yield from _head(target, head, exact=trained_for == wanted)


def _head(target: ModelFacts, head: Head, *, exact: bool) -> Iterator[Drafter]:
    method = methods.method(head.method)
    facts = known_model(head.repo) if method.kind == "model" else head_facts(target, head.repo, head.source)
    if facts is None:
        return
    tokens, why = _tokens(head, method)
    about = "trained for this model" if exact else f"trained for {head.target}, which has the same sizes"
    if method.kind == "model":
        about = f"a small model with the tokens of {head.target}"
    most = max(head.acceptance, key=lambda item: item.acceptance_length, default=None)
    measured = [f"published: {most.acceptance_length:g} tokens a step ({most.workload}, K={most.k})"] if most else []
    cautions = [head.note] if head.unverified else []
    cautions += [] if head.commercial else [f"its licence, {head.license}, forbids commercial use"]
    yield Drafter(
        head.method,
        tokens,
        "; ".join([about, *measured, *cautions]),
        why,
        head.repo,
        facts,
        exact,
        served=head.served,
        longest_context=head.recommended_max_context,
        shortest_context=head.min_context,
    )


def _tokens(head: Head, method: Method) -> tuple[int, str]:
    """K of a listed drafter, and where that comes from."""
    if head.card_k:
        depth = f", trained for {head.trained_depth}" if head.trained_depth else ""
        return head.card_k, f"as published: {head.source.partition('; commit:')[0]}{depth}"
    default = method.default_num_speculative_tokens
    if head.trained_depth and head.trained_depth < default:
        return head.trained_depth, "as many as it was trained for"
    return default, f"the default of {method.name}: no K of its own is known"


def _own_layers(target: ModelFacts, engine: str) -> Iterator[Drafter]:
    """Methods that draft with layers of the target itself (MTP), if its config.json has them."""
    config = {**target.config, **target.text_config}
    names = {str(config.get("model_type")), str(target.config.get("model_type"))}
    names |= {str(name) for name in target.config.get("architectures") or ()}
    counts = [config[key] for key in OWN_LAYERS if isinstance(config.get(key), int)]
    if counts and not any(counts):
        return
    for method in methods.methods():
        drafting = method.engines.get(engine)
        if method.drafter != "optional" or drafting is None or drafting.missing(config):
            continue
        if names & set(drafting.targets) and not (method.kind == "target" and _left_out(target)):
            layers = f"{counts[0]} of its own layers" if counts else "layers of its own"
            own = with_default_k(method, f"the model drafts with {layers}, no second model is needed")
            yield replace(own, **_published_k(target, method))


def _left_out(target: ModelFacts) -> bool:
    """Whether the checkpoint has no tensor of drafting layers, as quantized copies often have none."""
    return target.tensors is not None and not any(_OWN_TENSOR.search(name) for name in target.tensors)


def _published_k(target: ModelFacts, method: Method) -> dict[str, Any]:
    """K of a target that drafts with its own layers, and where that comes from; empty where nobody has published it."""
    for one in lookup.own_layers():
        if same_model(one.target) == same_model(target.model) and one.method == method.name:
            return {"tokens": one.tokens, "tokens_why": f"as published: {one.source}"}
    return {}


def _smaller_models(target: ModelFacts) -> Iterator[Drafter]:
    """Known models of the same maker and vocabulary that are much smaller."""
    size = _active_bytes(target)
    for method in methods.methods():
        if method.kind != "model" or method.mask_token:
            continue
        for facts in (one for one in known_models().values() if size and _same_family(one, target)):
            small = 0 < _active_bytes(facts) <= size * _LARGEST_DRAFT_MODEL
            resident = _resident_bytes(facts) <= _resident_bytes(target) * _LARGEST_DRAFT_MODEL
            if small and resident:
                why = f"a small model of the same family, {facts.vocab_size:,} tokens in its vocabulary too"
                yield with_default_k(method, why, facts)


def _same_family(drafter: ModelFacts, target: ModelFacts) -> bool:
    makers = {facts.model.partition("/")[0].lower() for facts in (drafter, target)}
    types = {str(facts.config.get("model_type")).partition("_")[0] for facts in (drafter, target)}
    generates = str((drafter.config.get("architectures") or [""])[0]).endswith("ForCausalLM")
    return len(makers) == len(types) == 1 and generates and drafter.vocab_size == target.vocab_size


def _text(engine: str) -> Iterator[Drafter]:
    """Methods that need no model."""
    for method in methods.methods():
        drafting = method.engines.get(engine)
        if method.kind == "text" and drafting and not drafting.packages:
            why = "repeats what stands in the prompt: any model can, and it pays where answers quote their prompt"
            yield with_default_k(method, why)


def _with_recipes(target: ModelFacts, listed: Iterable[Drafter], engine: str) -> Iterator[Drafter]:
    """The drafters; those of a recipe that comes with the toolkit have its K and engine version."""
    recipes = _recipes(target, engine)
    ours = {(recipe.method, str(recipe.drafter or "").lower()): (name, recipe) for name, recipe in recipes}
    seen = set()
    for drafter in listed:
        key = (drafter.method, (drafter.model or "").lower())
        if key in seen:
            continue
        seen.add(key)
        yield _as_in(drafter, *ours[key]) if key in ours else drafter


def _as_in(drafter: Drafter, name: str, recipe: Recipe) -> Drafter:
    assert recipe.speculation
    tokens = recipe.speculation.num_speculative_tokens
    why = drafter.tokens_why if tokens == drafter.tokens else f"as in the toolkit's own recipe {name}"
    known = replace(drafter, recipe=name, version=recipe.engine.version, tokens=tokens, tokens_why=why)
    return replace(known, settings=_settings(recipe)) if recipe.engine_rules.compilation else known


def _settings(recipe: Recipe) -> Mapping[str, Any]:
    """What the recipe says of its engine's shapes and flags."""
    engine = recipe.engine
    lengths = {key: getattr(engine, key) for key in ("max_model_len", "max_num_seqs", "max_num_batched_tokens")}
    settings = {**lengths, "args": dict(engine.args), "env": dict(engine.env)}
    return {key: value for key, value in settings.items() if value}


def _recipes(target: ModelFacts, engine: str) -> Iterator[tuple[str, Recipe]]:
    """The toolkit's own recipes for the target, on the hardware of that engine."""
    for name in recipes_for(target):
        recipe = load(name)
        types = [recipe.platform_rules.instance(item) for item in recipe.platform.types]
        fitting = {engine_registry.engine_for(item) for item in types if item} or {recipe.engine.name}
        if engine in fitting:
            yield name, recipe


def _active_bytes(facts: ModelFacts) -> float:
    """Size of the weights that a token passes through, 0 where it cannot be told; fewer than all with experts."""
    try:
        return weights.active_bytes(facts)
    except ToolkitError:
        return facts.weight_bytes or 0


def _resident_bytes(facts: ModelFacts) -> int:
    """Size of all weights, 0 where it cannot be told."""
    try:
        return weights.stored_bytes(facts)
    except ToolkitError:
        return 0


def _sizes(facts: ModelFacts) -> Mapping[str, Any]:
    return {key: facts.text_config.get(key) for key in _SIZES}
