"""What `toolkit pause` removes from AWS: what costs by the hour or the month, and nothing that takes long to make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from toolkit.errors import UsageError
from toolkit.planning.kinds import PlanRules
from toolkit.planning.plan import Action, Plan
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Observed
from toolkit.platforms.sagemaker.kinds.base import AwsKind
from toolkit.platforms.sagemaker.rules.names import PAUSED_TAG

_NOTES = (
    "Weights, models and configurations stay; what S3 holds is billed on. What would be rolled back to is "
    "forgotten once it serves again",
)


def pause_plan(
    kinds: Sequence[AwsKind], rules: PlanRules, recipe: str, endpoints: Sequence[str], observed: Observed, now: float
) -> Plan:
    """The plan that removes the endpoints and keeps what they are made from; `now` is in seconds since 1970.

    Raises UsageError for an inference component.
    """
    if shared := next((item for item in observed.existing if item.kind == "InferenceComponent"), None):
        hint = "Let it scale to zero: `scaling: {min_instances: 0}`."
        raise UsageError(f"{shared.name} is an inference component: its instances are shared", hint=hint)
    paused = {kind.kind for kind in kinds if kind.goes_on_pause}
    going = tuple(item for item in observed.existing if item.kind in paused)
    removal = make_plan(recipe, rules, endpoints, (), replace(observed, existing=going), notes=_NOTES)
    deleted = (replace(action, reason="costs while it is there") for action in removal.actions)
    return replace(removal, actions=(*_marks(endpoints, observed, now), *deleted))


def _marks(endpoints: Sequence[str], observed: Observed, now: float) -> Iterator[Action]:
    """The configuration that each endpoint runs says that it is paused, for `toolkit status`."""
    for name in endpoints:
        endpoint = observed.get("Endpoint", name)
        config = observed.get("EndpointConfig", endpoint.state["Running"]) if endpoint and endpoint.ours else None
        if config:
            tag = {"Key": PAUSED_TAG, "Value": str(int(now))}
            request = {"ResourceArn": config.state["Arn"], "Tags": [tag]}
            yield Action(config.kind, config.name, "update", "says that it is paused", request)
