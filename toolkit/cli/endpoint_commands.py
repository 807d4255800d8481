"""Commands that create, use and remove endpoints."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import toolkit
from toolkit.cli import fleet
from toolkit.cli.arguments import Baseline, Json, PlatformName, Yes, seconds_of
from toolkit.cli.fleet import PARALLEL, Discount, KeepGoing, Parallel
from toolkit.cli.output import CutShort, answer, confirm, exit_unless, next_step, say
from toolkit.cli.plan_text import plan_text
from toolkit.cli.table import table
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from toolkit.api.endpoint import Endpoint
    from toolkit.endpoint.generation import Generation
    from toolkit.endpoint.metrics import Metrics
    from toolkit.measure.report import BenchReport
    from toolkit.planning.plan import Plan

Name = Annotated[str, typer.Argument(help="The endpoint's name, or the recipe it was deployed from.")]

Minutes = Annotated[int, typer.Option(min=1, max=1440, help="Length of the period, up to now.")]


def deploy(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            help="A recipe file, a name from `toolkit recipes`, or the ARN of a registered version or its group; "
            "several recipes, or a folder, are a fleet.",
            metavar="[RECIPE...]",
        ),
    ] = None,
    saved: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="Apply a plan saved by `toolkit plan --out`; refused if the recipe, or what runs, has changed since.",
        ),
    ] = None,
    baseline: Baseline = False,
    platform: PlatformName = None,
    wait: Annotated[bool, typer.Option(help="Wait until the endpoint is in service.")] = True,
    proof: Annotated[
        bool,
        typer.Option("--prove/--no-prove", help="After the deployment, run `toolkit prove`: a minute of measuring."),
    ] = True,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask whether the price, or a saved plan, is all right.")
    ] = False,
    parallel: Parallel = PARALLEL,
    keep_going: KeepGoing = False,
    discount: Discount = 0.0,
    as_json: Json = False,
) -> None:
    """Create an endpoint, wait for it, and prove it. Run it again to resume, or to apply a changed recipe."""
    from toolkit.api.deployment import read_plan
    from toolkit.api.fleet import is_fleet

    if recipes and is_fleet(recipes):
        if saved:
            raise UsageError("--plan is of one recipe, and these are several", hint="Give them one by one.")
        fleet.deploy(
            recipes,
            platform=platform,
            baseline=baseline,
            wait=wait,
            proof=proof,
            yes=yes,
            parallel=parallel,
            keep_going=keep_going,
            discount=discount,
            as_json=as_json,
        )
        return
    recipe = recipes[0] if recipes else None
    if recipe is None and saved is None:
        raise UsageError("give a recipe, or a saved plan with --plan", hint="Such as: toolkit deploy tiny/p-eagle")
    if saved:
        plan = read_plan(saved, recipe, platform=platform)
        say(plan_text(plan))
        confirm(f"Do this on {plan.platform} ({plan.account} {plan.region}), as {plan.recipe} says?", yes)
        endpoint = plan.apply(wait=wait)
    else:
        approve = None if yes else approve_price
        endpoint = toolkit.deploy(
            recipe or "",
            platform=platform,
            baseline=baseline,
            wait=wait,
            approve=approve,
            discount_percent=discount,
        )
    named = None if platform or (recipe or "").startswith("arn:") else recipe
    finish(endpoint, waited=wait, proof=proof, as_json=as_json, called=named)


def finish(
    endpoint: Endpoint,
    *,
    waited: bool = True,
    proof: bool = True,
    as_json: bool,
    called: str | None = None,
    also: Mapping[str, Any] | None = None,
    prove: Callable[[Endpoint], BenchReport] = lambda endpoint: endpoint.prove(),
) -> None:
    """End a deployment: prove the endpoint, print the answer, and exit by what was proved.

    `called` is the recipe that the user named it by, if any: a recipe is measured with its own prompts, an endpoint's
    name with general ones. `also` are further keys of the answer's JSON document, `prove` is how it is measured.
    """
    document = {**endpoint.to_dict(), **(also or {})}
    if not (waited and proof and endpoint.speculative):
        answer(document, as_json, lambda: f"{endpoint.name}: {endpoint.status().status}")
        next_step(*(("invoke", called or endpoint.name, "Hello") if waited else ("status",)))
        return
    from toolkit.cli.report_text import report_text
    from toolkit.measure.headline import headline

    result = prove(endpoint)
    answer({**document, "proof": result.to_dict()}, as_json, lambda: report_text(result))
    if result.interrupted:
        raise CutShort
    next_step("invoke", endpoint.name, endpoint.workloads[0].prompts[0].text)
    exit_unless(result.ok or headline(result).answer == "mixed")


def approve_price(plan: Plan) -> None:
    """Ask before something is created that is billed. Warnings were said already."""
    if plan.costs_more:
        say(plan_text(replace(plan, notes=tuple(note for note in plan.notes if note not in plan.warnings))))
        confirm(f"Deploy this to {plan.account} {plan.region}, {plan.cost}?", yes=False)


def rollback(
    names: Annotated[
        list[str],
        typer.Argument(
            help="The endpoint's name, or the recipe it was deployed from; several, or a folder, are a fleet.",
            metavar="NAME...",
        ),
    ],
    yes: Yes = False,
    wait: Annotated[bool, typer.Option(help="Wait until the rollback is done.")] = True,
    platform: PlatformName = None,
    parallel: Parallel = PARALLEL,
    keep_going: KeepGoing = False,
    as_json: Json = False,
) -> None:
    """Return an endpoint to what it ran before its last update. A second rollback undoes the first."""
    from toolkit.api.fleet import is_fleet

    if is_fleet(names):
        fleet.rollback(
            names, platform=platform, wait=wait, yes=yes, parallel=parallel, keep_going=keep_going, as_json=as_json
        )
        return
    (name,) = names
    confirm(f"Roll {name} back to what it ran before its last update?", yes)
    endpoint = toolkit.rollback(name, platform=platform, wait=wait)
    status = endpoint.status()
    text = f"{endpoint.name}: {status.status}, runs {status.config}"
    answer(endpoint.to_dict(), as_json, lambda: text, then=("prove", name))


def invoke(
    name: Name,
    prompt: Annotated[str, typer.Argument(help="The prompt; `-` reads it from stdin.")],
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum length of the answer, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature; 0 is greedy.")] = 0.0,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Send a prompt to an endpoint and stream the answer to stdout."""
    text = sys.stdin.read() if prompt == "-" else prompt
    stream = toolkit.connect(name, platform=platform).stream(text, max_tokens=max_tokens, temperature=temperature)
    if not as_json:
        for piece in stream:
            sys.stdout.write(piece)
            sys.stdout.flush()
    result = stream.result
    answer(result.to_dict(), as_json, lambda: "")  # as text the answer was printed above: only end its line
    for line in about(result):
        say(line)
    if not as_json:
        next_step("prove", name)


def about(result: Generation) -> Iterator[str]:
    """What is worth knowing of an answer besides its text."""
    reasoning = f" ({result.reasoning_tokens} of reasoning)" if result.reasoning else ""
    rate, first = result.completion_tokens / result.latency, f"first after {result.ttft * 1000:.0f} ms"
    length = f", {result.acceptance.length:.2f} tokens per target step" if result.acceptance else ""
    yield f"{result.completion_tokens} tokens{reasoning}, {rate:.0f} tokens/s, {first}{length}"
    if result.cut:
        amid = " while the model was still reasoning" if result.reasoning and not result.text else ""
        yield f"The answer was cut at {result.completion_tokens} tokens{amid}: for more, raise --max-tokens."


def logs(
    name: Name,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")] = False,
    since: Annotated[
        str | None, typer.Option(help="Print only what was written in the last SINCE, such as 90s or 10m.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option(min=1, help="Print only the last TAIL lines, after the other filters.")
    ] = None,
    grep: Annotated[str, typer.Option(help="Print only lines that contain this text, in upper or lower case.")] = "",
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Print the log of an endpoint's containers."""
    if follow and (as_json or tail):
        other, value = ("--json", "") if as_json else ("--tail", f" {tail}")
        raise UsageError(f"{other} cannot be combined with --follow", hint=f"Run: toolkit logs {name} {other}{value}")
    seconds, wanted = seconds_of(since) if since else None, grep.lower()
    endpoint = toolkit.connect(name, platform=platform)
    if tail and not wanted:
        lines: Iterable[str] = endpoint.logs(since=seconds, tail=tail)
    else:
        lines = (line for line in endpoint.logs(follow=follow, since=seconds) if wanted in line.lower())
        lines = deque(lines, maxlen=tail) if tail else lines
    if as_json:
        answer({"endpoint": endpoint.name, "lines": list(lines)}, True, str)
        return
    with suppress(KeyboardInterrupt) if follow else nullcontext():
        for line in lines:
            print(line, flush=follow)  # noqa: T201
    next_step("metrics", name)


def metrics(name: Name, minutes: Minutes = 60, platform: PlatformName = None, as_json: Json = False) -> None:
    """Show an endpoint's recent requests, errors, latencies and acceptance rate."""
    measured = toolkit.connect(name, platform=platform).metrics(minutes)
    answer(measured.to_dict(), as_json, lambda: _metrics_text(measured), then=("bench", name))


def watch(
    name: Annotated[str, typer.Argument(help="The recipe it was deployed from; its evidence says what to expect.")],
    minutes: Minutes = 60,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Compare the acceptance of live traffic with the recipe's evidence. For cron: exit code 1 below 80 % of it."""
    watched = toolkit.watch(name, minutes=minutes, platform=platform)
    answer(watched.to_dict(), as_json, lambda: repr(watched), yes=watched.ok)


def pause(
    name: Name,
    yes: Yes = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Remove the parts of an endpoint that cost money; `toolkit deploy` makes it serve again.

    Its weights and configuration are kept.
    """
    confirm(f"Pause {name}, so that it serves nobody until it is deployed again?", yes)
    done = toolkit.pause(name, platform=platform)
    answer(done.to_dict(), as_json, lambda: _paused_text(name, done), then=("status",))


def _paused_text(name: str, done: Plan) -> str:
    if not done.actions:
        return f"{name} is paused already"
    return "\n".join((f"paused {name}: {done.size}", *done.notes, "Let it serve again: toolkit deploy RECIPE"))


def destroy(
    name: Name,
    yes: Yes = False,
    platform: PlatformName = None,
    as_json: Json = False,
) -> None:
    """Remove an endpoint, its baseline, and everything that was created for them."""
    confirm(f"Remove {name} and everything created for it?", yes)
    done = toolkit.destroy(name, platform=platform)
    answer(done.to_dict(), as_json, lambda: _removed_text(name, done), then=("status",))


def _removed_text(name: str, done: Plan) -> str:
    kept = "\n".join(f"not removed: {item}" for item in done.not_removed)
    if not done.actions:
        return f"nothing to remove: {name} has no resources" + (f"\n{kept}" if kept else "")
    return f"removed {len(done.actions)} resources" + (f"\n{kept}" if kept else "; nothing remains")


def _metrics_text(measured: Metrics) -> str:
    rows = table((f"last {measured.minutes} minutes", measured.endpoint), list(measured.rows()))
    return "\n\n".join([rows, *measured.notes])
