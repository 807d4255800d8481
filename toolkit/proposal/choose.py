"""Choose drafter, engine version, limits and instance type so that no check finds an error."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

from toolkit import registry
from toolkit.catalog import lookup, methods
from toolkit.catalog.lookup import Instance
from toolkit.checks.run import findings_on
from toolkit.engines import registry as engine_registry
from toolkit.engines.arguments import versions
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.loading import complete
from toolkit.proposal.drafters import drafters
from toolkit.proposal.hardware import Offer, engine_for, groups, offers
from toolkit.proposal.model import Choice, Drafter, Goal, Proposal, Wishes
from toolkit.proposal.own_head import choices as own_head_choices
from toolkit.proposal.own_head import own_head
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.load import LoadedRecipe
from toolkit.recipe.recipe import EngineRules, Recipe
from toolkit.recipe.section import recipe_name
from toolkit.sizing.fit import TENSOR_PARALLEL

_USUAL_CONTEXT, _CONTEXT_OF_THIS_MACHINE = 32_768, 4096
_REQUESTS: Mapping[Goal, int] = {"latency": 32, "throughput": 128}
_TOKENS_PER_STEP = (8192, 16_384, 32_768, 65_536)
_OTHERS, _OTHER_VERSIONS = 3, 2
_ENGINE_KEYS = ("name", "version", "compile", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "args", "env")
_HOW: Mapping[tuple[str, bool], str] = {
    ("head", True): "a small head on the model drafts all K tokens in one pass",
    ("head", False): "a small head on the model drafts one token after the other",
    ("target", True): "layers of the model itself draft, so that no second model is needed",
    ("target", False): "layers of the model itself draft, so that no second model is needed",
    ("model", True): "a small model drafts all K tokens in one pass",
    ("model", False): "a small model drafts one token after the other",
    ("text", False): "drafts what came before in the text: any model can; it pays where answers repeat their prompt",
}
# Which of these fits is tried out: version, instance type and tokens per step follow one another.
_SETTLED_LATER = ("memory.", "sagemaker.", "kubernetes.", "engine.token-budget")
# Warnings with which nothing is proposed where a pair is compiled for long before it shows whether it works.
_DOUBTS = (".target", ".unverified")


@dataclass(frozen=True)
class _Draft:
    """A recipe that is being made: its data, and the folder from which its paths count."""

    data: Mapping[str, Any]
    folder: Path

    def having(self, section: str, **values: Any) -> _Draft:
        """With these values in a section; those that are None are left out."""
        written = {key: value for key, value in values.items() if value is not None}
        return replace(self, data={**self.data, section: {**self.data.get(section, {}), **written}})

    def recipe(self) -> Recipe:
        """The complete recipe. Raises pydantic's ValidationError for values that no recipe may have."""
        file = registry.recipe_schema().model_validate(self.data)
        return complete(LoadedRecipe(file, self.folder / "recipe.yaml", {}))


class _Unfit(Exception):
    """This drafter does not work here; the reason is its text."""


def propose(wishes: Wishes, target: ModelFacts, able: Sequence[Drafter], folder: Path) -> Proposal:
    """A recipe with the first of the drafters that all checks accept.

    `target.model` is how a recipe in `folder` names the model. Raises ToolkitError with the reason for each drafter if
    none is accepted.
    """
    wanted = _of_method(wishes, target, able)
    reasons: dict[str, str] = {}
    for drafter, types in product(wanted, groups(wishes, target)):
        try:
            proposal = _with_drafter(wishes, target, drafter, types, folder)
        except _Unfit as error:
            reasons.setdefault(drafter.name, str(error))
            continue
        name = recipe_name(target.model.rstrip("/").rpartition("/")[2]) or "my-model"
        training = own_head(drafter, proposal, folder, name)
        recipe = {**proposal.recipe, "name": name, "training": training} if training else proposal.recipe
        choices = [*_drafting(drafter, able), *own_head_choices(training), *proposal.choices]
        choices.sort(key=lambda choice: _position(choice.key))
        others = [f"{name}: {reason}" for name, reason in reasons.items() if name != drafter.name]
        return replace(proposal, recipe=_in_order(recipe), choices=choices, notes=tuple(others[:_OTHERS]))
    message = "\n  ".join([f"no recipe for {wishes.model} passes the checks", *_by_reason(reasons)])
    raise ToolkitError(message, hint=_way_out(wishes, target))


def _by_reason(reasons: Mapping[str, str]) -> list[str]:
    """A line for each reason, with the drafters that it is the reason for."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [f"{', '.join(drafters)}: {reason}" for reason, drafters in names.items()]


def _position(key: str) -> int:
    """The place of a choice in the recipe; drafting comes before the engine, the platform last."""
    section, _, name = key.partition(".")
    engine = {name: number for number, name in enumerate(_ENGINE_KEYS)}
    return {"speculation": -1, "platform": len(engine)}.get(section, engine.get(name.partition(".")[0], -1))


def _of_method(wishes: Wishes, target: ModelFacts, able: Sequence[Drafter]) -> Sequence[Drafter]:
    """The drafters of the method that is wished. Raises ToolkitError if there is none."""
    method = methods.method(wishes.method) if wishes.method else None
    matching = [drafter for drafter in able if method is None or drafter.method in (method.name, method.spelling_of)]
    if matching:
        return matching
    drafts = f"drafter of method `{wishes.method}`" if method else "drafter"
    on = f" on {wishes.hardware}" if wishes.hardware else ""
    known = f"Known for it{on}: {_names(able)}. Without --method the recipe says how to train a head of your own."
    hint = known if able else _elsewhere(wishes, target)
    raise ToolkitError(f"no {drafts} is known for {wishes.model}{on}", hint=hint)


def _names(able: Sequence[Drafter]) -> str:
    return ", ".join(dict.fromkeys(drafter.method for drafter in able))


def _elsewhere(wishes: Wishes, target: ModelFacts) -> str:
    """The command without the hardware: on a GPU every model has a drafter, if only the text itself."""
    where = ["--platform", wishes.platform] if wishes.platform != Wishes.platform else []
    command = shlex.join(["toolkit", "new", wishes.model, *where])
    return f"Elsewhere than on {wishes.hardware} it can draft with {_names(drafters(target))}: {command}"


def _way_out(wishes: Wishes, target: ModelFacts) -> str:
    if wishes.max_price is not None:
        return f"Raise --max-price {wishes.max_price:g}, or leave it out to see what there is."
    if wishes.hardware:
        return _elsewhere(wishes, target)
    return "Try another --platform, a smaller --context, or --method ngram, which needs no second model."


def _with_drafter(
    wishes: Wishes, target: ModelFacts, drafter: Drafter, types: Sequence[Instance], folder: Path
) -> Proposal:
    lock = Lock(target, drafter.facts)
    draft, choices = _first(wishes, target, drafter, types, folder)
    draft, version = _version(draft, lock, drafter)
    untried = engine_for(wishes) != lookup.default_engine() and not drafter.recipe
    found = findings_on(draft.recipe(), lock) if untried else ()
    doubts = (item for item in found if item.code.endswith(_DOUBTS))
    if doubt := next(doubts, None):
        raise _Unfit(doubt.message)
    if draft.recipe().engine_rules.compilation is None:
        draft, budget = _token_budget(draft, lock)
        choices.append(budget)
    if not types:
        if wrong := next(_errors(draft, lock), None):
            raise _Unfit(wrong.message)
        return Proposal(draft.data, (version, *choices), lock)
    draft, instance = _instance(draft, lock, wishes, types)
    return Proposal(draft.data, (version, *choices, *instance), lock)


def _first(
    wishes: Wishes, target: ModelFacts, drafter: Drafter, types: Sequence[Instance], folder: Path
) -> tuple[_Draft, list[Choice]]:
    """The recipe without what is found by trying: version, token budget, instance type."""
    name = recipe_name(f"{target.model.rstrip('/').rpartition('/')[2]}-{drafter.method}")
    speculation = {"method": drafter.method, "model": drafter.model, "num_speculative_tokens": drafter.tokens}
    platform = {"name": wishes.platform, "region": wishes.region}
    draft = _Draft({"name": name, "target": {"model": target.model}}, folder)
    draft = draft.having("speculation", **speculation).having("platform", **platform)
    # The largest type, with which the recipe can be read until the right one is found.
    largest = max(types, key=lambda item: item.neuron_cores).name if types else None
    draft = draft.having("platform", instance_types=[largest] if largest else None)
    draft, choices = _limits(draft, wishes, target, _on_these(drafter, types))
    if (engine := engine_for(wishes)) != lookup.default_engine():
        why = f"runs on {types[0].accelerator}: the newest of AWS's engines with the method"
        why += "" if drafter.recipe else "; unproven, as nobody has published this pair there"
        draft, choices = draft.having("engine", name=engine), [Choice("engine.name", engine, why), *choices]
        draft, more = _compiled_at_start(draft, Lock(target, drafter.facts))
        choices += more
    return draft, choices


def _on_these(drafter: Drafter, types: Sequence[Instance]) -> Drafter:
    """Without the split of the toolkit's own recipe where none of the types has that many cores."""
    args = drafter.settings.get("args", {}) if drafter.settings else {}
    if args.get(TENSOR_PARALLEL, 0) <= max((item.neuron_cores for item in types), default=0):
        return drafter
    rest = {flag: value for flag, value in args.items() if flag != TENSOR_PARALLEL}
    return replace(drafter, settings={**drafter.settings, "args": rest})


def _limits(draft: _Draft, wishes: Wishes, target: ModelFacts, drafter: Drafter) -> tuple[_Draft, list[Choice]]:
    """The longest request and the requests at once: as wished, as in the toolkit's own recipe, or the usual ones."""
    rules: EngineRules = engine_registry.engine_rules(engine_for(wishes))
    published = rules.compilation.published(drafter.method) if rules.compilation else None
    if drafter.settings:
        own = {**drafter.settings, **({"max_model_len": wishes.context} if wishes.context else {})}
        why = f"as in the toolkit's own recipe {drafter.recipe}"
        flat = {key: value for key, value in own.items() if not isinstance(value, Mapping)}
        flat |= {f"args.{flag}": value for flag, value in own.get("args", {}).items()}
        return draft.having("engine", **own), [Choice(f"engine.{key}", value, why) for key, value in flat.items()]
    rented = registry.rules_of(wishes.platform).facts.has_instance_types
    usual = published.max_model_len if published else _USUAL_CONTEXT if rented else _CONTEXT_OF_THIS_MACHINE
    context = _context(wishes, target, usual, "; compiled in, and longer costs more" if published else "")
    requests = _requests(wishes)
    if published:
        why = f"requests decoded together, compiled in; {published.about}"
        requests = Choice(requests.key, published.max_num_seqs, why)
    return draft.having("engine", max_model_len=context.value, max_num_seqs=requests.value), [context, requests]


def _compiled_at_start(draft: _Draft, lock: Lock) -> tuple[_Draft, list[Choice]]:
    """With `compile: at-start` where that mends an error: nothing can compile for the engine beforehand."""
    at_start = draft.having("engine", compile="at-start")
    left = {item.code for item in _errors(at_start, lock)}
    mended = next((item for item in _errors(draft, lock) if item.code not in left), None)
    if mended is None:
        return draft, []
    return at_start, [Choice("engine.compile", "at-start", f"else {mended.message}")]


def _requests(wishes: Wishes) -> Choice:
    other = next(goal for goal in _REQUESTS if goal != wishes.goal)
    why = f"requests decoded together, for {wishes.goal}"
    return Choice("engine.max_num_seqs", _REQUESTS[wishes.goal], why, (f"{_REQUESTS[other]} for {other}",))


def _version(draft: _Draft, lock: Lock, drafter: Drafter) -> tuple[_Draft, Choice]:
    """The newest version with which no check on engine and models finds an error."""
    released = versions(draft.having("engine", version="0.0.0").recipe())
    if not released:
        raise _Unfit(f"no image of its engine is known on {draft.data['platform']['name']}")
    refused: list[str] = []
    # The version of the toolkit's own recipe for this pair comes first: nobody has tried a newer one.
    for version in sorted(released, key=lambda version: version != drafter.version):
        here = draft.having("engine", version=version)
        problem = next(_errors(here, lock, without=_SETTLED_LATER), None)
        if problem is None:
            rented = registry.rules_of(draft.data["platform"]["name"]).facts.has_instance_types
            why = _version_why(version, released, drafter, refused, rented=rented)
            return here, Choice("engine.version", version, why, tuple(_also(draft, lock, released, version)))
        refused.append(f"{version}: {problem.message}")
    raise _Unfit(refused[0].partition(": ")[2])


def _also(draft: _Draft, lock: Lock, released: Sequence[str], version: str) -> Iterator[str]:
    """Other versions that work, too: the newest of them."""
    others = (item for item in released if item != version)
    able = (item for item in others if not any(_errors(draft.having("engine", version=item), lock, _SETTLED_LATER)))
    yield from islice(able, _OTHER_VERSIONS)


def _version_why(
    version: str, released: Sequence[str], drafter: Drafter, refused: Sequence[str], *, rented: bool
) -> str:
    if version == drafter.version:
        return f"as in the toolkit's own recipe {drafter.recipe}"
    if refused:
        return f"the newest that works; not {refused[0]}"
    if version != released[0]:
        return "the newest that works"
    return "the newest with an image" if rented else "the newest that is known to run on a machine like this"


def _context(wishes: Wishes, target: ModelFacts, usual: int, about: str) -> Choice:
    limit = target.text_config.get("max_position_embeddings")
    context = wishes.context or (min(usual, limit) if isinstance(limit, int) else usual)
    if isinstance(limit, int) and context > limit:
        raise _Unfit(f"it takes {limit:,} tokens at most, and --context asks for {context:,}")
    why = f"tokens of prompt and answer together{', as you asked' if wishes.context else ''}{about}"
    others = (f"up to {limit:,}, the model's limit",) if isinstance(limit, int) and limit > context else ()
    return Choice("engine.max_model_len", context, why, others)


def _token_budget(draft: _Draft, lock: Lock) -> tuple[_Draft, Choice]:
    """The smallest budget of tokens per step that leaves room for prompts beside the drafts."""
    for tokens in _TOKENS_PER_STEP:
        here = draft.having("engine", max_num_batched_tokens=tokens)
        if not any(item.code == "engine.token-budget" for item in findings_on(here.recipe(), lock)):
            break
    why = "tokens per step, enough for drafts and prompts together"
    return here, Choice("engine.max_num_batched_tokens", tokens, why)


def _instance(
    draft: _Draft, lock: Lock, wishes: Wishes, types: Sequence[Instance]
) -> tuple[_Draft, tuple[Choice, ...]]:
    try:
        offered = offers(draft.recipe(), lock, wishes.goal, types, wishes.max_price)
    except ToolkitError as error:
        raise _Unfit(error.message) from error
    problem = "" if offered else _nothing_fits(draft, lock, wishes, types)
    for index, offer in enumerate(offered):
        others = tuple(str(other) for other in offered[index + 1 :][:_OTHERS])
        for here, split in _on(draft, offer):
            wrong = next(_errors(here, lock), None)
            if wrong is None:
                models = "both models" if lock.drafter else "the model"
                why = f"{_best(wishes, offer)} {models}: {offer}; {offer.room}"
                return here, (*split, Choice("platform.instance_types", [offer.instance_type], why, others))
            problem = problem or wrong.message
    raise _Unfit(problem)


def _best(wishes: Wishes, offer: Offer) -> str:
    if offer.price is None:
        return "holds"
    return "the cheapest for its KV cache that holds" if wishes.goal == "throughput" else "the cheapest that holds"


def _nothing_fits(draft: _Draft, lock: Lock, wishes: Wishes, types: Sequence[Instance]) -> str:
    without_limit = offers(draft.recipe(), lock, wishes.goal, types) if wishes.max_price is not None else []
    if without_limit:
        cheapest = min(without_limit, key=lambda offer: offer.price or float("inf"))
        return f"nothing that holds the models costs {wishes.max_price:g} $/h or less; the cheapest is {cheapest}"
    where = f" in {wishes.region}" if wishes.region else ""
    called = f" called `{wishes.hardware}`" if wishes.hardware else ""
    return f"no instance type of {wishes.platform}{called}{where} holds the models"


def _on(draft: _Draft, offer: Offer) -> Iterator[tuple[_Draft, tuple[Choice, ...]]]:
    """The recipe on that type, split over as many accelerators as it was published with, and over the fewest."""
    here = draft.having("platform", instance_types=[offer.instance_type])
    args = draft.data["engine"].get("args", {})
    if TENSOR_PARALLEL in args:
        yield here, ()
        return
    recipe = here.recipe()
    compilation = recipe.engine_rules.compilation
    published = compilation.published(recipe.method) if compilation else None
    key, least = f"engine.args.{TENSOR_PARALLEL}", f"the fewest that hold the models: {offer.tensor_parallel}"
    if published and published.tensor_parallel > offer.tensor_parallel:
        size = published.tensor_parallel
        why = f"cores that the models are split over, as AWS published the method; {least}"
        yield here.having("engine", args={**args, TENSOR_PARALLEL: size}), (Choice(key, size, why),)
    if offer.tensor_parallel == 1:
        yield here, ()
        return
    split = here.having("engine", args={**args, TENSOR_PARALLEL: offer.tensor_parallel})
    yield split, (Choice(key, offer.tensor_parallel, least),)


def _errors(draft: _Draft, lock: Lock, without: tuple[str, ...] = ()) -> Iterator[Finding]:
    for finding in findings_on(draft.recipe(), lock):
        if finding.severity == "error" and not (without and finding.code.startswith(without)):
            yield finding


def _in_order(data: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe with its sections and the engine's keys in the usual order."""
    engine = {key: data["engine"][key] for key in _ENGINE_KEYS if key in data["engine"]}
    others = {key: value for key, value in data.items() if key not in ("engine", "platform")}
    return {**others, "engine": engine, "platform": data["platform"]}


def _drafting(drafter: Drafter, able: Sequence[Drafter]) -> Iterator[Choice]:
    method = methods.method(drafter.method)
    others = dict.fromkeys(item.method for item in able if item.method != drafter.method)
    yield Choice("speculation.method", drafter.method, _HOW[method.kind, method.parallel], tuple(others))
    if drafter.model:
        models = [f"{item.model} ({item.method})" for item in able if item.model and item is not drafter]
        yield Choice("speculation.model", drafter.model, drafter.why, tuple(models[:_OTHERS]))
    yield Choice("speculation.num_speculative_tokens", drafter.tokens, f"K: {drafter.tokens_why}")
