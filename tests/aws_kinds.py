"""What AWS platforms make of recipes, kind by kind, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fakes import ACCOUNT

from toolkit.planning.resources import Account, Existing, Resource
from toolkit.platforms.sagemaker.keys import AwsRollout
from toolkit.platforms.sagemaker.kinds.base import AwsKind, ContentKind
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.model_data import Deployment
from toolkit.recipe.recipe import Recipe
from toolkit.registry import rules_of

KINDS = [kind.kind for kind in RULES.kinds]
assert RULES.parts.templates
TEMPLATES = RULES.parts.templates()
ALARMS = ("LogGroup", "MetricFilter", "Alarm")
DASHBOARD = ("LogGroup", "MetricFilter", "Dashboard")
SCALING = ("ScalableTarget", "ScalingPolicy")
OPERATIONS: Mapping[str, tuple[str, str]] = {
    "Model": ("sagemaker", "CreateModel"),
    "EndpointConfig": ("sagemaker", "CreateEndpointConfig"),
    "Endpoint": ("sagemaker", "CreateEndpoint"),
    "InferenceComponent": ("sagemaker", "CreateInferenceComponent"),
    "ScalableTarget": ("application-autoscaling", "RegisterScalableTarget"),
    "ScalingPolicy": ("application-autoscaling", "PutScalingPolicy"),
    "Alarm": ("cloudwatch", "PutMetricAlarm"),
    "Dashboard": ("cloudwatch", "PutDashboard"),
    "MetricFilter": ("logs", "PutMetricFilter"),
}
"""The API call that creates a resource of the kind, as service and operation."""


def kind_of(name: str) -> AwsKind:
    """The rule of that kind on SageMaker."""
    return next(kind for kind in RULES.kinds if kind.kind == name)


def desired(recipes: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
    """All resources of the recipes."""
    found: tuple[Resource, ...] = rules_of(recipes[0].platform.name).desired(recipes, account)
    return found


def wanted(recipe: Recipe, *kinds: str, account: Account = ACCOUNT) -> list[Resource]:
    """Those of some kinds alone."""
    deployment = Deployment(recipe, account)
    rules = [kind for kind in rules_of(recipe.platform.name).kinds if kind.kind in kinds]
    return [item for rule in rules if isinstance(rule, AwsKind) for item in rule.desired(deployment)]


def halved(recipe: Recipe) -> Recipe:
    """The recipe as an experiment of two variants, `speculative` and `baseline`."""
    return replace(recipe, rollout=AwsRollout(speculative_percent=50))


def differs(resource: Resource, existing: Existing) -> bool:
    """Whether AWS holds something else than the resource asks for."""
    kind = kind_of(resource.kind)
    assert isinstance(kind, ContentKind)
    return kind.differs(resource, existing)
