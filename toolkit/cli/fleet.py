"""Several recipes, or a folder of them, in one command: `plan`, `deploy`, `prove`, `rollback` and drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.fleet_run import Crew, Result, Task
from toolkit.cli.output import CutShort, answer, confirm, error_document, exit_code, explain, next_step, say
from toolkit.cli.plan_text import plan_text as text_of_one
from toolkit.cli.table import table
from toolkit.errors import UsageError
from toolkit.text import inert

if TYPE_CHECKING:
    from toolkit.api.fleet import Fleet, Planned

Recipes = Annotated[
    list[str],
    typer.Argument(
        help="A recipe file, or a name from `toolkit recipes`; several of them, or a folder, are a fleet.",
        metavar="RECIPE...",
    ),
]
PARALLEL = 4
"""How many are worked on at a time by default: a deployment makes some sixty calls, and AWS refuses an account that
makes more than a few each second."""
Parallel = Annotated[
    int, typer.Option("--parallel", min=1, max=32, help="With several recipes: how many at a time.", metavar="N")
]
Discount = Annotated[
    float,
    typer.Option(
        "--discount",
        min=0,
        max=99,
        help="Your discount on the list prices, from a savings plan or from reserved capacity (a training plan).",
        metavar="PERCENT",
    ),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="With several recipes: when one fails, go on with the others.")
]
_NO = 1


def gather(called: Sequence[str], platform: str | None = None) -> Fleet:
    """The recipes that were named. Says which YAML files beside them are left out, because they are no recipes."""
    from toolkit.api.fleet import fleet

    found = fleet(called, platform)
    for path in found.others:
        say(f"not a recipe, left out: {path} (it has no `target:`)")
    return found


def show_plan(
    called: Sequence[str],
    *,
    platform: str | None,
    baseline: bool,
    parallel: int,
    verbose: bool,
    discount: float,
    as_json: bool,
) -> None:
    """`toolkit plan` of a fleet. Exits with the code of the worst error."""
    from toolkit.api.fleet import plan_fleet

    wanted = gather(called, platform)
    planned = plan_fleet(wanted, platform=platform, baseline=baseline, parallel=parallel, discount_percent=discount)
    then = ("deploy", *called) if any(item.drift for item in planned) else ("prove", *called)
    answer(plan_document(planned), as_json, lambda: plan_text(planned, verbose=verbose))
    _exit_with_worst(planned)
    if not as_json:
        next_step(*then)


def plan_document(planned: Sequence[Planned]) -> dict[str, Any]:
    """The JSON document of a fleet's plan: the sums, and each recipe's own document."""
    from toolkit.api.fleet import whole

    total = whole(planned)
    return {
        "price_per_hour": total.price_per_hour,
        "price_before": total.price_before,
        "discount_percent": total.discount_percent,
        "changes": len(total.changes),
        "recipes": [item.to_dict() for item in planned],
    }


def plan_text(planned: Sequence[Planned], *, verbose: bool = False) -> str:
    """A table with a sum below; if `verbose`, each recipe's own plan before it."""
    from toolkit.api.fleet import whole

    rows = [
        (
            item.member.called,
            item.member.name or "?",
            _what(item),
            _dollars(item.plan.price_per_hour) if item.plan else "?",
            _dollars(item.plan.price_before) if item.plan else "?",
        )
        for item in planned
    ]
    total = whole(planned)
    parts = [
        f"{item.member.called}:\n{text_of_one(item.plan, verbose=True)}\n" for item in planned if verbose and item.plan
    ]
    unknown = [item for item in planned if item.error]
    without = f", without {len(unknown)} that cannot be planned" if unknown else ""
    parts += [table(("recipe", "endpoint", "changes", "$/h", "$/h now"), rows), ""]
    if not verbose:  # a plan of its own has its notes
        parts += [f"{item.member.called}: {note}" for item in planned for note in _notes(item)]
    parts += [f"{len(planned)} recipes on {total.platform or '?'}: {total.size}, {total.cost}{without}"]
    return "\n".join(parts)


def _notes(item: Planned) -> list[str]:
    """What is warned of a recipe, and why it has no price."""
    if item.plan is None:
        return []
    unpriced = item.plan.price_per_hour is None
    why = [note for note in item.plan.notes if unpriced and note.startswith("Price: ")]
    return [*item.plan.warnings, *why]


def _what(item: Planned) -> str:
    if item.error:
        return f"error: {_first_line(item.error.message)}"
    assert item.plan
    verbs = Counter(action.verb for action in item.plan.changes)
    return ", ".join(f"{verb} {number}" for verb, number in verbs.items()) or "up to date"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _dollars(price: float | None) -> str:
    return "?" if price is None else f"{price:.2f}"


def _exit_with_worst(planned: Sequence[Planned]) -> None:
    """Say each error whole, then end with the code of the worst, if there is any."""
    errors = [item.error for item in planned if item.error]
    for error in errors:
        say(explain(error))
    if errors:
        raise typer.Exit(max(map(exit_code, errors)))


def deploy(
    called: Sequence[str],
    *,
    platform: str | None,
    baseline: bool,
    wait: bool,
    proof: bool,
    yes: bool,
    parallel: int,
    keep_going: bool,
    discount: float,
    as_json: bool,
) -> None:
    """Plan all, ask once, deploy each by its own command, then prove one after the other what has changed."""
    from toolkit.api.fleet import plan_fleet, whole

    wanted = gather(called, platform)
    planned = plan_fleet(wanted, platform=platform, baseline=baseline, parallel=parallel, discount_percent=discount)
    say(plan_text(planned))
    if not keep_going and any(item.error for item in planned):
        say("nothing was begun: correct it, or deploy the others with --keep-going")
        _exit_with_worst(planned)
    total = whole(planned)
    if total.costs_more:
        confirm(f"Deploy these to {total.account} {total.region}, {total.cost}?", yes)
    how = options(platform=platform, baseline=baseline, no_wait=not wait)
    tasks = [_task(item, "deploy", "--yes", "--no-prove", *how) for item in planned if item.plan]
    crew = Crew(parallel, lambda result: result.state != "done" and not keep_going)
    results = crew.run(tasks)
    done = {result.task.called for result in results if result.state == "done"}
    went_well = len(done) == len(planned) or keep_going
    to_prove = [item for item in planned if item.member.called in done and item.drift and item.member.speculates]
    proofs: list[Result] = []
    if wait and proof and went_well and not crew.is_interrupted:
        crew = _prover(keep_going=True)
        proofs = crew.run([_task(item, "prove", *options(platform=platform)) for item in to_prove])
    _end([*_not_planned(planned), *results], proofs, as_json, crew, also={"price_per_hour": total.price_per_hour})


def prove(called: Sequence[str], how: Sequence[str], *, parallel: int, keep_going: bool, as_json: bool) -> None:
    """`toolkit prove` of each. An answer that is no stops nothing."""
    tasks = [Task(name, name, name, ("prove", name, "--json", *how)) for name in names_of(called)]
    crew = _prover(keep_going, parallel)
    _end([], crew.run(tasks), as_json, crew)


def rollback(
    called: Sequence[str],
    *,
    platform: str | None,
    wait: bool,
    yes: bool,
    parallel: int,
    keep_going: bool,
    as_json: bool,
) -> None:
    """`toolkit rollback` of each."""
    names = names_of(called)
    confirm(f"Roll {len(names)} endpoints back, each to what it ran before its own last update?", yes)
    how = options(platform=platform, no_wait=not wait)
    crew = Crew(parallel, lambda result: result.state != "done" and not keep_going)
    tasks = [Task(name, name, name, ("rollback", name, "--yes", "--json", *how)) for name in names]
    _end(crew.run(tasks), [], as_json, crew)


def drift(called: Sequence[str], *, platform: str | None, parallel: int, as_json: bool) -> None:
    """Does what runs still agree with the recipes? Exits with 1 if not, with 3 if that cannot be told of one."""
    from toolkit.api.fleet import plan_fleet

    if not called:
        raise UsageError("give the recipes to compare with", hint="Such as: toolkit status fleet/ --drift")
    planned = plan_fleet(gather(called, platform), platform=platform, baseline=False, parallel=parallel)
    planned = [_must_be_read(item) for item in planned]
    agree = not any(item.drift for item in planned)
    document = {
        "ok": agree and not any(item.error for item in planned),
        "recipes": [
            {
                "called": item.member.called,
                "name": item.member.name,
                "agrees": None if item.error else not item.drift,
                "drift": item.drift,
                "error": item.error.message if item.error else None,
            }
            for item in planned
        ],
    }
    answer(document, as_json, lambda: _drift_text(planned))
    _exit_with_worst(planned)
    if not agree:
        raise typer.Exit(_NO)


def _must_be_read(item: Planned) -> Planned:
    """A plan without an account compares with nothing."""
    from toolkit.errors import PlatformError
    from toolkit.planning.resources import NO_ACCOUNT

    if item.plan and item.plan.account == NO_ACCOUNT:
        error = PlatformError(f"{item.member.called}: AWS cannot be asked: there are no credentials", hint="Log in.")
        return replace(item, plan=None, error=error)
    return item


def _drift_text(planned: Sequence[Planned]) -> str:
    rows = []
    for item in planned:
        first = (item.member.called, item.member.name or "?")
        said = [f"not known: {_first_line(item.error.message)}"] if item.error else item.drift or ["as the recipe says"]
        rows += [(*first, said[0]), *(("", "", line) for line in said[1:])]
    differ = sum(bool(item.drift) for item in planned)
    return f"{table(('recipe', 'endpoint', 'drift'), rows)}\n\n{differ} of {len(planned)} differ from their recipes"


def names_of(called: Sequence[str], platform: str | None = None) -> list[str]:
    """What is worked on: the recipes of folders, and other words, such as endpoints' names, as they are."""
    from toolkit.api.fleet import is_fleet

    found: list[str] = []
    for word in called:
        if is_fleet([word]):
            found += [member.called for member in gather([word], platform).members]
        else:
            found.append(word)
    return list(dict.fromkeys(found))


def options(**given: object) -> list[str]:
    """The words of a command that say so: `no_wait=True` is `--no-wait`; None and False are not said."""
    words = []
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [f"{option}={item}" for item in value]
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return words


def _task(item: Planned, command: str, *how: str) -> Task:
    """Its plan's warnings have been shown in that of the fleet."""
    member, warnings = item.member, item.plan.warnings if item.plan else []
    told = frozenset(line.rstrip() for warning in warnings for line in inert(warning).splitlines())
    return Task(member.called, member.name, member.host, (command, member.called, "--json", *how), told)


def _prover(keep_going: bool, parallel: int = 1) -> Crew:
    return Crew(parallel, lambda result: result.code not in (0, _NO) and not keep_going)


def _not_planned(planned: Sequence[Planned]) -> list[Result]:
    """Results of those whose plan could not be made."""
    return [
        Result(
            Task(item.member.called, item.member.name, "", ()),
            "failed",
            exit_code(item.error),
            0.0,
            error_document(item.error),
        )
        for item in planned
        if item.error
    ]


def _end(
    results: Sequence[Result],
    proofs: Sequence[Result],
    as_json: bool,
    crew: Crew,
    also: dict[str, Any] | None = None,
) -> None:
    """Print what became of each, and end with the worst exit code, or with Ctrl-C's."""
    every = [*results, *proofs]
    ok = all(result.state == "done" for result in every)
    by_name = {result.task.called: result for result in proofs}
    rows = [{**result.to_dict(), **_proof_of(by_name.get(result.task.called))} for result in results or proofs]
    answer({"ok": ok, **(also or {}), "recipes": rows}, as_json, lambda: _results_text(results, proofs))
    if crew.is_interrupted:
        under_way = [result.task.name for result in every if result.state == "interrupted"]
        if under_way:
            say(f"under way where it was interrupted, and goes on there: {', '.join(under_way)}")
        raise CutShort
    if not ok:
        say("The same command carries on: what is done is up to date.")
        raise typer.Exit(max((result.code or 0 for result in every), default=0) or _NO)


def _proof_of(result: Result | None) -> dict[str, Any]:
    return {"proof": result.to_dict()} if result else {}


def _results_text(results: Sequence[Result], proofs: Sequence[Result]) -> str:
    parts = []
    for title, some in (("result", results), ("proof", proofs)):
        if some:
            rows = [(one.task.called, one.task.name, one.state, f"{one.seconds:.0f} s", _detail(one)) for one in some]
            counted = Counter(one.state for one in some)
            parts += [table(("recipe", "endpoint", title, "took", "detail"), rows), ""]
            parts += [", ".join(f"{number} {state}" for state, number in counted.items()), ""]
    return "\n".join(parts[:-1])


def _detail(result: Result) -> str:
    """The end of it in a few words: what it answered, why it failed, or where it was interrupted."""
    document = result.answer
    if result.state == "not started":
        return ""
    if result.state == "interrupted":
        return result.last or "before its first step"
    if "verdicts" in document:
        from toolkit import documents
        from toolkit.measure.headline import headline
        from toolkit.measure.report import BenchReport

        return headline(documents.fit(BenchReport, document)).title
    if "error" in document:
        return _first_line(f"{document.get('message', '')}")
    return str(document.get("status", "no answer: see what it said above" if result.state == "failed" else ""))
