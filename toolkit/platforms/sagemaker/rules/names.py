"""Names on AWS: the bucket and what lies in it, roles, tags, what autoscaling scales."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.planning.names import tag_map
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.rules.arms import BASELINE, SPECULATIVE, VARIANT
from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe

ML = "ml."
"""Prefix of SageMaker's instance type names."""

PREVIOUS_TAG = "toolkit:previous"
"""Tag of an endpoint: the EndpointConfigs that it ran before, oldest first, for `toolkit rollback`."""

PAUSED_TAG = "toolkit:paused"
"""Tag of the EndpointConfig of a paused endpoint: when it was paused, in seconds since 1970."""

PACKAGE_TAG = "model-package"
"""Tag of what is deployed from the model registry: the ARN of the version."""

PACKAGE_GROUP = r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}"
"""Names of model package groups, as a pattern (botocore 1.44.5, ModelPackageGroupName)."""

WEIGHTS_PREFIX = "weights/"
USES_PREFIX = "uses/"
"""Prefixes in the toolkit's bucket: weights by content, and empty objects `uses/<weights>/<endpoint>`."""

STAGED_PREFIX = "staged/"
"""Name of the empty object that marks weights from the hub as complete."""

STAGING_JOBS_PREFIX = "staging-jobs/"
"""Prefix in the toolkit's bucket: what jobs that stage weights work on, while they run."""

LEASES_PREFIX = "leases/"
"""Prefix in the toolkit's bucket: leases of endpoints that are being changed."""

CAPTURE_PREFIX = "capture/"
"""Prefix in the toolkit's bucket: captured requests and answers."""

TRAINING_PREFIX = "training/"
"""Prefix in the toolkit's bucket: checkpoints and output of training jobs, by recipe and key."""

BUCKET_VARIABLE = "TOOLKIT_BUCKET"
"""Environment variable that names a bucket of the user's own, which takes the place of the toolkit's."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_LONGEST_ROLE_NAME, _DIGEST_CHARACTERS = 64, 8
TRACKING, FROM_ZERO = "concurrency", "from-zero"
"""Names of the policies."""

COMPONENT = "inference-component/"
_REGISTERED = "registered."


def on_aws(recipe: Recipe) -> bool:
    """Whether it is AWS that the recipe runs on, and not this machine, which has the same API."""
    return recipe.platform_rules.facts.has_instance_types


def bucket_name(account: Account) -> str:
    """Name of the bucket in an account and region: the toolkit's, or the user's own."""
    return account.bucket or f"toolkit-{account.id}-{account.region}"


def own_bucket(environ: Mapping[str, str]) -> str:
    """The bucket of the user's own that the environment names; empty if it names none. Raises UsageError.

    It is the account's, as the profile is, and not a recipe's: all recipes have their leases and weights in it.
    """
    name = environ.get(BUCKET_VARIABLE, "")
    if name and not _BUCKET.fullmatch(name):
        raise UsageError(f"${BUCKET_VARIABLE}: {name} is not the name of a bucket", hint="Set it to the name alone.")
    return name


def ran_before(tag: str | None, running: str) -> str | None:
    """The config that an endpoint ran before `running`, from its PREVIOUS_TAG; `running` if an update was rolled back.

    The tag is written before an update. If the update never happens, its last name is the running config.
    """
    names = (tag or "").split()
    return next((name for name in reversed(names) if name != running), names[-1] if names else None)


def remembered(tag: str | None, running: str) -> str:
    """The PREVIOUS_TAG for an update from `running`.

    The config before it is kept, too: it remains what a rollback brings back if the update never happens.
    """
    older = ran_before(tag, running)
    return running if older in (None, running) else f"{older} {running}"


def role_name(endpoint: str, account: Account) -> str:
    """Name of the execution role created for an endpoint. It has the region, because IAM's names hold for all regions.

    Longer names than IAM allows are shortened, with a digest of the endpoint's.
    """
    end = f"-{account.region}"
    if len(name := f"toolkit-{endpoint}{end}") <= _LONGEST_ROLE_NAME:
        return name
    end = f"-{digest(endpoint)[:_DIGEST_CHARACTERS]}{end}"
    return f"toolkit-{endpoint}"[: _LONGEST_ROLE_NAME - len(end)] + end


def made_role_arn(recipe: Recipe, account: Account, owner: str) -> str:
    """ARN of the role that `role: create` makes for an endpoint or for jobs."""
    path = aws(recipe).role_path
    return f"arn:{account.partition}:iam::{account.id}:role{path}{role_name(owner, account)}"


def compiler(recipe: str) -> str:
    """Owner of the role of a recipe's compile jobs, which may write what an endpoint may only read."""
    return f"{recipe}-compile"


def trainer(recipe: str) -> str:
    """Owner of the role of the jobs that train a recipe's head, which may read its data and write checkpoints."""
    return f"{recipe}-train"


def tags(recipe: Recipe, endpoint: str | None = None) -> list[dict[str, str]]:
    """The recipe's tags and the toolkit's, as AWS lists them; `endpoint` if it differs from the recipe's name."""
    return [{"Key": key, "Value": value} for key, value in sorted(tag_map(recipe, endpoint).items())]


def key_arn(key: str, account: Account) -> str:
    """The ARN of a KMS key of the account, from its id or its ARN."""
    return key if key.startswith("arn:") else f"arn:{account.partition}:kms:{account.region}:{account.id}:key/{key}"


def secret_arn(secret: str, account: Account) -> str:
    """The ARN of a secret in policies, from its name or ARN: Secrets Manager puts six characters behind the name.

    A `*` for them would take in the secrets whose names go on with a hyphen.
    """
    arn = f"arn:{account.partition}:secretsmanager:{account.region}:{account.id}:secret:{secret}-??????"
    return secret if secret.startswith("arn:") else arn


def has_local_disk(instance_type: str) -> bool:
    """Whether its instances bring disks of their own, which encrypt by themselves: SageMaker refuses a key for them."""
    instance = lookup.instance(instance_type)
    return instance is None or instance.local_nvme_gb > 0


def volume_key(recipe: Recipe) -> str | None:
    """The KMS key that encrypts the volumes of the recipe's instances."""
    return None if any(map(has_local_disk, recipe.platform.types)) else aws(recipe).kms_key


def resource_ids(name: str) -> list[str]:
    """Resource ids of all scalable targets that an endpoint or inference component may have."""
    return [*(f"endpoint/{name}/variant/{variant}" for variant in (VARIANT, SPECULATIVE, BASELINE)), COMPONENT + name]


def variant_of(endpoint: str, name: str) -> str:
    """The variant of the endpoint that a target or policy of that name scales; empty if it scales something else."""
    prefix = f"endpoint/{endpoint}/variant/"
    return name.removeprefix(prefix).partition("/")[0] if name.startswith(prefix) else ""


def scalable(resource_id: str) -> dict[str, Any]:
    """The fields that identify a target in Application Auto Scaling's requests."""
    dimension = (
        "inference-component:DesiredCopyCount" if resource_id.startswith(COMPONENT) else "variant:DesiredInstanceCount"
    )
    return {"ServiceNamespace": "sagemaker", "ResourceId": resource_id, "ScalableDimension": f"sagemaker:{dimension}"}


def scale_from_zero_alarm(resource_id: str) -> str:
    """Name of the alarm that triggers the policy `from-zero`."""
    return f"toolkit-{resource_id.removeprefix(COMPONENT)}-{FROM_ZERO}"


def registered(group: str) -> str:
    """Who uses what the versions of a model package group need. No endpoint has a dot in its name.

    Raises UsageError for no name of a group.
    """
    if re.fullmatch(PACKAGE_GROUP, group) is None:
        hint = "Use 1 to 63 letters, digits and hyphens, such as my-model."
        raise UsageError(f"group: {group} is no name of a model package group", hint=hint)
    return f"{_REGISTERED}{group}"


def registered_group(owner: str) -> str:
    """The group that `registered` made the name for; empty for an endpoint's."""
    return owner.removeprefix(_REGISTERED) if owner.startswith(_REGISTERED) else ""


def sender_lease(prefix: str) -> str:
    """The lease of who sends what lies under a prefix. No endpoint has a dot in its name."""
    return prefix.rstrip("/").replace("/", ".")
