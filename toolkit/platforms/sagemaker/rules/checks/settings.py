"""Does SageMaker accept the settings and instance types, and is the container ready before its time-outs?"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator

from toolkit.catalog import lookup
from toolkit.catalog.lookup import Instance
from toolkit.engines import registry as engine_registry
from toolkit.engines.arguments import builds, fetched_by_container
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.keys import aws, aws_network, aws_observability
from toolkit.platforms.sagemaker.rules import in_account
from toolkit.platforms.sagemaker.rules.checks.capacity import check_capacity
from toolkit.platforms.sagemaker.rules.checks.component import check_component, check_rollout
from toolkit.platforms.sagemaker.rules.checks.environment import check_environment, check_quoting, check_region
from toolkit.platforms.sagemaker.rules.names import ML
from toolkit.recipe.facts import Lock
from toolkit.recipe.lock import load_seconds
from toolkit.recipe.recipe import Recipe

_TYPES = "platform.instance_types"
_TIMEOUT = "platform.health_check_timeout"
# Minimum for compiling and capturing CUDA graphs; and SageMaker's limit.
_START_SECONDS, _LONGEST_SECONDS = 180, 3600
# botocore 1.44.5: Subnets and VpcSecurityGroupIds of VpcConfig.
_MOST_SUBNETS, _MOST_SECURITY_GROUPS = 16, 5
# Of a KMS key: in its short form, and in its ARN.
_ALIAS = "alias/"
# Without an instance store, SageMaker downloads to an EBS volume of at most this size.
LARGEST_VOLUME_GB = 512


def check_sagemaker(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    """Findings on environment, instance types, time-outs and SageMaker's own settings."""
    yield from check_environment(recipe)
    yield from check_quoting(recipe)
    yield from _instance_types(recipe, models)
    yield from _network(recipe)
    yield from _staging(recipe)
    yield from _routing(recipe)
    yield from check_capacity(recipe)
    yield from _key(recipe)
    yield from _elsewhere(recipe)
    yield from check_component(recipe)
    yield from check_rollout(recipe)
    if models:
        yield from _start(recipe, models)
    yield from check_region(recipe)


def _instance_types(recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
    if recipe.leaves_instance_type_open:
        return
    for index, name in enumerate(recipe.platform.types):
        path = f"{_TYPES}.{index}"
        instance = lookup.instance(name)
        if name in recipe.platform.types[:index]:
            yield Finding("sagemaker.same-type", f"{name} is listed twice", path, hint="Remove one of the two.")
        elif instance is None and name not in recipe.unlisted:
            yield _unknown(name, path)
        elif instance is None:
            continue
        elif not instance.hostable:
            yield _cannot_host(instance, path)
        else:
            yield from _accelerator(recipe, instance, path)
            yield from _one_instance(recipe.on(name), instance, path)
            if models:
                yield from _disk(models, instance, path)


def _cannot_host(instance: Instance, path: str) -> Finding:
    on_kubernetes = f"Use {instance.name.removeprefix(ML)} on a cluster (`name: kubernetes`); or see"
    hint = f"{on_kubernetes if instance.neuron_cores else 'See'}: toolkit fit RECIPE"
    return Finding("sagemaker.instance-type", f"{instance.name} cannot host endpoints", path, hint=hint)


def _unknown(name: str, path: str) -> Finding:
    if meant := lookup.instance(f"{ML}{name}"):
        if not meant.hostable:
            return _cannot_host(meant, path)
        message = f"{name} is EC2's name of an instance type; SageMaker's names begin with `{ML}`"
        return Finding("sagemaker.instance-type", message, path, hint=f"Write {ML}{name}.")
    if having := [each.name for each in lookup.instances() if each.hostable and _has_accelerator(each, name)]:
        hint = f"Write a type that has it: {', '.join(having[:4])}."
        return Finding("sagemaker.instance-type", f"{name} is an accelerator, not an instance type", path, hint=hint)
    near = difflib.get_close_matches(name, [instance.name for instance in lookup.instances()], n=1)
    hint = f"Did you mean `{near[0]}`?" if near else "See: toolkit fit RECIPE."
    hint += f" If it is newer than the catalogue, write `unlisted: [{name}]`."
    return Finding("sagemaker.instance-type", f"{name} is not a known instance type", path, hint=hint)


def _has_accelerator(instance: Instance, name: str) -> bool:
    return name.lower() in instance.accelerator.lower().split()


def _accelerator(recipe: Recipe, instance: Instance, path: str) -> Iterator[Finding]:
    if recipe.engine_rules.hardware:
        return
    if not recipe.engine_rules.runs_on(instance):
        message = (
            f"{recipe.engine.name} images of this platform need NVIDIA GPUs of Turing or newer and x86 CPUs, but "
            f"{instance.name} has {instance.processors}"
        )
        other = engine_registry.engine_for(instance)
        choose = f"Write `engine: {{name: {other}}}`, or choose" if other else "Choose"
        yield Finding("sagemaker.accelerator", message, path, hint=f"{choose} one of: toolkit fit RECIPE")


def _one_instance(recipe: Recipe, instance: Instance, path: str) -> Iterator[Finding]:
    """A copy of a model is in one container on one instance (CreateModel, ProductionVariant)."""
    needed, there = recipe.engine_rules.accelerators(recipe, instance), instance.accelerator_count
    if needed > there > 0 and not recipe.engine_rules.hardware:
        message = f"the engine takes {needed} GPUs, but {instance.name} has {there}, and SageMaker divides no model"
        nodes = f"`platform: {{name: kubernetes, kubernetes: {{nodes: {-(-needed // there)}}}}}`"
        hint = f"Choose a larger type, lower the parallelism in engine.args, or serve it on Kubernetes, by {nodes}."
        yield Finding("sagemaker.one-instance", message, path, hint=hint)


def _disk(models: Lock, instance: Instance, path: str) -> Iterator[Finding]:
    needed = _weight_bytes(models) / 1e9
    room = instance.local_nvme_gb or LARGEST_VOLUME_GB
    if needed > room:
        message = f"{needed:.0f} GB of weights do not fit the {room} GB disk of {instance.name}"
        yield Finding("sagemaker.disk", message, path, hint="Use a type with a larger instance store.")


def _network(recipe: Recipe) -> Iterator[Finding]:
    network = aws_network(recipe)
    from_hub = [source for source in recipe.models.values() if fetched_by_container(recipe, source)]
    if network.isolation and from_hub:
        message = f"an isolated container has no network to download {from_hub[0]} from the hub"
        hint = "Set `weights: s3`, or remove `isolation`."
        yield Finding("sagemaker.isolation", message, "platform.weights", hint=hint)
    if recipe.platform.hub_token_secret and from_hub:
        message = (
            f"the container downloads {from_hub[0]} itself, but AWS's image cannot read a token from Secrets Manager"
        )
        hint = (
            "Set `weights: s3`, so that the toolkit reads the token and stages the model; or remove `hub_token_secret`."
        )
        yield Finding("sagemaker.hub-token", message, "platform.hub_token_secret", hint=hint)
    for key, ids, most in (
        ("subnets", network.subnets, _MOST_SUBNETS),
        ("security_groups", network.security_groups, _MOST_SECURITY_GROUPS),
    ):
        if len(ids) > most:
            message = f"{len(ids)} {key.replace('_', ' ')}, but SageMaker allows {most}"
            yield Finding("sagemaker.vpc", message, f"network.{key}", hint="Remove some.")
    if network.private_registry:
        message = (
            "unverified: SageMaker may not accept images in Amazon ECR, as the toolkit's are, with `private_registry`"
        )
        hint = "Remove it: SageMaker can pull images from ECR without your VPC."
        yield Finding("sagemaker.private-registry", message, "network.private_registry", hint=hint, severity="warning")


def _staging(recipe: Recipe) -> Iterator[Finding]:
    if aws(recipe).staging != "in-account":
        return
    if not in_account.staged_from_hub(recipe):
        message = (
            "a job in the account copies models from the hub to S3, and this recipe has none to copy: folders are sent "
            "from this machine, S3 and JumpStart are read where they are, and with `weights: hub` containers download"
        )
        yield Finding("sagemaker.staging", message, in_account.KEY, hint="Remove it.", severity="warning")
    elif why := in_account.unreachable(recipe.region):
        hint = "Remove it: this machine sends the weights then."
        yield Finding("sagemaker.staging", why, in_account.KEY, hint=hint)


def _routing(recipe: Recipe) -> Iterator[Finding]:
    if aws(recipe).routing in ("prefix-aware", "kv-aware") and recipe.scaling.max_instances == 1:
        message = f"`{aws(recipe).routing}` chooses between instances, but the endpoint never has more than one"
        hint = "Remove it, or raise scaling.max_instances."
        yield Finding("sagemaker.routing", message, "platform.routing", hint=hint, severity="info")
    if aws(recipe).routing == "kv-aware" and (builds(recipe) or recipe.target.kind == "jumpstart"):
        message = "`kv-aware` works only in containers that support it; whether this image does is not known"
        hint = "Use `prefix-aware`, or make sure that the image supports it."
        yield Finding("sagemaker.routing", message, "platform.routing", hint=hint, severity="warning")


def _key(recipe: Recipe) -> Iterator[Finding]:
    own_disk = [name for name in recipe.platform.types if (type_ := lookup.instance(name)) and type_.local_nvme_gb]
    kms_key = aws(recipe).kms_key
    if kms_key and _ALIAS in kms_key:
        message = "this is a key's alias: a role's policy that names an alias allows nothing"
        key = shlex.quote(kms_key)
        hint = f"Write the key's ARN: aws kms describe-key --key-id {key} --query KeyMetadata.Arn"
        yield Finding("sagemaker.kms-alias", message, "platform.kms_key", hint=hint)
    if kms_key and own_disk:
        message = f"the disk of {own_disk[0]} is encrypted by its hardware, not with this key"
        hint = "Keep it only if you need it for data in S3."
        yield Finding("sagemaker.kms-key", message, "platform.kms_key", hint=hint, severity="info")


def _elsewhere(recipe: Recipe) -> Iterator[Finding]:
    """What AWS takes in the endpoint's region only, named by an ARN of another one."""
    settings = aws_observability(recipe)
    named = {
        "platform.kms_key": aws(recipe).kms_key,
        "observability.log_kms_key": settings.log_kms_key,
        "observability.notify": settings.notify,
    }
    for path, arn in named.items():
        region = "".join((arn or "").split(":")[3:4])
        if recipe.region and region not in ("", recipe.region):
            message = f"this is of {region}, and the recipe runs in {recipe.region}, where AWS refuses it"
            hint = f"Name one of {recipe.region}, or set `platform.region` to {region}."
            yield Finding("sagemaker.other-region", message, path, hint=hint)


def _start(recipe: Recipe, models: Lock) -> Iterator[Finding]:
    """Findings on a health check time-out that the recipe sets itself."""
    size = _weight_bytes(models)
    seconds = round(load_seconds(recipe, size)) + _START_SECONDS
    if recipe.platform.health_check_timeout and recipe.platform.health_check_timeout < min(seconds, _LONGEST_SECONDS):
        message = (
            f"{size / 1e9:.0f} GB of weights take up to {seconds} s to load (an estimate), "
            f"the container is given {recipe.platform.health_check_timeout}"
        )
        yield Finding(
            "sagemaker.health-check", message, _TIMEOUT, hint="Remove the key, or raise it.", severity="warning"
        )


def _weight_bytes(models: Lock) -> int:
    return (models.target.weight_bytes or 0) + (models.drafter.weight_bytes or 0 if models.drafter else 0)
