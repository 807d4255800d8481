"""Does SageMaker give the machines that a recipe asks for: reserved, spot, kept warm, or the first of a list?"""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.platforms.sagemaker.keys import AwsTraining, aws
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


def check_reservation(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the reserved machines of an endpoint."""
    plan = aws(recipe).capacity_reservation
    if plan is None:
        return
    if len(recipe.platform.types) > 1:
        message = "a capacity reservation has one instance type, and an endpoint uses one reservation"
        hint = "Keep only the reserved type in platform.instance_types."
        yield Finding("sagemaker.capacity-reservation", message, _RESERVATION, hint=hint)
    yield from _plan(recipe, plan, recipe.platform.types[:1], _RESERVATION, "sagemaker.capacity-reservation")


def check_job(recipe: Recipe) -> Iterator[Finding]:
    """Findings on the machines of the job that trains the recipe's head."""
    if recipe.training is None or (recipe.training.instance_type is None and recipe.leaves_instance_type_open):
        return
    training = AwsTraining.of(recipe.training)
    yield from _spot(training)
    if training.training_plan and training.instance_types:
        message = "a training plan has one instance type, and `instance_types` has others to go on with"
        hint = f"Write it at its type: `instance_types: [{{type: TYPE, training_plan: {training.training_plan}}}, …]`."
        yield Finding("sagemaker.training-plan", message, "training.training_plan", hint=hint)
        return
    yield from _keyless(recipe)
    found = choices(recipe)
    for index, item in enumerate(found):
        path = f"{_ONE_BY_ONE}.{index}"
        if item.type in [other.type for other in found[:index]]:
            yield Finding("sagemaker.same-type", f"{item.type} is listed twice", path, hint="Remove one of the two.")
        if item.training_plan:
            at = "training.training_plan" if training.training_plan else f"{path}.training_plan"
            yield from _plan(recipe, item.training_plan, (item.type,), at, "sagemaker.training-plan")


def _spot(training: AwsTraining) -> Iterator[Finding]:
    """Of what spot instances cannot have besides."""
    if not training.spot:
        return
    plans = [item.training_plan for item in training.instance_types or () if not isinstance(item, str)]
    has_plan = training.training_plan or any(plans)
    for key, is_written, why in (
        ("training_plan", has_plan, "the machines of a training plan are no spot instances"),
        ("keep_alive_minutes", training.keep_alive_minutes, "spot instances are not kept for a next job"),
        ("instance_types", training.instance_types, "SageMaker takes spot instances of one type only"),
    ):
        if is_written:
            hint = f"Remove `spot`, or `{key}`."
            yield Finding("sagemaker.training-spot", why, "training.spot", hint=hint)


def _keyless(recipe: Recipe) -> Iterator[Finding]:
    """Of a key that SageMaker takes for none of the types, because some need none."""
    without = [item.type for item in choices(recipe) if not own_disk_gb(recipe, item.type)]
    own = [item.type for item in choices(recipe) if own_disk_gb(recipe, item.type)]
    if aws(recipe).kms_key and without and own:
        message = (
            f"SageMaker takes no key where a type has disks of its own, as {own[0]} has: the volume of {without[0]} "
            "would not be encrypted with platform.kms_key"
        )
        hint = "Name types that all have disks of their own, which encrypt by themselves, or that all have none."
        yield Finding("sagemaker.training-key", message, _ONE_BY_ONE, hint=hint)


def _plan(recipe: Recipe, arn: str, types: tuple[str, ...], path: str, code: str) -> Iterator[Finding]:
    """Of a plan that cannot have these machines."""
    region = arn.split(":")[3]
    if recipe.region and region != recipe.region:
        message = f"this plan is of {region}, and the recipe runs in {recipe.region}"
        yield Finding(code, message, path, hint=f"Name a plan of {recipe.region}, or set `region: {region}`.")
    for name in types:
        if name not in PLANNED_TYPES:
            message = f"training plans offer other types than {name}, and a plan's machines are of its own type"
            hint = f"Name the type of your plan, one of: {', '.join(PLANNED_TYPES)}."
            yield Finding(code, message, path, hint=hint, severity="warning")
