"""SageMaker's training plans: reserved machines of one type, for jobs or for endpoints, bought by an offering's id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from standin_http import Call

from toolkit.platforms.local.aws import Region, ServiceError


@dataclass(frozen=True)
class _Offering:
    instance_type: str
    target: str
    status: str = "Active"


OFFERINGS: Mapping[str, _Offering] = {
    "jobs": _Offering("ml.p5.48xlarge", "training-job"),
    "jobs-later": _Offering("ml.p5.48xlarge", "training-job", "Scheduled"),
    "endpoints": _Offering("ml.p5.48xlarge", "endpoint"),
    "endpoints-later": _Offering("ml.p5.48xlarge", "endpoint", "Scheduled"),
}
"""What there is to buy, by its id. A plan is at once what its offering says that it becomes."""


@dataclass
class TrainingPlans:
    """Those that were bought, by ARN, as they are described."""

    bought: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def operations(self) -> dict[str, Any]:
        """By their names in the journal."""
        return {"sagemaker:CreateTrainingPlan": self._create, "sagemaker:DescribeTrainingPlan": self._describe}

    def _create(self, call: Call) -> object:
        name, offering = call.request["TrainingPlanName"], OFFERINGS[call.request["TrainingPlanOfferingId"]]
        arn = Region(call.region).arn("training-plan", name)
        self.bought[arn] = {
            "TrainingPlanArn": arn,
            "TrainingPlanName": name,
            "Status": offering.status,
            "TargetResources": [offering.target],
            "ReservedCapacitySummaries": [
                {
                    "ReservedCapacityArn": Region(call.region).arn("reserved-capacity", name),
                    "InstanceType": offering.instance_type,
                    "TotalInstanceCount": 1,
                    "Status": offering.status,
                }
            ],
        }
        return {"TrainingPlanArn": arn}

    def _describe(self, call: Call) -> object:
        found = self.bought.get(Region(call.region).arn("training-plan", call.request["TrainingPlanName"]))
        if found is None:
            raise ServiceError("Requested resource not found.", code="ResourceNotFound")  # unverified wording
        return found
