"""What SageMaker may do as an execution role, by its policies, which moto evaluates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moto.cloudwatch.models import cloudwatch_backends
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.iam.models import Role, iam_backends
from standin_http import Call

from toolkit.platforms.local import validation
from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError
from toolkit.platforms.local.service import SageMaker

_MOST_INLINE = 10_240


def role_of(arn: str) -> Role | None:
    """The role of that ARN."""
    roles = iam_backends[ACCOUNT][arn.split(":")[1]].roles.values()
    return next((role for role in roles if role.arn == arn), None)


def allows(role: Role, action: str, resource: str) -> bool:
    """Whether the role's own policies allow that. moto takes a condition that it does not know as not met."""
    policies = [*role.policies.values(), *role.managed_policies.values()]
    results = {IAMPolicy(policy).is_action_permitted(action, resource) for policy in policies}
    return PermissionResult.PERMITTED in results and PermissionResult.DENIED not in results


def must_fit(call: Call) -> None:
    """Raise ServiceError when PutRolePolicy would give a role more than 10,240 characters of inline policies.

    IAM user guide, reference_iam-quotas: "IAM doesn't count white space". The words are AWS's.
    """
    name, put = call.request["RoleName"], {call.request["PolicyName"]: call.request["PolicyDocument"]}
    role = next((role for role in iam_backends[ACCOUNT]["aws"].roles.values() if role.name == name), None)
    policies = {**role.policies, **put} if role else put
    if sum(len("".join(document.split())) for document in policies.values()) > _MOST_INLINE:
        message = f"Maximum policy size of {_MOST_INLINE} bytes exceeded for role {name}"
        raise ServiceError(message, code="LimitExceeded")


class Alarms:
    """The alarms that roll back an update, which SageMaker looks at as the execution role."""

    def __init__(self, sagemaker: Callable[[str], SageMaker]) -> None:
        self._sagemaker = sagemaker

    def must_be_visible(self, call: Call) -> None:
        """Raise ServiceError when an execution role may not look at an alarm of the request.

        Developer guide, deployment-guardrails-configuration: "Ensure that your IAM execution role has permission to
        perform the cloudwatch:DescribeAlarms action on the auto-rollback alarms you specify". API reference of
        DescribeAlarms: composite alarms are seen only with a permission "scoped to *". Unverified: that the update is
        refused at once, and that of an endpoint for components it is the configuration's role.
        """
        rollback = call.request.get("DeploymentConfig", {}).get("AutoRollbackConfiguration", {})
        here = cloudwatch_backends[ACCOUNT][call.region].alarms
        alarms = [here[item["AlarmName"]] for item in rollback.get("Alarms", []) if item["AlarmName"] in here]
        for arn in self._roles(call) if alarms else ():
            role = role_of(arn)
            for alarm in alarms:
                resource = "*" if alarm.rule else alarm.alarm_arn
                if role is None or not allows(role, "cloudwatch:DescribeAlarms", resource):
                    name = arn.rpartition("/")[2]
                    raise ServiceError(
                        f"User: arn:{Region(call.region).partition}:sts::{ACCOUNT}:assumed-role/{name}/SageMaker is "
                        f"not authorized to perform: cloudwatch:DescribeAlarms on resource: {alarm.alarm_arn} because "
                        "no identity-based policy allows the cloudwatch:DescribeAlarms action"
                    )

    def _roles(self, call: Call) -> Iterator[str]:
        """The execution roles of what the request deploys."""
        sagemaker, request = self._sagemaker(call.region), call.request
        if call.operation == "UpdateInferenceComponent":
            component = {"InferenceComponentName": request["InferenceComponentName"]}
            endpoint = sagemaker.answer("DescribeInferenceComponent", component)["EndpointName"]
            request = sagemaker.answer("DescribeEndpoint", {"EndpointName": endpoint})
        named = {"EndpointConfigName": request["EndpointConfigName"]}
        config = sagemaker.answer("DescribeEndpointConfig", named)
        if "ExecutionRoleArn" in config:
            yield config["ExecutionRoleArn"]
        for variant in validation.variants(config):
            for model in sorted(validation.model_names(variant)):
                yield sagemaker.answer("DescribeModel", {"ModelName": model})["ExecutionRoleArn"]
