"""How many instances of which type, at which K, meet an SLO for the least money: `toolkit advise`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.api.context import require_default_share
from toolkit.api.fitting import fit_models, read_facts
from toolkit.catalog import lookup
from toolkit.display import bullets, card, table
from toolkit.errors import ToolkitError, UsageError
from toolkit.home import home_folder
from toolkit.loading import RecipeLike, load
from toolkit.measure.advise import HOURS_PER_MONTH, MOST_INSTANCES, Choice, Demand, Option, Worth
from toolkit.measure.queue import Request
from toolkit.measure.report import load_report
from toolkit.measure.speeds import Speeds, curves_at, find_schedule, read_speeds
from toolkit.measure.trace import at_rate, busiest, mean_rate, read_trace
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Slo
from toolkit.sizing.fit import Fit, copies, hardware, hourly
from toolkit.text import inert

COLUMNS = ("instances", "K", "$/h", "$/month", "TTFT p90", "TPOT p90", "e2e p90", "margin", "speed")
"""Columns of a table of choices."""

_UNMEASURED = 3
_NO_LIMIT = 2**31
_BETTER = (0.5, 1.0)
_LEAST_SECONDS, _LONGER = 60.0, 20  # a queue settles in many times what a request takes


@dataclass(frozen=True)
class Advice:
    """What to serve a recipe's traffic on. Truthy if something meets the SLO.

    `choices` begin with what meets it, the cheapest first. `unmeasured` are types that the models fit and whose speed
    is not known, the cheapest first. `edit` are the recipe's keys for the first choice.
    """

    recipe: str
    requests: int
    rate: float
    slo: Mapping[str, float]
    choices: tuple[Choice, ...]
    worth: tuple[Worth, ...]
    unmeasured: tuple[Fit, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return any(one.met for one in self.choices)

    def __bool__(self) -> bool:
        return self.ok

    @property
    def best(self) -> Choice | None:
        """The cheapest that meets the SLO."""
        return next((one for one in self.choices if one.met), None)

    @property
    def answer(self) -> str:
        """The result in a sentence."""
        if not self.choices:
            return "no speed is known: measure first"
        first = self.choices[0]
        if not first.met:
            return f"nothing measured meets the SLO: {_on(first)} is nearest, {-first.margin:.0%} beyond a limit"
        return f"{_on(first)} keeps the SLO with {first.margin:.0%} to spare{_monthly(first)}"

    @property
    def edit(self) -> dict[str, Any]:
        """What the recipe must say for the best choice."""
        best = self.best
        if best is None:
            return {}
        few, many = (best.scaling.min_instances, best.scaling.max_instances) if best.scaling else (best.instances,) * 2
        scaling = {"min_instances": few, "max_instances": many, "requests_per_instance": best.requests_per_instance}
        drafts: dict[str, Any] = {"num_speculative_tokens": best.k} if best.k else {"method": "none"}
        if best.schedule:
            drafts["num_speculative_tokens_per_batch_size"] = [list(sizes) for sizes in best.schedule]
        platform = {"platform": {"instance_types": [best.instance]}, "scaling": scaling} if best.instance else {}
        return {"speculation": drafts, **platform}

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of `toolkit advise --json`."""
        return {"ok": self.ok, "answer": self.answer, **asdict(self), "edit": self.edit}

    def __repr__(self) -> str:
        rows = [", ".join(filter(None, cells(one))) for one in self.choices]
        return inert("\n  ".join([f"<Advice {self.recipe}: {self.answer}>", *rows, *self.lines()]))

    def _repr_html_(self) -> str:
        rows = table([cells(one) for one in self.choices], COLUMNS)
        return card(self.answer, rows, bullets(self.lines()), says=self.recipe, tone="good" if self.ok else "soft")

    def lines(self) -> list[str]:
        """What stands below the table."""
        edit = "; ".join(f"{key}: {value}" for key, value in self.edit.items())
        return [
            f"{self.requests:,} requests, {self.rate:.3g} a second on average",
            *(f"Speed of {_on(one)}: {one.quality}, {one.source}" for one in self.choices[:1]),
            *([f"In the recipe: {edit}"] if edit else []),
            *map(self._worth, self.worth),
            *self._paying(),
            *self.notes,
            *self._unmeasured(),
        ]

    def _worth(self, one: Worth) -> str:
        start = f"Acceptance {one.before:.2f} -> {one.acceptance_length:.2f} ({one.of}; {one.source})"
        do = f"{one.instances} x {one.instance or 'this machine'} would do, with {one.margin:.0%} to spare"
        if one.margin < 0:
            return f"{start}: the SLO is still not met"
        if not one.saves_per_month:
            return f"{start}{' saves nothing' if one.saves_per_month == 0 else ''}: {do}"
        return f"{start} saves {one.saves_per_month:,.0f} $ a month: {do}"

    def _paying(self) -> Iterator[str]:
        """Spot, plans and what is always on."""
        best = self.best
        if best is None or best.price_per_hour is None or not best.instance:
            return
        if best.scaling:
            always, mean = best.scaling.min_instances, best.scaling.mean
            others = best.scaling.max_instances - always
            busy = (mean - always) / others
            yield (
                f"Plans: of the instances {always} are always on, and a plan for these saves what it takes off. The "
                f"other {others} are on {busy:.0%} of the time: a plan for them pays from {1 - busy:.0%} off"
            )
        else:
            yield "Plans: all instances are always on, so a plan saves what it takes off (--discount PERCENT)"
        yield "Spot: endpoints of SageMaker have none, a cluster's nodes may be it: see `toolkit docs capacity`"

    def _unmeasured(self) -> Iterator[str]:
        if self.unmeasured:
            types = ", ".join(f"{one.instance} ({_dollars(one.price_per_hour)} $/h)" for one in self.unmeasured)
            yield f"The models fit these too, of unknown speed: {types}. To know one, deploy there, and: {self.measure}"
        elif not self.choices:
            yield f"To know it: {self.measure}"

    @property
    def measure(self) -> str:
        """The command that measures speeds."""
        return f"toolkit bench {self.recipe} --concurrency 1,4,16 --json > speeds.json"


def advise(
    recipe: RecipeLike,
    *,
    slo: Slo,
    traffic: str | os.PathLike[str] | None = None,
    rate: float | None = None,
    prompt_tokens: int | None = None,
    answer_tokens: int | None = None,
    speeds: Sequence[str | os.PathLike[str]] = (),
    discount_percent: float = 0.0,
    platform: str | None = None,
) -> Advice:
    """The cheapest instances and K with which the traffic meets the SLO, the others, and what a better head would save.

    The traffic is a file of requests, or `rate` requests per second of so many tokens, by default those of the prompts
    that were measured. `speeds` are reports that `bench … --json` wrote; what `tune` measured of the recipe counts too.
    No speed is invented. Raises UsageError.
    """
    require_default_share(slo)
    loaded = replace(load(recipe, platform), discount_percent=discount_percent)
    folder = home_folder("tuning") / loaded.name
    tuned = [("toolkit tune", path) for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)]
    named = [*tuned, *((str(path), Path(path)) for path in speeds)]
    served = {"engine": loaded.engine.name, "target": str(loaded.target)}
    found, notes = read_speeds(((name, load_report(path)) for name, path in named), loaded.method, served)
    placed, more = _traffic(found, slo, traffic, rate, prompt_tokens, answer_tokens)
    requests = tuple(one for one, _ in placed)
    there, unsized = _fits(loaded, found)
    _require_room(loaded, placed, loaded.engine.max_model_len or max((one.max_model_len for one in there), default=0))
    options = [option for one in found for option in _options(loaded, one, there)]
    demand = Demand(requests, slo, lookup.platform(loaded.platform.name).endpoint_seconds if traffic else None)
    choices = demand.choose(options)
    drafting = next((one for one in choices if one.k and not one.schedule), None)
    gains = demand.worth(choices[0], drafting, options, _lengths(loaded, drafting)) if drafting else ()
    known = {option.instance for option in options}
    unmeasured = [one for one in there if one.fits and one.instance not in known]
    elsewhere = [one.instance or "this machine" for one in found if one.instance not in known]
    notes += [f"Speeds of {name} are left out: {loaded.platform.name} has no such type" for name in elsewhere]
    return Advice(
        str(recipe) if isinstance(recipe, str | os.PathLike) else loaded.name,
        len(requests),
        mean_rate(requests),
        slo.model_dump(exclude_none=True),
        choices,
        gains,
        tuple(unmeasured[:_UNMEASURED]),
        (*notes, *unsized, *more, *_doubts(choices), *_never_idle(found, choices, slo)),
    )


def _fits(recipe: Recipe, speeds: Sequence[Speeds]) -> tuple[Sequence[Fit], list[str]]:
    """How the models fit each type; where they cannot be sized, the measured types hold them, and a note says so."""
    if not recipe.platform_rules.facts.has_instance_types:
        return (), []
    _, models = read_facts(recipe)
    try:
        return fit_models(recipe, models, recipe.name).fits, []
    except ToolkitError as error:
        measured = [found for one in speeds if (found := recipe.platform_rules.instance(one.instance))]
        held = [Fit(one.name, one.accelerator_count, 1, True, price_per_hour=hourly(recipe, one)) for one in measured]
        return held, [f"{error.message}: the KV cache of each measured type counts as large enough; no other counts"]


def _traffic(
    speeds: Sequence[Speeds],
    slo: Slo,
    traffic: str | os.PathLike[str] | None,
    rate: float | None,
    prompt_tokens: int | None,
    answer_tokens: int | None,
) -> tuple[Sequence[tuple[Request, str]], list[str]]:
    """The requests, each with where it stands, and what to say of them."""
    if (traffic is None) == (rate is None):
        raise UsageError("give the traffic or a rate", hint="Write --traffic trace.jsonl, or --rate 5/s.")
    if traffic is not None:
        if str(traffic).startswith("s3://"):
            hint = f"Copy the files into one, and give its path: aws s3 cp --recursive {traffic} …"
            raise UsageError("`advise` reads traffic from this machine only", hint=hint)
        trace = busiest(read_trace(os.fspath(traffic)))
        placed, notes = [(one.request, one.where) for one in trace.requests], [*trace.notes]
    else:
        assert rate
        curves = [one for each in speeds for one in each.curves]
        lengths = ((prompt_tokens, "prompt"), (answer_tokens, "answer"))
        if missing := [name for given, name in lengths if given is None and not curves]:
            options = " ".join(f"--{name}-tokens N" for name in missing)
            raise UsageError(f"the length of {'s and '.join(missing)}s is not known", hint=f"Add {options}.")
        prompt = prompt_tokens or round(sum(one.prompt_tokens for one in curves) / len(curves))
        answer = answer_tokens or round(sum(one.answer_tokens for one in curves) / len(curves))
        tpot = slo.tpot or max((one for each in curves for one in each.tpot.values()), default=0.0)
        seconds = max(_LEAST_SECONDS, _LONGER * max(slo.ttft or 0.0, slo.e2e or 0.0, answer * tpot))
        placed, notes = [(one, "a request") for one in at_rate(rate, prompt, answer, seconds)], []
        last = placed[-1][0].at
        if last < seconds / 2:
            notes = [f"Only {last:.0f} s are simulated; a queue settles in {seconds:.0f} s: take a margin"]
    return placed, notes


def _require_room(recipe: Recipe, placed: Sequence[tuple[Request, str]], longest: int) -> None:
    """Raise UsageError for a request of more than the `longest` tokens, if that is known (else 0)."""
    for one, where in placed:
        if longest and one.prompt_tokens + one.answer_tokens > longest:
            written = recipe.lines.get("engine.max_model_len")
            limit = f"engine.max_model_len of {recipe.path}:{written}" if written else f"the limit of {recipe.target}"
            message = f"{where}: {one.prompt_tokens} + {one.answer_tokens} tokens, and {limit} is {longest}"
            edit = "Raise max_model_len" if written else "Write engine.max_model_len, if it takes more"
            raise UsageError(message, hint=f"{edit}, or leave such requests out of the traffic.")


def _options(recipe: Recipe, speeds: Speeds, sized: Sequence[Fit]) -> Iterator[Option]:
    """Every K of every type that has the hardware that was measured, and a K by the number of requests."""
    source = ", ".join(Path(name).name for name in speeds.sources)
    rules = recipe.platform_rules
    measured = rules.instance(speeds.instance) if speeds.instance else None
    if speeds.instance:
        own = recipe.platform.overrides  # settings of their own, so speeds of their own
        fitting = [one for one in sized if one.instance == speeds.instance or (one.fits and one.instance not in own)]
        alike = [one for one in fitting if _is_alike(rules.instance(one.instance), measured)]
        hosts = [(one.instance, recipe.discounted(one.price_per_hour), one.kv_tokens or _NO_LIMIT) for one in alike]
        most = MOST_INSTANCES
    else:
        hosts, most = [("", recipe.price_per_hour, _NO_LIMIT)], 1
    for name, price, kv_of_one in hosts:
        there = recipe.on(name) if name else recipe
        number = copies(there)  # of the engine, each with limits of its own
        seqs, kv = there.engine.max_num_seqs * number, kv_of_one * number
        tokens = (there.engine.max_num_batched_tokens or _NO_LIMIT) * number
        here = source if name == speeds.instance else f"{source}, measured on {speeds.instance}: the same accelerators"
        for k in range(speeds.measured[-1] + 1):
            quality, curves = curves_at(speeds, k)
            if curves:
                quality = quality if name == speeds.instance else "estimated"
                yield Option(name, price, ((seqs, tuple(curves)),), seqs, tokens, kv, quality, here, most)
        if number == 1 and (sizes := find_schedule(speeds, seqs)):
            parts = tuple((last, tuple(speeds.at(k))) for _, last, k in sizes)
            yield Option(name, price, parts, seqs, tokens, kv, "estimated", here, most, sizes)


def _is_alike(one: lookup.Instance | None, measured: lookup.Instance | None) -> bool:
    if one is None or measured is None:
        return False
    # Neuron's families, and CPUs, are told apart by more than their memory.
    return one == measured or (bool(one.compute_capability) and hardware(one) == hardware(measured))


def _lengths(recipe: Recipe, now: Choice) -> Iterator[tuple[float, str, str]]:
    """Acceptance lengths above the measured one: those published of heads of this target at this K, and two more."""
    target = str(recipe.target.model).lower()
    for head in (one for one in lookup.heads() if (one.target.lower(), one.method) == (target, recipe.method)):
        higher = [one for one in head.acceptance if one.k == now.k and one.acceptance_length > now.acceptance_length]
        for told in sorted(higher, key=lambda one: one.acceptance_length)[-1:]:
            yield told.acceptance_length, f"published of {head.repo} on {told.workload}", told.source
    for more in _BETTER:
        if now.acceptance_length + more <= now.k + 1:
            yield now.acceptance_length + more, "if a head had it", "what-if"


def _doubts(choices: Iterable[Choice]) -> Iterator[str]:
    best = next(iter(choices), None)
    if best and best.beyond:
        yield (
            f"Up to {best.beyond} requests share a step, more than were measured at a time: how long it takes is on a "
            f"line through what was. Measure with --concurrency 1,4,16,{best.beyond}"
        )


def _never_idle(speeds: Iterable[Speeds], choices: Sequence[Choice], slo: Slo) -> Iterator[str]:
    """That nobody measured how long an idle engine takes to a first token, where the SLO limits that."""
    known = [curve for each in speeds for curve in each.curves]
    if choices and slo.ttft and any(one.waking is None for one in known):
        rate = 0.3 / max(one.ttft + one.tpot[1] * one.answer_tokens for one in known)
        yield (
            "TTFT is as one request after the other found it; an engine that was idle may take longer. "
            f"Measure with --rate {rate:.1g} --time 30m, too"
        )


def cells(one: Choice) -> tuple[str, ...]:
    """A choice in the order of COLUMNS."""
    by_batch = ", ".join(f"{k} for {first}-{last}" for first, last, k in one.schedule)
    count = f"{one.scaling.min_instances}-{one.scaling.max_instances}" if one.scaling else str(one.instances)
    return (
        f"{count} x {one.instance or 'this machine'}",
        by_batch or str(one.k),
        _dollars(one.price_per_hour),
        "?" if one.price_per_month is None else f"{one.price_per_month:,.0f}",
        _time(one.ttft),
        _time(one.tpot),
        _time(one.e2e),
        f"{one.margin:.0%}" if one.met else f"missed by {-one.margin:.0%}",
        one.quality,
    )


def _on(one: Choice) -> str:
    return f"{cells(one)[0]} at K = {cells(one)[1]}"


def _monthly(one: Choice) -> str:
    return "" if one.price_per_month is None else f": {one.price_per_month:,.0f} $ a month of {HOURS_PER_MONTH} hours"


def _dollars(price: float | None) -> str:
    return "?" if price is None else f"{price:.2f}"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
