"""Does SageMaker give the machines that a recipe asks for: reserved, spot, kept warm, or the first of a list?

Does the account have the training plans that it names, and are they for what it wants of them?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.findings import Finding
from toolkit.platforms.sagemaker.keys import AwsTraining, aws
from toolkit.platforms.sagemaker.rules.arms import instances, shadows, variants
from toolkit.platforms.sagemaker.rules.job_machines import choices, own_disk_gb
from toolkit.recipe.recipe import Recipe

PLANNED_TYPES = (
    "ml.p4d.24xlarge",
    "ml.p4de.24xlarge",
    "ml.p5.4xlarge",
    "ml.p5.48xlarge",
    "ml.p5e.48xlarge",
    "ml.p5en.48xlarge",
    "ml.p6-b200.48xlarge",
    "ml.p6-b300.48xlarge",
    "ml.p6e-gb200.36xlarge",
    "ml.trn1.32xlarge",
    "ml.trn2.48xlarge",
)
"""Types that training plans offer. botocore 1.44.5: ReservedCapacityInstanceType; a test compares them."""

_RESERVATION = "platform.capacity_reservation"
_ONE_BY_ONE = "training.instance_types"


@dataclass(frozen=True)
class PlanUse:
    """A training plan that a recipe names in the key `path`, for machines of its `target`: endpoint or training-job."""

    arn: str
    instance_type: str
    count: int
    target: str
    path: str

    @property
    def code(self) -> str:
        """Of findings on it."""
        return "sagemaker.capacity-reservation" if self.target == "endpoint" else "sagemaker.training-plan"


def plan_uses(recipe: Recipe) -> Iterator[PlanUse]:
    """All of them. The number of machines is what it starts with."""
    is_open = recipe.leaves_instance_type_open
    if (plan := aws(recipe).capacity_reservation) and not is_open:
        count = instances(recipe) * (len(variants(recipe)) + len(shadows(recipe)))
        yield PlanUse(plan, recipe.platform.types[0], count, "endpoint", _RESERVATION)
    if recipe.training is None or (is_open and not recipe.training.types):
        return
    training = AwsTraining.of(recipe.training)
    for index, item in enumerate(choices(recipe)):
        if item.training_plan:
            path = "training" if training.training_plan else f"{_ONE_BY_ONE}.{index}"
            yield PlanUse(item.training_plan, item.type, item.count or 1, "training-job", f"{path}.training_plan")


def check_capacity(recipe: Recipe) -> Iterator[Finding]:
    """Findings on reserved machines, and on those of the job that trains the recipe's head."""
    if aws(recipe).capacity_reservation and len(recipe.platform.types) > 1:
        message = "a capacity reservation has one instance type, and an endpoint uses one reservation"
        hint = "Keep only the reserved type in platform.instance_types."
        yield Finding("sagemaker.capacity-reservation", message, _RESERVATION, hint=hint)
    training = AwsTraining.of(recipe.training) if recipe.training else None
    if training:
        yield from _spot(training)
    if training and training.training_plan and training.instance_types:
        message = "a training plan has one instance type, and `instance_types` has others to go on with"
        hint = f"Write it at its type: `instance_types: [{{type: TYPE, training_plan: {training.training_plan}}}, …]`."
        yield Finding("sagemaker.training-plan", message, "training.training_plan", hint=hint)
        return
    if training:
        yield from _list(recipe, training.types)
    for use in plan_uses(recipe):
        yield from _plan(recipe, use)


def _spot(training: AwsTraining) -> Iterator[Finding]:
    """Of what spot instances cannot have besides."""
    if not training.spot:
        return
    for key, is_written, why in (
        ("training_plan", training.training_plan, "the machines of a training plan are no spot instances"),
        ("keep_alive_minutes", training.keep_alive_minutes, "spot instances are not kept for a next job"),
        ("instance_types", training.instance_types, "SageMaker takes spot instances of one type only"),
    ):
        if is_written:
            hint = f"Remove `spot`, or `{key}`."
            yield Finding("sagemaker.training-spot", why, "training.spot", hint=hint)


def _list(recipe: Recipe, types: Sequence[str]) -> Iterator[Finding]:
    """Of a list of types: one that is in it twice, and a key that SageMaker takes for none because some need none."""
    for index, name in enumerate(types):
        if name in types[:index]:
            path = f"{_ONE_BY_ONE}.{index}"
            yield Finding("sagemaker.same-type", f"{name} is listed twice", path, hint="Remove one of the two.")
    without = [name for name in types if not own_disk_gb(recipe, name)]
    own = [name for name in types if own_disk_gb(recipe, name)]
    if aws(recipe).kms_key and without and own:
        message = (
            f"SageMaker takes no key where a type has disks of its own, as {own[0]} has: the volume of {without[0]} "
            "would not be encrypted with platform.kms_key"
        )
        hint = "Name types that all have disks of their own, which encrypt by themselves, or that all have none."
        yield Finding("sagemaker.training-key", message, _ONE_BY_ONE, hint=hint)


def _plan(recipe: Recipe, use: PlanUse) -> Iterator[Finding]:
    """Of a plan that cannot have these machines."""
    region = use.arn.split(":")[3]
    if recipe.region and region != recipe.region:
        message = f"this plan is of {region}, and the recipe runs in {recipe.region}"
        yield Finding(use.code, message, use.path, hint=f"Name a plan of {recipe.region}, or set `region: {region}`.")
    if use.instance_type not in PLANNED_TYPES:
        message = (
            f"training plans offer other types than {use.instance_type}, and a plan's machines are of its own type"
        )
        hint = f"Name the type of your plan, one of: {', '.join(PLANNED_TYPES)}."
        yield Finding(use.code, message, use.path, hint=hint, severity="warning")


_CODE = "account.training-plan"
_FOR = {"endpoint": "endpoints", "training-job": "training jobs"}


@dataclass(frozen=True)
class BoughtPlan:
    """A training plan of the account: its status, what it is for, and how many machines of each type."""

    status: str
    targets: tuple[str, ...]
    machines: Mapping[str, int]


def check_plans(recipe: Recipe, plans: Mapping[str, BoughtPlan | None]) -> Iterator[Finding]:
    """Findings on plans by ARN; None is one that does not exist, and of one that was not read nothing is said."""
    for use in plan_uses(recipe):
        if use.arn not in plans:
            continue
        name, plan = use.arn.rpartition("/")[2], plans[use.arn]
        if message := _problem(use, plan):
            hint = f"Name another. Yours: aws sagemaker list-training-plans --region {use.arn.split(':')[3]}"
            yield Finding(_CODE, f"training plan {name} {message}", use.path, hint=hint)


def _problem(use: PlanUse, plan: BoughtPlan | None) -> str:
    """What is wrong with it; empty if nothing is. A job may wait for a plan that has not begun, an endpoint may not."""
    if plan is None:
        return "does not exist"
    if use.target not in plan.targets:
        bought = " and ".join(_FOR.get(target, target) for target in plan.targets)
        return f"is for {bought}, not for {_FOR[use.target]}"
    if use.instance_type not in plan.machines:
        return f"is of {', '.join(plan.machines)}, not of {use.instance_type}"
    if plan.status in ("Expired", "Failed") or (use.target == "endpoint" and plan.status != "Active"):
        return f"is {plan.status}"
    if plan.machines[use.instance_type] < use.count:
        return f"has {plan.machines[use.instance_type]} {use.instance_type}, and {use.count} are wanted"
    return ""
