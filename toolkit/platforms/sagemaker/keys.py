"""The keys of a recipe that SageMaker reads besides those of every platform."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, StrictStr, StringConstraints, model_validator

from toolkit.recipe.assemble import Sections
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import NetworkSection, ObservabilitySection, PlatformSection, RolloutSection, ScalingSection
from toolkit.recipe.section import NonEmptyStr, PositiveInt, RecipeName, Section
from toolkit.recipe.training_schema import LONGEST_HOURS, TrainingSection

# botocore 1.44.5: TrainingPlanArn, and MlReservationArn for the plans of endpoints.
PlanArn = Annotated[
    StrictStr, StringConstraints(pattern=r"^arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:training-plan/.+$")
]

ANY_TYPE = "ml.m7i.large"
"""Stands in an endpoint configuration, which must have a type, where types mean nothing."""


class ComponentSection(Section):
    """An inference component: the model as a tenant of an endpoint, with copies of its own."""

    endpoint: RecipeName | None = Field(
        None, description="the endpoint it lives on; recipes that name the same one share it; default: one of its own"
    )
    accelerators: PositiveInt | None = Field(
        None, description="accelerators of one copy; default: the tensor parallelism"
    )
    memory_mib: Annotated[StrictInt, Field(ge=128)] = Field(4096, description="host memory that one copy needs, MiB")


class PrefixRoutingSection(Section):
    """How `routing: prefix-aware` groups requests. The limits are those of SageMaker's PrefixAwareRoutingConfig."""

    prefix_length: Annotated[StrictInt, Field(ge=1024, le=65536)] = Field(
        4096, description="how much of the start of requests is compared, in bytes; for chats, in characters"
    )
    concurrency_threshold: Annotated[StrictInt, Field(ge=1, le=1024)] | None = Field(
        None,
        description="an instance with so many requests in progress is passed over; default: engine.max_num_seqs, at "
        "most 1024",
    )


class AwsPlatform(PlatformSection):
    """Where and how an endpoint of SageMaker runs."""

    capacity_timeout: Annotated[StrictInt, Field(ge=300, le=3600)] | None = Field(
        None,
        description="seconds to wait for capacity, for all of `instance_types` together; default: 900 for each, at "
        "most 3600",
    )
    region: Annotated[StrictStr, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]+$")] | None = Field(
        None, description="AWS region; default: your session's"
    )
    role: Annotated[StrictStr, StringConstraints(pattern=r"^(create|[\w+=,.@-]+|arn:aws[a-z-]*:iam::.+)$")] | None = (
        Field(
            None,
            description="execution role: an ARN, a name, or `create`; default: the one of Studio or the environment",
        )
    )
    inference_component: ComponentSection | None = Field(
        None, description="serve as an inference component; write {} for one on an endpoint of its own"
    )
    routing: Literal["least-outstanding-requests", "random", "prefix-aware", "kv-aware"] = Field(
        "least-outstanding-requests", description="how requests are spread over instances"
    )
    prefix_routing: PrefixRoutingSection | None = Field(None, description="settings of `routing: prefix-aware`")
    capacity_reservation: PlanArn | None = Field(
        None, description="ARN of reserved capacity; the endpoint then runs on nothing else"
    )
    staging: Literal["here", "in-account"] = Field(
        "here",
        description="what copies models from the hub to S3. `here`: this machine; `in-account`: a CodeBuild job, which "
        "uses the token of `hub_token_secret`, if there is one",
    )
    kms_key: NonEmptyStr | None = Field(
        None, description="KMS key, id or ARN, that encrypts staged weights, the instances' volumes and built images"
    )
    permissions_boundary: (
        Annotated[StrictStr, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/.+$")] | None
    ) = Field(None, description="ARN of the policy that bounds the roles which `role: create` makes")
    role_path: Annotated[StrictStr, StringConstraints(pattern=r"^/([\w+=,.@-]+/)*$", max_length=512)] = Field(
        "/", description="IAM path of the roles that `role: create` makes, such as /team/"
    )

    @model_validator(mode="after")
    def _prefix_routing_is_used(self) -> AwsPlatform:
        if self.prefix_routing and self.routing != "prefix-aware":
            raise ValueError("`prefix_routing` has settings of prefix-aware routing: add `routing: prefix-aware`")
        return self


class AwsRollout(RolloutSection):
    """How a changed recipe replaces the one that serves, and how traffic is shared with the baseline."""

    update: Literal["all-at-once", "canary", "linear", "rolling"] = Field(
        "all-at-once", description="canary: a first step, then the rest; linear and rolling: step by step"
    )
    step_percent: Annotated[StrictInt, Field(ge=5, le=50)] = Field(10, description="capacity of one step, percent")
    wait_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] = Field(
        300, description="how long alarms are watched after each step"
    )
    alarms: Annotated[list[NonEmptyStr], Field(max_length=5)] = Field(
        default_factory=list, description="CloudWatch alarms that roll an update back, besides the toolkit's own"
    )
    speculative_percent: Annotated[StrictInt, Field(ge=1, le=100)] = Field(
        100, description="percent of the requests that speculate; the others go to a variant without speculation"
    )
    shadow: StrictBool = Field(
        False, description="the variant without speculation answers; the speculative one gets a copy of each request"
    )

    @model_validator(mode="after")
    def _one_experiment(self) -> AwsRollout:
        if self.shadow and self.speculative_percent != 100:
            raise ValueError("a shadow variant answers nobody: remove `speculative_percent`, or `shadow`")
        return self


class AwsNetwork(NetworkSection):
    """The VPC that containers run in, and whether they may call out at all."""

    subnets: list[NonEmptyStr] = Field(default_factory=list, description="subnet ids, in at least two zones")
    security_groups: list[NonEmptyStr] = Field(default_factory=list, description="security group ids")
    isolation: StrictBool = Field(False, description="no network at all for the container; weights come from S3")
    private_registry: StrictBool = Field(False, description="images come from a registry that only the VPC reaches")

    @model_validator(mode="after")
    def _both_or_none(self) -> AwsNetwork:
        if bool(self.subnets) != bool(self.security_groups):
            raise ValueError("`subnets` and `security_groups` belong together: give both, or none")
        if self.private_registry and not self.subnets:
            raise ValueError("a private registry is reached through a VPC: add `subnets` and `security_groups`")
        return self


class AwsObservability(ObservabilitySection):
    """What is watched."""

    alarms: StrictBool | None = Field(None, description="alarms on errors, latency and acceptance; default: on AWS")
    dashboard: StrictBool | None = Field(None, description="a CloudWatch dashboard; default: on AWS")
    notify: Annotated[StrictStr, StringConstraints(pattern=r"^arn:aws[a-z-]*:sns:.+$")] | None = Field(
        None, description="SNS topic that alarms are sent to"
    )
    metrics_seconds: Literal[10, 30, 60, 120, 180, 240, 300] = Field(
        60, description="how often the container's own metrics go to CloudWatch"
    )
    log_retention_days: Literal[
        1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
    ] = Field(30, description="how long the endpoint's log is kept, from when its log group is made")
    log_kms_key: Annotated[StrictStr, StringConstraints(pattern=r"^arn:aws[a-z-]*:kms:.+:key/.+$")] | None = Field(
        None,
        description="ARN of the KMS key that encrypts the log; its key policy must let CloudWatch Logs use it",
    )
    data_capture_percent: Annotated[StrictInt, Field(ge=0, le=100)] = Field(
        0, description="requests and answers that are kept in the toolkit's bucket"
    )


InstanceCount = Annotated[StrictInt, Field(ge=1, le=64)]


class JobInstances(Section):
    """One choice of machines for a training job."""

    type: NonEmptyStr = Field(description="instance type")
    count: InstanceCount | None = Field(
        None, description="machines of this type that train together; default: training.instance_count"
    )
    training_plan: PlanArn | None = Field(
        None, description="ARN of the training plan whose machines these are; default: machines on demand"
    )


class AwsTraining(TrainingSection):
    """The instances of a training job on SageMaker."""

    instance_types: Annotated[list[NonEmptyStr | JobInstances], Field(min_length=1, max_length=5)] | None = Field(
        None,
        description="instead of `instance_type`: several types, of which the first that has capacity is taken",
    )
    instance_count: InstanceCount = Field(1, description="machines that train together")
    training_plan: PlanArn | None = Field(
        None, description="ARN of a training plan (reserved machines); the job then runs on no others"
    )
    keep_alive_minutes: Annotated[StrictInt, Field(ge=1, le=360)] | None = Field(
        None,
        description="minutes that the job's machines are kept, and billed, for a next job like it (a warm pool); "
        "default: none",
    )
    encrypt_traffic: StrictBool = Field(
        False, description="encrypt what the job's machines send each other; training may take longer"
    )
    spot: StrictBool = Field(
        False, description="managed spot training: cheaper; if it is interrupted, it goes on from a checkpoint"
    )
    max_wait_hours: Annotated[float, Field(gt=0, le=LONGEST_HOURS)] | None = Field(
        None, description="with `spot`: longest time for waiting and running together; default: twice max_hours"
    )
    volume_gb: Annotated[StrictInt, Field(ge=1, le=16384)] = Field(
        500, description="disk of the job on SageMaker for data and hidden states, GB"
    )

    @property
    def types(self) -> tuple[str, ...]:
        """Machines that the job may have, the preferred first; empty where it has those that serve."""
        if self.instance_types is None:
            return super().types
        return tuple(item if isinstance(item, str) else item.type for item in self.instance_types)

    @property
    def machine_count(self) -> int:
        """Machines that train together, of the type that is preferred."""
        first = next(iter(self.instance_types or ()), None)
        return (first.count if isinstance(first, JobInstances) else None) or self.instance_count

    @property
    def types_key(self) -> str:
        """The key of a recipe that names them."""
        return "training.instance_types" if self.instance_types else super().types_key

    @model_validator(mode="after")
    def _one_list(self) -> AwsTraining:
        if self.instance_type and self.instance_types:
            raise ValueError("`instance_type` and `instance_types` both say what the job runs on: remove one")
        return self

    @model_validator(mode="after")
    def _waits_for_spot(self) -> AwsTraining:
        if self.max_wait_hours and not self.spot:
            raise ValueError("`max_wait_hours` is for spot instances: add `spot: true`, or remove it")
        if self.max_wait_hours and self.max_wait_hours < self.max_hours:
            raise ValueError(f"max_wait_hours {self.max_wait_hours:g} is below max_hours {self.max_hours:g}")
        return self


SECTIONS: Sections = {
    "platform": AwsPlatform,
    "scaling": ScalingSection,
    "rollout": AwsRollout,
    "network": AwsNetwork,
    "observability": AwsObservability,
    "training": AwsTraining,
}


def aws(recipe: Recipe) -> AwsPlatform:
    return AwsPlatform.of(recipe.platform)


def aws_rollout(recipe: Recipe) -> AwsRollout:
    return AwsRollout.of(recipe.rollout)


def aws_network(recipe: Recipe) -> AwsNetwork:
    return AwsNetwork.of(recipe.network)


def aws_observability(recipe: Recipe) -> AwsObservability:
    return AwsObservability.of(recipe.observability)
