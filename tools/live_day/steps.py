"""What a live day does, in its order: each kind of request once, by the toolkit's public functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

import toolkit
from toolkit.apply.progress import Progress
from toolkit.errors import EndpointFailed, InvocationError, ToolkitError

if TYPE_CHECKING:
    from toolkit.api.endpoint import Endpoint

_ZERO_POLLS, _POLL_SECONDS = 60, 30.0
_QUESTION = "Count from one to nine."


class NotAsWanted(ToolkitError):
    """AWS answered a step in another way than the documents say."""


@dataclass(frozen=True)
class Means:
    """What steps work with: the recorded session, the folder of the day's recipes, and how they wait."""

    session: boto3.Session
    recipes: Path
    progress: Progress
    pause: Callable[[float], object]

    def recipe(self, name: str) -> Path:
        """The file of a recipe of `tools/live_day/recipes`."""
        return self.recipes / f"{name}.yaml"

    def deploy(self, name: str) -> Endpoint:
        """Deploy a recipe, or nothing if it serves already."""
        return toolkit.deploy(self.recipe(name), session=self.session, progress=self.progress)

    def destroy(self, name: str) -> None:
        """Remove a recipe's endpoint with all that was made for it, if there is one."""
        toolkit.destroy(self.recipe(name), platform="sagemaker", session=self.session, progress=self.progress)


@dataclass(frozen=True)
class Step:
    """`needs` must have been done in the same run. `instances` are billed for `minutes`, both estimated from above."""

    name: str
    does: str
    run: Callable[[Means], object]
    needs: Sequence[str] = ()
    instances: float = 0
    minutes: float = 0

    def price(self, hourly: float) -> float:
        """US dollars, of what one instance costs in an hour."""
        return self.instances * self.minutes / 60 * hourly


def _ask(means: Means) -> None:
    endpoint = means.deploy("deploy")
    endpoint.chat(_QUESTION, max_tokens=16)
    endpoint.chat(_QUESTION, via="openai", max_tokens=16)
    endpoint.prove(requests=2, max_tokens=32)
    endpoint.metrics()
    list(endpoint.logs(tail=20))


def _rollback(means: Means) -> None:
    toolkit.rollback(means.recipe("canary"), session=means.session, progress=means.progress)


def _fail(means: Means) -> None:
    try:
        means.deploy("failing")
    except EndpointFailed as error:
        means.progress.say(f"refused, as it should be: {error.message}")
    else:
        raise NotAsWanted("an update whose engine cannot start was taken for a good one")


def _capture(means: Means) -> None:
    means.deploy("capture").chat(_QUESTION, max_tokens=16)


def _shadow(means: Means) -> None:
    means.deploy("shadow").chat(_QUESTION, max_tokens=16)


def _component(means: Means) -> None:
    means.deploy("component").chat(_QUESTION, max_tokens=16)


def _scale_to_zero(means: Means) -> None:
    """Nobody asks until AWS has taken the last copy away; then a request is refused, and wakes it."""
    endpoint = means.deploy("component")
    assert endpoint.component
    with closing(means.session.client("sagemaker")) as sagemaker:
        for _ in range(_ZERO_POLLS):
            described = sagemaker.describe_inference_component(InferenceComponentName=endpoint.component)
            copies = described.get("RuntimeConfig", {}).get("CurrentCopyCount")
            if (described["InferenceComponentStatus"], copies) == ("InService", 0):
                break
            means.pause(_POLL_SECONDS)
        else:
            minutes = _ZERO_POLLS * _POLL_SECONDS / 60
            raise NotAsWanted(f"{endpoint.address} has not scaled to zero in {minutes:.0f} minutes without a request")
    try:
        endpoint.chat(_QUESTION, max_tokens=16)
    except InvocationError as error:
        means.progress.say(f"refused, as it should be: {error.message}")
    else:
        raise NotAsWanted(f"{endpoint.address} answered without a copy")


def _train(means: Means) -> None:
    toolkit.train(means.recipe("train"), overwrite=True, session=means.session, progress=means.progress)


STEPS: Sequence[Step] = (
    Step("deploy", "an endpoint on two instances", lambda means: means.deploy("deploy"), (), 2, 15),
    Step("ask", "a chat by both routes, proof, metrics and log", _ask, ("deploy",), 2, 5),
    Step("canary", "an update by a canary of one", lambda means: means.deploy("canary"), ("deploy",), 4, 25),
    Step("rollback", "back to what ran before", _rollback, ("canary",), 4, 25),
    Step("failing", "an update that AWS rolls back", _fail, ("deploy",), 4, 30),
    Step("capture", "one instance, requests captured", _capture, ("deploy",), 3, 20),
    Step("shadow", "a shadow variant", _shadow, ("deploy",), 3, 25),
    Step("destroy", "the endpoint removed", lambda means: means.destroy("deploy"), (), 2, 5),
    Step("component", "an inference component", _component, (), 1, 20),
    Step("zero", "scaled to zero, and a request to none", _scale_to_zero, ("component",), 1, 30),
    Step("train", "one step of training", _train, (), 1, 30),
)
RECIPES = ("deploy", "component", "train")
"""One for each name that endpoints of the day have: to remove them all."""
