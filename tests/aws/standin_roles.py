"""The alarms of an update, which SageMaker looks at as the execution role."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moto.cloudwatch.models import cloudwatch_backends
from standin_http import Call
from standin_iam import Iam
from standin_policies import Access

from toolkit.platforms.local import validation
from toolkit.platforms.local.aws import ACCOUNT, Region, ServiceError
from toolkit.platforms.local.service import SageMaker


class Alarms:
    """The alarms that roll back an update, which SageMaker looks at as the execution role."""

    def __init__(self, iam: Callable[[], Iam], sagemaker: Callable[[str], SageMaker]) -> None:
        self._iam, self._sagemaker = iam, sagemaker

    def must_be_visible(self, call: Call) -> None:
        """Raise ServiceError when an execution role may not look at an alarm of the request.

        Developer guide, deployment-guardrails-configuration: "Ensure that your IAM execution role has permission to
        perform the cloudwatch:DescribeAlarms action on the auto-rollback alarms you specify". API reference of
        DescribeAlarms: composite alarms are seen only with a permission "scoped to *". Unverified: that the update is
        refused at once, and which role it is for a component: both are asked.
        """
        rollback = call.request.get("DeploymentConfig", {}).get("AutoRollbackConfiguration", {})
        here = cloudwatch_backends[ACCOUNT][call.region].alarms
        alarms = [here[item["AlarmName"]] for item in rollback.get("Alarms", []) if item["AlarmName"] in here]
        for arn in dict.fromkeys(self._roles(call)) if alarms else ():
            for alarm in alarms:
                resource = "*" if alarm.rule else alarm.alarm_arn
                if not self._iam().may(Access(arn, "cloudwatch:DescribeAlarms", resource)):
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
            named = {"InferenceComponentName": request["InferenceComponentName"]}
            component = sagemaker.answer("DescribeInferenceComponent", named)
            if "ModelName" in component.get("Specification", {}):
                model = {"ModelName": component["Specification"]["ModelName"]}
                yield sagemaker.answer("DescribeModel", model)["ExecutionRoleArn"]
            request = sagemaker.answer("DescribeEndpoint", {"EndpointName": component["EndpointName"]})
        named = {"EndpointConfigName": request["EndpointConfigName"]}
        config = sagemaker.answer("DescribeEndpointConfig", named)
        if "ExecutionRoleArn" in config:
            yield config["ExecutionRoleArn"]
        for variant in validation.variants(config):
            for model in sorted(validation.model_names(variant)):
                yield sagemaker.answer("DescribeModel", {"ModelName": model})["ExecutionRoleArn"]
