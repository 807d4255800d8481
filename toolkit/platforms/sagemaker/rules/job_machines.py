"""The machines of a training job on SageMaker: which they may be, what they cost, and what a plan says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolkit.platforms.sagemaker.keys import AwsTraining, JobInstances, aws, aws_network
from toolkit.platforms.sagemaker.rules import price
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Disk
from toolkit.training.plan import section


def job_section(recipe: Recipe) -> AwsTraining:
    """What the recipe says of its job. Raises UsageError for a recipe without `training`."""
    return AwsTraining.of(section(recipe))


def choices(recipe: Recipe) -> Sequence[JobInstances]:
    """The machines that the job may have, the preferred first, each with its number and its training plan."""
    training = job_section(recipe)
    written = training.instance_types or training.types or recipe.platform.types[:1]
    made = [JobInstances(type=item) if isinstance(item, str) else item for item in written]
    return [
        item.edit(
            count=item.count or training.instance_count, training_plan=item.training_plan or training.training_plan
        )
        for item in made
    ]


def resource_config(recipe: Recipe) -> dict[str, Any]:
    """ResourceConfig of CreateTrainingJob. Counts stand at the types, or at all of them together."""
    training, found = job_section(recipe), choices(recipe)
    counts = {item.count for item in found}
    config: dict[str, Any] = {"VolumeSizeInGB": training.volume_gb}
    if training.instance_types is None:
        config["InstanceType"] = found[0].type
    else:
        config["InstancePreferences"] = [_preference(item, len(counts) > 1) for item in found]
    if len(counts) == 1:
        config["InstanceCount"] = found[0].count
    if training.training_plan:
        config["TrainingPlanArn"] = training.training_plan
    if training.keep_alive_minutes:
        config["KeepAlivePeriodInSeconds"] = training.keep_alive_minutes * 60
    if has_encrypted_volume(recipe):
        config["VolumeKmsKeyId"] = aws(recipe).kms_key
    return config


def _preference(item: JobInstances, has_count: bool) -> dict[str, Any]:
    return {
        "InstanceType": item.type,
        **({"InstanceCount": item.count} if has_count else {}),
        **({"TrainingPlanArns": [item.training_plan]} if item.training_plan else {}),
    }


def has_encrypted_volume(recipe: Recipe) -> bool:
    """SageMaker refuses a key for the volume of types that have disks of their own, which encrypt by themselves."""
    return bool(aws(recipe).kms_key) and not any(own_disk_gb(recipe, item.type) for item in choices(recipe))


def own_disk_gb(recipe: Recipe, instance_type: str) -> float:
    """What a type has of its own; 0 if it has none, or is not known."""
    instance = recipe.platform_rules.instance(instance_type)
    return instance.local_nvme_gb if instance else 0


def disk(recipe: Recipe) -> Disk:
    """The job's volume, or the disks that its instances bring: the least that it may have."""
    types = [item.type for item in choices(recipe)]
    size = job_section(recipe).volume_gb
    least = min(types, key=lambda name: own_disk_gb(recipe, name) or size)
    if own := own_disk_gb(recipe, least):
        more = "Set another `instance_type`"
        return Disk(f"{least} with its own disks", round(own * 1e9), job_section(recipe).types_key, more, empty=True)
    more = "Set a larger `volume_gb`"
    return Disk("the job's volume", round(size * 1e9), "training.volume_gb", more, empty=True)


def price_per_hour(recipe: Recipe) -> float | None:
    """US dollars per hour of the job's instances on demand: the price of hosting, which AWS also asks for training.

    Of several choices the dearest. None if that is unknown, and of machines that are all paid in advance.
    """
    each = [(price.price_of(item.type, recipe.region), item.count or 1) for item in _billed(recipe)]
    known = [usd * count for usd, count in each if usd is not None]
    return recipe.discounted(max(known)) if known and len(known) == len(each) else None


def price_text(recipe: Recipe) -> str:
    """Why there is no price of the job."""
    billed = [item.type for item in _billed(recipe)]
    unknown = [name for name in billed if price.price_of(name, recipe.region) is None]
    return f"? $/h: {price.why_unknown(unknown, recipe.region)}" if billed else price.RESERVED


def _billed(recipe: Recipe) -> Sequence[JobInstances]:
    """What has a list price. A plan has none, but for a discount that says what it costs less than that."""
    return [item for item in choices(recipe) if not item.training_plan or recipe.discount_percent]


def notes(recipe: Recipe) -> Iterator[str]:
    """Notes for a plan of `toolkit train`: what the machines cost besides, and what decides when there are some."""
    training, found = job_section(recipe), choices(recipe)
    if training.spot:
        yield "Spot instances cost less than that: by how much, AWS says of the job that has ended"
    if len(found) > 1:
        names = ", ".join(item.type for item in found)
        yield f"The job runs on the first of {names} that has capacity; the price is that of the dearest"
    for item in found:
        if item.training_plan:
            plan = item.training_plan.rpartition("/")[2]
            yield (
                f"{item.type} of plan {plan} is paid in advance, whether a job uses it or not; until the plan begins, "
                "the job waits"
            )
    if training.keep_alive_minutes:
        yield _warm(recipe, training.keep_alive_minutes)
    if training.encrypt_traffic and aws_network(recipe).security_groups:
        yield (
            "`encrypt_traffic` in a VPC: the security groups must let UDP 500 and protocol 50 (ESP) in and out "
            "among themselves"
        )


def _warm(recipe: Recipe, minutes: int) -> str:
    hourly = price_per_hour(recipe)
    more = "" if hourly is None else f", at most {hourly * minutes / 60:.2f} $ more"
    return (
        f"After the job its machines are kept for {minutes} min and billed{more}, unless the next job like it takes "
        "them before; the account's quota for training warm pools is 0 until you raise it, and then nothing is kept"
    )
