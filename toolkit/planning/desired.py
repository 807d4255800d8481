"""A recipe as the AWS resources that serve it, with exact API requests. Pure but for reading the weights' digests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.planning.resources import Account, Resource, digest
from toolkit.planning.weights import manifest, manifest_digest
from toolkit.recipe.arguments import DRAFTER_CHANNEL, environment
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.source import ModelSource

ENDPOINT_TAG = "toolkit:endpoint"
"""Everything we make carries this tag; its value is the endpoint's name. What lacks it is never changed or removed."""

WEIGHTS_PREFIX = "weights/"
USES_PREFIX = "uses/"
"""In our bucket: weights by content, and which endpoint uses which, as empty objects `uses/<weights>/<endpoint>`."""

ROLE_POLICY_NAME = "endpoint"
VARIANT = "AllTraffic"
_DIGEST_CHARACTERS = 8


def desired(recipes: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
    """All resources of the recipes, in the order in which they are made; what two recipes share stands once."""
    resources = {(item.kind, item.name): item for recipe in recipes for item in _resources(recipe, account)}
    return tuple(resources.values())


def bucket_name(account: Account) -> str:
    """The one bucket of the toolkit in an account and region."""
    return f"toolkit-{account.id}-{account.region}"


def role_name(endpoint: str) -> str:
    """The execution role of an endpoint."""
    return f"toolkit-{endpoint}"


def _resources(recipe: Recipe, account: Account) -> list[Resource]:
    bucket = bucket_name(account)
    models = [recipe.target, recipe.speculation.drafter] if recipe.speculation else [recipe.target]
    weights = [_weights(model, bucket) for model in models]
    role = role_name(recipe.name)
    model = _model(recipe, account, role, weights)
    config = _endpoint_config(recipe, model.name)
    return [
        Resource("Bucket", bucket, _create_bucket(bucket, account.region)),
        *[_weights_use(item, recipe.name) for item in weights],
        *weights,
        Resource("Role", role, _create_role(recipe, account, role)),
        Resource("RolePolicy", role, _put_role_policy(recipe, account, role, weights)),
        model,
        config,
        Resource("Endpoint", recipe.name, _create_endpoint(recipe, config.name)),
    ]


def _weights(source: ModelSource, bucket: str) -> Resource:
    folder = source.folder
    if folder is None:
        hint = f"Fetch it and name the folder: hf download {source} --local-dir DIR" if source.kind == "hub" else ""
        raise UsageError(f"{source} is in no folder: only those can be deployed so far", hint=hint)
    files = manifest(folder)
    name = f"{folder.name}-{manifest_digest(files)[:12]}"
    request = {
        "Bucket": bucket,
        "Prefix": f"{WEIGHTS_PREFIX}{name}/",
        "Source": str(folder),
        "Files": [asdict(f) for f in files],
    }
    return Resource("Weights", name, request)


def _weights_use(weights: Resource, endpoint: str) -> Resource:
    name = f"{weights.name}/{endpoint}"
    return Resource("WeightsUse", name, {"Bucket": weights.request["Bucket"], "Key": f"{USES_PREFIX}{name}"})


def _create_bucket(bucket: str, region: str) -> dict[str, Any]:
    # S3 refuses a LocationConstraint that names us-east-1, and needs one everywhere else.
    location = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    return {"Bucket": bucket, **location}


def _create_role(recipe: Recipe, account: Account, role: str) -> dict[str, Any]:
    """A role that only SageMaker may take, and only for this account (confused deputy)."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": account.id}},
    }
    return {"RoleName": role, "AssumeRolePolicyDocument": _policy([statement]), "Tags": _tags(recipe)}


def _put_role_policy(recipe: Recipe, account: Account, role: str, weights: Sequence[Resource]) -> dict[str, Any]:
    """What an endpoint needs: read its own weights, write its own logs."""
    bucket = weights[0].request["Bucket"]
    prefixes = [item.request["Prefix"] for item in weights]
    log_group = f"arn:aws:logs:{account.region}:{account.id}:log-group:/aws/sagemaker/Endpoints/{recipe.name}"
    statements: list[dict[str, Any]] = [
        {
            "Effect": "Allow",
            "Action": "s3:GetObject",
            "Resource": [f"arn:aws:s3:::{bucket}/{prefix}*" for prefix in prefixes],
        },
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{bucket}",
            "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*" for prefix in prefixes]}},
        },
        {
            "Effect": "Allow",
            "Action": ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
            "Resource": [log_group, f"{log_group}:*"],
        },
    ]
    return {"RoleName": role, "PolicyName": ROLE_POLICY_NAME, "PolicyDocument": _policy(statements)}


def _model(recipe: Recipe, account: Account, role: str, weights: Sequence[Resource]) -> Resource:
    target, *drafter = weights
    container: dict[str, Any] = {
        "Image": _image(recipe, account),
        "Environment": environment(recipe),
        "ModelDataSource": _data_source(target),
    }
    if drafter:
        container["AdditionalModelDataSources"] = [{"ChannelName": DRAFTER_CHANNEL, **_data_source(drafter[0])}]
    body = {"ExecutionRoleArn": f"arn:aws:iam::{account.id}:role/{role}", "PrimaryContainer": container}
    name = _content_name(recipe.name, body)
    return Resource("Model", name, {"ModelName": name, **body, "Tags": _tags(recipe)})


def _endpoint_config(recipe: Recipe, model: str) -> Resource:
    variant = {
        "VariantName": VARIANT,
        "ModelName": model,
        "InstanceType": recipe.instance_types[0],
        "InitialInstanceCount": 1,
        "ContainerStartupHealthCheckTimeoutInSeconds": recipe.health_check_timeout,
    }
    body = {"ProductionVariants": [variant]}
    name = _content_name(recipe.name, body)
    return Resource("EndpointConfig", name, {"EndpointConfigName": name, **body, "Tags": _tags(recipe)})


def _create_endpoint(recipe: Recipe, config: str) -> dict[str, Any]:
    return {"EndpointName": recipe.name, "EndpointConfigName": config, "Tags": _tags(recipe)}


def _image(recipe: Recipe, account: Account) -> str:
    images = lookup.images(recipe.platform, recipe.engine.name)
    image = next(image for image in images if image.version == recipe.engine.version)
    return f"{account.id}.dkr.ecr.{account.region}.amazonaws.com/{image.repository}:{image.tag}"


def _data_source(weights: Resource) -> dict[str, Any]:
    uri = f"s3://{weights.request['Bucket']}/{weights.request['Prefix']}"
    return {"S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}}


def _tags(recipe: Recipe) -> list[dict[str, str]]:
    tags = {**recipe.tags, ENDPOINT_TAG: recipe.name}
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def _content_name(prefix: str, body: Mapping[str, Any]) -> str:
    """A readable name that says its content: the same recipe gives the same name, a changed one another."""
    return f"{prefix}-{digest(body)[:_DIGEST_CHARACTERS]}"


def _policy(statements: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
