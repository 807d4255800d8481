"""SageMaker's training jobs: those that compile for Trainium, and those that train a head.

Both have the key of their result in their names. A name is never used twice, so the next attempt has another one; it
goes on from the checkpoint in S3, whose address has the key alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from toolkit.planning import artifacts
from toolkit.planning.kinds import Decision
from toolkit.planning.plan import Verb
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import is_denied, unless
from toolkit.platforms.sagemaker.kinds.artifacts import (
    UNDER_WAY,
    compiled_state,
    jobs_named,
    jobs_of,
    listed,
    missing,
)
from toolkit.platforms.sagemaker.kinds.base import Look, SageMakerKind, Work, owner_of

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients


class TrainingJobKind(SageMakerKind):
    """Not created if a job of the same key has completed already, or is under way.

    The state is that of the key: whether its result is complete, its jobs as (name, status, reason), newest first, and
    of compiled code the parts of the most similar one.
    """

    kind = "TrainingJob"
    call = "training_job"
    is_job = True
    seen_when_new = True

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        jobs = jobs_of(existing)
        newest, status, _ = jobs[0] if jobs else ("", "", "")
        done, doing = ("compiled", "compiling") if _compiles(resource) else ("trained", "training")
        if existing and existing.state["Complete"]:
            completed = next((name for name, status, _ in jobs if status == "Completed"), newest)
            return _decide(resource, "reuse", f"is already {done}", completed or resource.name)
        if status in UNDER_WAY:
            return _decide(resource, "update", f"is already {doing}; waits for it", newest)
        taken = {name for name, _, _ in jobs}
        names = chain([resource.name], (f"{resource.name}-{n}" for n in count(2)))
        name = next(name for name in names if name not in taken)
        reason = missing(existing, _parts(resource)) if _compiles(resource) else _why_again(newest, status, existing)
        return _decide(resource, "create", reason, name)

    def observe(self, look: Look) -> Iterator[Existing]:
        """The desired jobs, or if nothing is desired, jobs that are running for the endpoints."""
        if not look.desired:
            for endpoint in look.endpoints:
                yield from _running(look.clients, endpoint)
        for item in look.wanted(self.kind):
            yield Existing(self.kind, item.name, True, (), _state(look, item))

    def update(self, work: Work, request: Any) -> None:
        """Does nothing: the job runs already."""

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        """Stop it; it remains in SageMaker's list."""
        clients.sagemaker.stop_training_job(TrainingJobName=name)

    def is_going(self, clients: Clients, name: str) -> bool:
        """Whether it has ended, or is stopping."""
        return bool(self.describe(clients, name)["TrainingJobStatus"] != "InProgress")


def _compiles(resource: Resource) -> bool:
    return artifacts.KEY in resource.request.get("Environment", {})


def _parts(resource: Resource) -> Mapping[str, str]:
    parts: dict[str, str] = json.loads(resource.request["Environment"].get(artifacts.PARTS, "{}"))
    return parts


def _state(look: Look, resource: Resource) -> dict[str, Any]:
    if _compiles(resource):
        return compiled_state(look, resource.request["Environment"][artifacts.KEY], _parts(resource))
    jobs = jobs_named(look.clients, resource.name)
    return {"Complete": any(status == "Completed" for _, status, _ in jobs), "Jobs": jobs}


def _why_again(newest: str, status: str, existing: Existing | None) -> str:
    """Why a head is to be trained: nobody has, or the newest job ended before it was done."""
    if not newest:
        return "is not trained yet"
    why = jobs_of(existing)[0][2]
    return f"{newest} {'failed' if status == 'Failed' else 'was stopped'}: {why}; goes on from its last checkpoint"


def _decide(job: Resource, verb: Verb, reason: str, name: str) -> Decision:
    seconds = 0 if verb == "reuse" else job.expected_seconds
    return Decision(verb, reason, seconds, name, {**job.request, "TrainingJobName": name})


def _running(clients: Clients, endpoint: str) -> list[Existing]:
    """Running jobs of an endpoint; empty if the caller may not list jobs and so has started none."""
    running = listed(clients, NameContains=endpoint, StatusEquals="InProgress")
    return [
        Existing("TrainingJob", item["TrainingJobName"], True, (endpoint,), {})
        for item in unless(clients, lambda: list(running), is_denied) or ()
        if owner_of(clients, item["TrainingJobArn"]) == endpoint
    ]
