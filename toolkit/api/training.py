"""Train the head of a recipe: check, plan, run, fetch, check the head, put it where the recipe names it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.api import jobs
from toolkit.api.context import complete_recipe, read_lock_of
from toolkit.api.head_comparison import compare_heads
from toolkit.api.made_heads import MadeHead, deliver, fetched_heads, name_in_recipe, read_made, require_free
from toolkit.api.outside import OUTSIDE, Outside
from toolkit.api.tracking import Trackers, find_trackers, train_metrics
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Progress, default_progress
from toolkit.checks.run import require
from toolkit.checks.training_needs import expected, require_memory
from toolkit.errors import UsageError
from toolkit.loading import RecipeLike, load
from toolkit.memory import has_gpu
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Observer
from toolkit.recipe.facts import ModelFacts
from toolkit.recipe.known import known_model
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import as_compared, as_trained, with_method
from toolkit.recipe.training_schema import TRAINED_METHODS
from toolkit.registry import rules_of, session_of
from toolkit.training.plan import section, step_tokens

if TYPE_CHECKING:
    from toolkit.platforms.parts import HeadTraining
    from toolkit.platforms.rules import AwsSession

BEST = "best"
"""Of the heads that are compared, whichever is."""


def train_plan(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    compare: Sequence[str] | None = None,
    take: str | None = None,
    discount_percent: float = 0.0,
) -> Plan:
    """What `train` would do. Reads only; without AWS credentials for an account that holds nothing.

    `discount_percent` is your discount on the list price, such as a savings plan's.
    """
    loaded = replace(_trainable(recipe, platform, compare, take), discount_percent=discount_percent)
    session = session_of(loaded.platform.name)
    opened = session.trainer(session.scope(loaded)) if session.can_be_asked() else None
    if opened is None:
        return _plan(loaded, session.unread_account(session.scope(loaded)), None)
    return _plan(*complete_recipe(loaded, opened), opened)


def train(
    recipe: RecipeLike,
    *,
    platform: str | None = None,
    compare: Sequence[str] | None = None,
    take: str | None = None,
    overwrite: bool = False,
    wait: bool = True,
    progress: Progress | None = None,
    again: str | None = None,
    session: AwsSession | None = None,
    _outside: Outside = OUTSIDE,
) -> TrainingRun:
    """Train the recipe's head, and put it where `speculation.model` names it, once its checks pass.

    If the head is trained already, it does nothing; after an interruption, it goes on from the last checkpoint. Another
    head in its place is an error, unless `overwrite`.

    With methods in `compare`, one head of each is trained on the same data and equally long; the run's `comparison`
    says which is best. All of them stay in the job unless `take` names a method, or is `best`: then that head is put
    where the recipe names it, and its method is written into the recipe. `best` raises UsageError if every head is
    expected to be slower than the target alone.

    `again` is the command that is shown to go on after an interruption, by default this call as a command. If the
    environment names a tracker (tracking.py), the training is also a run there. `session` is an AWS session to use
    instead of the environment's.

    Raises UsageError for a recipe without `training`, RecipeError (also for a head that fails its checks, which is put
    nowhere), ApplyError or TrainingJobFailed.
    """
    progress = progress or default_progress()
    trackers = find_trackers(progress)
    with progress.stage("check"):
        loaded = _trainable(recipe, platform, compare, take)
    opened = _outside.open_trainer(loaded, session)
    with progress.stage("plan"):
        complete, account = complete_recipe(loaded, opened)
        plan = _plan(complete, account, opened)
    (job,) = jobs.jobs_of(plan)
    if job.verb != "reuse" and not overwrite and (take or not compare):
        require_free(complete, opened)
    if job.verb == "create" and not complete.platform_rules.facts.has_instance_types and not has_gpu():
        _require_memory(complete, _outside.free_bytes(), progress)
    jobs.start_jobs(plan, opened, progress)
    run = TrainingRun(str(loaded.path), loaded.platform.name, job.name, "training")
    if not wait:
        return run
    options = [
        *(("--platform", platform) if platform else ()),
        *(("--compare", ",".join(compare)) if compare else ()),
        *(("--take", take) if take else ()),
        *(("--overwrite",) if overwrite else ()),
    ]
    again = again or shlex.join(["toolkit", "train", str(loaded.path), *options])
    jobs.wait_for(plan, opened, progress, stage="train", again=again, done="has trained")
    run = replace(run, status="reused" if job.verb == "reuse" else "trained")
    with fetched_heads(complete, job, opened, progress, beside=bool(take or not compare)) as folder:
        made = read_made(complete, folder)
        taken = made
        if compare:
            reports = {one.recipe.method: one.metrics for one in made}
            run = replace(run, comparison=compare_heads(folder, reports, _target_as_stored(complete)))
            named = run.best_that_pays if take == BEST else take
            taken = [one for one in made if one.recipe.method == named]
        for one in taken:
            deliver(one, job, opened, overwrite, progress)
            name_in_recipe(load(recipe), one.recipe, progress)
            run = replace(run, head=str(one.recipe.drafter), metrics=one.metrics, card=one.card)
    if run.status == "trained":
        _track(trackers, run, made)
    if take == BEST and run.comparison and not run.head:
        hint = f"All heads stay in their job. To take one all the same: --take {run.best}"
        raise UsageError(f"None of the heads was taken. {run.comparison.verdict}", hint=hint)
    return run


def _track(trackers: Trackers, run: TrainingRun, made: Sequence[MadeHead]) -> None:
    for one in made:
        own = one.recipe
        parameters = {"recipe": own.name, "job": run.job, **section(own).model_dump(exclude_none=True)}
        parameters["batch_tokens"] = step_tokens(own, section(own))
        curve = one.metrics.get("evaluations", ())
        name = f"train {own.name}{f' {own.method}' if run.comparison else ''}"
        trackers.log(name, parameters, train_metrics(one.metrics), run.to_dict(), curve)


def price(recipe: RecipeLike, *, platform: str | None = None, discount_percent: float = 0.0) -> str | None:
    """What `train` costs, in words; None on a platform that bills nothing, or where nothing is left to do."""
    loaded = replace(as_trained(load(recipe, platform)), discount_percent=discount_percent)
    training = section(loaded)
    hourly = _hourly(loaded)
    if hourly == 0:
        return None
    if hourly is None:
        why = _job(loaded).price_text
        return f"a training job of at most {training.max_hours:g} h; its price: {why(loaded) if why else '? $/h'}"
    most = hourly * training.max_hours
    less = f" with your discount of {discount_percent:g} %" if discount_percent else ""
    return f"a training job: {hourly:.2f} $/h{less}, at most {training.max_hours:g} h or {most:.2f} $ (an estimate)"


def _trainable(recipe: RecipeLike, platform: str | None, compare: Sequence[str] | None, take: str | None) -> Recipe:
    loaded = as_trained(load(recipe, platform))
    training = section(loaded)
    if compare is None:
        if take is not None:
            hint = f"Compare first: --compare {','.join(TRAINED_METHODS)}"
            raise UsageError(f"`{take}` is not among the heads that are compared", hint=hint)
        require(loaded, to_train=True)
        return loaded
    known = ", ".join(f"`{method}`" for method in TRAINED_METHODS)
    if len(set(compare)) < 2 or not set(compare) <= set(TRAINED_METHODS):
        hint = f"Heads can be trained of {known}: --compare {','.join(TRAINED_METHODS)}"
        given = f"`{','.join(compare)}` are not" if compare else "no methods are given, of"
        raise UsageError(f"{given} two or more methods to compare", hint=hint)
    if take not in (None, BEST, *compare):
        hint = f"Take one of: {', '.join((BEST, *compare))}."
        raise UsageError(f"`{take}` is not among the heads that are compared", hint=hint)
    if training.start_from:
        hint = "Remove it for the comparison, or train the one method that it is for."
        raise UsageError(f"{loaded.path}: training.start_from is a head of one method", hint=hint)
    for method in compare:
        require(with_method(loaded, method), to_train=True)
    return as_compared(loaded, compare)


def _plan(recipe: Recipe, account: Account, platform: Observer | None) -> Plan:
    job, cost = _job(recipe), price(recipe, discount_percent=recipe.discount_percent)
    plan = jobs.job_plan(
        recipe,
        job.resources(recipe, account),
        account,
        platform,
        price_per_hour=_hourly(recipe),
        notes=(
            *([f"Trains a head of each: {', '.join(recipe.compared)}"] if recipe.compared else []),
            *([f"Costs {cost}"] if cost else []),
            *_expectations(recipe),
            *job.notes(recipe),
        ),
    )
    return replace(plan, discount_percent=recipe.discount_percent)


def _expectations(recipe: Recipe) -> Iterator[str]:
    """How long the job may take and what its hidden states take, where that can be estimated."""
    target = _target_facts(recipe)
    found = expected(recipe, section(recipe), target) if target else None
    if found is None:
        return
    hourly, longest = _hourly(recipe), section(recipe).max_hours
    least, most = min(found.least, longest), min(found.most, longest)
    usd = f" ({least * hourly:,.2f} to {most * hourly:,.2f} $)" if hourly else ""
    cut = f", and up to {found.most:,.0f} without `max_hours`" if found.most > longest else ""
    shown = f"{least:,.1f}" if least >= 0.1 else "under 0.1"
    yield (
        f"May take {shown} to {most:,.1f} h{usd}{cut} for up to {found.tokens:,} tokens on {found.machine}: by "
        "arithmetic, unverified"
    )
    if found.parts:
        parts = f"computed in {found.parts} parts, in each epoch again" if found.parts > 1 else "computed once"
        yield f"The hidden states take up to {found.states / 1e9:,.1f} GB (an estimate), {parts}"


def _target_facts(recipe: Recipe) -> ModelFacts | None:
    """Of a target in a folder, one that the recipe's lock knows, or else the package."""
    if recipe.target.folder:
        return read_folder(recipe.target.folder)
    locked = read_lock_of(recipe)
    if locked is None:
        return None if recipe.target.revision else known_model(recipe.target.model)
    return locked.target


def _target_as_stored(recipe: Recipe) -> ModelFacts | None:
    """The same; None where the engine quantizes target or head when it loads them."""
    target, args = _target_facts(recipe), recipe.engine.args
    is_other = getattr(recipe.speculation, "quantization", None) or "quantiz" in str(args.get("hf-overrides"))
    if target is None or is_other:
        return None
    is_asked = str(args.get("quantization", "none")).lower() != "none"
    is_stored = {**target.text_config, **target.config}.get("quantization_config")
    return None if is_asked and not is_stored else target


def _job(recipe: Recipe) -> HeadTraining:
    """How its platform trains. Raises UsageError where it does not."""
    training = rules_of(recipe.platform.name).parts.training
    if training is None:
        raise UsageError(f"platform `{recipe.platform.name}` trains no heads", hint="Choose another: add --platform")
    return training()


def _hourly(recipe: Recipe) -> float | None:
    """US dollars per hour of its job, None where that is unknown."""
    price_of = _job(recipe).price_per_hour
    return price_of(recipe) if price_of else None


def _require_memory(recipe: Recipe, free: int, progress: Progress) -> None:
    """Of this machine, for a target of which the size is known."""
    if target := _target_facts(recipe):
        require_memory(recipe, target, free, progress.say)
