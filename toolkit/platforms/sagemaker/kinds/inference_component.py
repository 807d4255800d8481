"""Inference components: models that share an endpoint, each with its own copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.catalog import lookup
from toolkit.planning.kinds import Decision
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.plan import Changes
from toolkit.planning.resources import UNDER_WAY, Account, Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.keys import ComponentSection, aws, aws_rollout
from toolkit.platforms.sagemaker.kinds.base import (
    Look,
    SageMakerKind,
    Work,
    describe_component,
    sagemaker_tags,
    tagged,
)
from toolkit.platforms.sagemaker.kinds.endpoint import rolling_update, startup
from toolkit.platforms.sagemaker.kinds.model import model_of
from toolkit.platforms.sagemaker.rules.arms import VARIANT, endpoint_name
from toolkit.platforms.sagemaker.rules.changes import COMPONENT_KEYS, of_request, selected
from toolkit.platforms.sagemaker.rules.metrics import log_groups
from toolkit.platforms.sagemaker.rules.names import tags
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment


class InferenceComponentKind(SageMakerKind):
    """Created once its endpoint is in service."""

    kind = "InferenceComponent"
    call = "inference_component"
    needs_service = True
    resource_type = "AWS::SageMaker::InferenceComponent"
    updates = ("sagemaker", "UpdateInferenceComponent")
    lacking = frozenset(
        {
            "Specification.ComputeResourceRequirements.AcceleratorPartitionType",
            "Specifications.ComputeResourceRequirements.AcceleratorPartitionType",
            "Specifications.BaseInferenceComponentName",
        }
    )

    def desired(self, deployment: Deployment) -> list[Resource]:
        return component(deployment.recipe, deployment.account)

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None:
            return super().decide(resource, existing, observed)
        status, models, host = (existing.state[key] for key in ("Status", "Models", "EndpointName"))
        if host != resource.request["EndpointName"]:
            return Decision("replace", f"is on endpoint {host}")
        if status not in ("InService", *UNDER_WAY):
            return Decision("replace", f"is {status}")
        if models != models_of(resource.request):
            return Decision("update", f"runs {', '.join(dict.fromkeys(map(str, models.values())))}")
        if status != "InService":
            return Decision("update", f"is {status.lower()} already")  # wait until it is in service
        return Decision("reuse", "is in service with this model")

    def changes(
        self, resource: Resource, existing: Existing, desired: Sequence[Resource], observed: Observed
    ) -> Changes:
        content = existing.state.get("Content")
        return of_request(resource, content, COMPONENT_KEYS, desired, observed, "restarts its copies")

    def observe(self, look: Look) -> Iterator[Existing]:
        for name in look.endpoints:
            if described := look.once(describe_component, name):
                arn = described["InferenceComponentArn"]
                tags = unless_missing(look.clients, partial(sagemaker_tags, look.clients, arn))
                if tags is not None:
                    state = {
                        "EndpointName": described["EndpointName"],
                        "Status": described["InferenceComponentStatus"],
                        "Models": models_of(described),
                        "Content": selected(described, COMPONENT_KEYS),
                    }
                    yield tagged(self.kind, name, tags.get(ENDPOINT_TAG), state)

    def update(self, work: Work, request: Any) -> None:
        clients, name, wanted = work.clients, request["InferenceComponentName"], models_of(request)
        if self._status(clients, name) == ("InService", wanted):
            return  # an update that was in progress has led to this
        try:
            for each in self.updating(request, None):
                each.send(clients)
        except clients.refusal:
            status, models = self._status(clients, name)
            # It was not changing before, so this must be our own earlier call, whose answer was lost.
            if status != "Updating" and models != wanted:
                raise

    def is_going(self, clients: Clients, name: str) -> bool:
        return self._status(clients, name)[0] == "Deleting"

    def _status(self, clients: Clients, name: str) -> tuple[str, Mapping[str, str | None]]:
        """Its status and its models."""
        described = self.describe(clients, name)
        return described["InferenceComponentStatus"], models_of(described)

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Any) -> dict[str, Any]:
        updates = {key: value for key, value in item.update.items() if key == "DeploymentConfig"}
        return {**request, **updates}

    def depends_on(self, item: Resource) -> Iterator[tuple[str, str]]:
        yield "LogGroup", log_groups(item.name)[1]

    def outputs(self, item: Resource, logical_id: str) -> dict[str, Any]:
        return {f"{logical_id}Name": {"Description": "Name of the inference component", "Value": item.name}}


def component(recipe: Recipe, account: Account) -> list[Resource]:
    """The inference component; none for a plain endpoint."""
    wanted = aws(recipe).inference_component
    if wanted is None:
        return []
    types = recipe.platform.types
    specifications = [_specification(recipe.on(name), wanted, account) for name in types]
    # AWS's schema of AWS::SageMaker::InferenceComponent: the singular one is for one instance type, and does not accept
    # it; the list has two entries or more, and each needs it.
    by_type = [{"InstanceType": name, **item} for name, item in zip(types, specifications, strict=True)]
    specified = {"Specification": specifications[0]} if len(specifications) == 1 else {"Specifications": by_type}
    create = {
        "InferenceComponentName": recipe.name,
        "EndpointName": endpoint_name(recipe),
        "VariantName": VARIANT,
        **specified,
        "RuntimeConfig": {"CopyCount": max(1, recipe.scaling.min_instances)},
        "Tags": tags(recipe),
    }
    rolling = {"DeploymentConfig": rolling_update(recipe, [VARIANT])} if aws_rollout(recipe).update == "rolling" else {}
    update = {"InferenceComponentName": recipe.name, **specified, **rolling}
    return [Resource("InferenceComponent", recipe.name, create, update)]


def models_of(component: Mapping[str, Any]) -> dict[str, str | None]:
    """The models of a component's request or description, by instance type; empty for a single type."""
    specifications = component.get("Specifications") or [component.get("Specification", {})]
    return {item.get("InstanceType", ""): item.get("ModelName") for item in specifications}


def _specification(recipe: Recipe, settings: ComponentSection, account: Account) -> dict[str, Any]:
    """A copy on the recipe's first instance type."""
    instance = lookup.instance(recipe.platform.types[0])
    accelerators = settings.accelerators or recipe.engine_rules.accelerators(recipe, instance)
    return {
        "ModelName": model_of(recipe, account).name,
        "StartupParameters": startup(recipe),
        "ComputeResourceRequirements": {
            # GPUs, or Trainium chips (unverified: SageMaker may count cores).
            "NumberOfAcceleratorDevicesRequired": accelerators,
            "MinMemoryRequiredInMb": settings.memory_mib,
        },
    }
