"""Endpoints: their configurations and updates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from toolkit.catalog import lookup
from toolkit.planning.kinds import Decision
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.resources import UNDER_WAY, Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.keys import aws_rollout
from toolkit.platforms.sagemaker.kinds.base import Look, SageMakerKind, Work, sagemaker_tags, tagged
from toolkit.platforms.sagemaker.kinds.endpoint_config import endpoint_config
from toolkit.platforms.sagemaker.kinds.monitoring import rollback_alarms
from toolkit.platforms.sagemaker.rules.arms import CANDIDATE, endpoint_name, variants
from toolkit.platforms.sagemaker.rules.checks.component import LONGEST_UPDATE_SECONDS
from toolkit.platforms.sagemaker.rules.metrics import log_groups
from toolkit.platforms.sagemaker.rules.names import PREVIOUS_TAG, on_aws, ran_before, remembered, tags
from toolkit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import TagTypeDef

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment


class EndpointKind(SageMakerKind):
    """The endpoint itself, for which a deployment waits."""

    kind = "Endpoint"
    call = "endpoint"
    resource_type = "AWS::SageMaker::Endpoint"
    references: ClassVar[Mapping[str, str | None]] = {"EndpointName": "EndpointName"}

    def desired(self, deployment: Deployment) -> list[Resource]:
        config = endpoint_config(deployment.recipe, deployment.account)
        return [endpoint(deployment.recipe, config.name)]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        seconds = lookup.platform("sagemaker" if self.on_aws else "local").endpoint_seconds
        if existing is None:
            return Decision("create", "does not exist", seconds)
        status, config = existing.state["EndpointStatus"], existing.state["EndpointConfigName"]
        if status not in ("InService", *UNDER_WAY):
            return Decision("replace", f"is {status}", seconds)
        if config != resource.request["EndpointConfigName"]:
            others = sorted(set(existing.endpoints) - {resource.name})
            shared = f", and is shared: {', '.join(others)}" if others else ""
            return Decision("update", f"runs {config}{shared}", seconds)
        in_service = status == "InService"
        return Decision(
            "reuse", "is in service with this configuration" if in_service else f"is {status.lower()} already"
        )

    def serves(self, request: Mapping[str, Any]) -> str:
        return str(request["EndpointConfigName"])

    def observe_endpoint(self, look: Look, name: str) -> Iterable[Existing]:
        read = unless_missing(look.clients, lambda: self._read(look.clients, name))
        return [read] if read else []

    def _read(self, clients: Clients, name: str) -> Existing:
        answer = self.describe(clients, name)
        tags = sagemaker_tags(clients, answer["EndpointArn"])
        # During an update, EndpointConfigName is still the old one.
        config = answer.get("PendingDeploymentSummary", answer)["EndpointConfigName"]
        state = {
            "EndpointStatus": answer["EndpointStatus"],
            "EndpointConfigName": config,
            "Running": answer["EndpointConfigName"],
            "Previous": ran_before(tags.get(PREVIOUS_TAG), answer["EndpointConfigName"]),
            "Ran": tags.get(PREVIOUS_TAG, ""),
        }
        return tagged(self.kind, name, tags.get(ENDPOINT_TAG), state)

    def update(self, work: Work, request: Any) -> None:
        clients, name, wanted = work.clients, request["EndpointName"], request["EndpointConfigName"]
        described = self.describe(clients, name)
        arn, running = described["EndpointArn"], described["EndpointConfigName"]
        if running == wanted:  # an update that was in progress has led to this
            return
        # The trial of a candidate is not remembered: after it, a rollback does what it would have done before it.
        if not any(variant["VariantName"] == CANDIDATE for variant in described.get("ProductionVariants", [])):
            _remember(clients, arn, running)
        try:
            clients.sagemaker.update_endpoint(**request)
        except clients.refusal:
            # Refused because an update is in progress: possibly our own, whose answer was lost.
            described = self.describe(clients, name)
            coming = described.get("PendingDeploymentSummary", {}).get("EndpointConfigName")
            if wanted not in (described["EndpointConfigName"], coming):
                raise

    def runs(self, clients: Clients, request: Mapping[str, Any]) -> str:
        running: str = self.describe(clients, request["EndpointName"])["EndpointConfigName"]
        return "" if running == request["EndpointConfigName"] else running

    def is_going(self, clients: Clients, name: str) -> bool:
        return bool(self.describe(clients, name)["EndpointStatus"] == "Deleting")

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Any) -> dict[str, Any]:
        """In CloudFormation, the deployment configuration is a property of the resource."""
        return {**item.update, **request}

    def depends_on(self, item: Resource) -> Iterator[tuple[str, str]]:
        yield "LogGroup", log_groups(item.name)[0]

    def outputs(self, item: Resource, logical_id: str) -> dict[str, Any]:
        value = {"Fn::GetAtt": [logical_id, "EndpointName"]}
        return {f"{logical_id}Name": {"Description": "Name of the endpoint", "Value": value}}


def endpoint(recipe: Recipe, config: str) -> Resource:
    """The endpoint. An update keeps the number of instances that autoscaling has set."""
    name = endpoint_name(recipe)
    create = {"EndpointName": name, "EndpointConfigName": config, "Tags": tags(recipe, name)}
    update: dict[str, Any] = {"EndpointName": name, "EndpointConfigName": config}
    if on_aws(recipe):
        kept_out = [{"VariantPropertyType": "DesiredWeight"}, {"VariantPropertyType": "DataCaptureConfig"}]
        update |= {"RetainAllVariantProperties": True, "ExcludeRetainedVariantProperties": kept_out}
        update["DeploymentConfig"] = _deployment(recipe)
    return Resource("Endpoint", name, create, update)


def _deployment(recipe: Recipe) -> dict[str, Any]:
    rollout = aws_rollout(recipe)
    if rollout.update == "rolling":
        return rolling_update(recipe, variants(recipe))
    step = _step(recipe)
    sizes = {"canary": {"CanarySize": step}, "linear": {"LinearStepSize": step}}.get(rollout.update, {})
    routing = {"Type": rollout.update.upper().replace("-", "_"), "WaitIntervalInSeconds": rollout.wait_seconds, **sizes}
    policy = {"TrafficRoutingConfiguration": routing, "MaximumExecutionTimeoutInSeconds": LONGEST_UPDATE_SECONDS}
    return {"BlueGreenUpdatePolicy": policy, **_rollback(recipe, variants(recipe))}


def rolling_update(recipe: Recipe, variants: Sequence[str]) -> dict[str, Any]:
    """The DeploymentConfig of a rolling update, of an endpoint or of an inference component."""
    policy = {
        "MaximumBatchSize": _step(recipe),
        "WaitIntervalInSeconds": aws_rollout(recipe).wait_seconds,
        "MaximumExecutionTimeoutInSeconds": LONGEST_UPDATE_SECONDS,
    }
    return {"RollingUpdatePolicy": policy, **_rollback(recipe, variants)}


def _step(recipe: Recipe) -> dict[str, Any]:
    return {"Type": "CAPACITY_PERCENT", "Value": aws_rollout(recipe).step_percent}


def _rollback(recipe: Recipe, variants: Sequence[str]) -> dict[str, Any]:
    """The alarms that roll an update back."""
    names = [*rollback_alarms(recipe, variants), *aws_rollout(recipe).alarms]
    return {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in names]}} if names else {}


def _remember(clients: Clients, arn: str, running: str) -> None:
    """Tag the endpoint with the configuration that it runs, before an update, as what a rollback brings back."""
    names = remembered(sagemaker_tags(clients, arn).get(PREVIOUS_TAG), running)
    previous: TagTypeDef = {"Key": PREVIOUS_TAG, "Value": names}
    clients.sagemaker.add_tags(ResourceArn=arn, Tags=[previous])
