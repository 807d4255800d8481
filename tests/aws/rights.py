"""The list of what the caller must be allowed to do, held against the calls that were made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from standin import ACCOUNT, Call, StandIn
from standin_account import iam_action

from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.platforms.sagemaker.rules.checks.account import Permission
from toolkit.recipe.recipe import Recipe

# Nobody needs a right to it, or can do without.
WITHOUT_A_RIGHT = {"sts:GetCallerIdentity", "ecr:BatchGetImage", "ecr:DescribeRepositories"}
# Where a request says what it is about.
NAMED = {
    ("sagemaker", "EndpointName"): "arn:aws:sagemaker:us-west-2:{account}:endpoint/{name}",
    ("sagemaker", "EndpointConfigName"): "arn:aws:sagemaker:us-west-2:{account}:endpoint-config/{name}",
    ("sagemaker", "ModelName"): "arn:aws:sagemaker:us-west-2:{account}:model/{name}",
    ("sagemaker", "InferenceComponentName"): "arn:aws:sagemaker:us-west-2:{account}:inference-component/{name}",
    ("sagemaker", "TrainingJobName"): "arn:aws:sagemaker:us-west-2:{account}:training-job/{name}",
    ("sagemaker", "HubContentName"): "arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/{name}/1",
    ("sagemaker", "ResourceArn"): "{name}",
    ("ecr", "repositoryName"): "arn:aws:ecr:us-west-2:{account}:repository/{name}",
    ("ecr", "resourceArn"): "{name}",
    ("iam", "RoleName"): "arn:aws:iam::{account}:role/{name}",
    ("logs", "logGroupName"): "arn:aws:logs:us-west-2:{account}:log-group:{name}",
    ("logs", "resourceArn"): "{name}",
    ("cloudwatch", "AlarmName"): "arn:aws:cloudwatch:us-west-2:{account}:alarm:{name}",
    ("cloudwatch", "ResourceARN"): "{name}",
    ("cloudwatch", "DashboardName"): "arn:aws:cloudwatch::{account}:dashboard/{name}",
}


def not_allowed(
    standin: StandIn, recipe: Recipe, listed: Callable[[Recipe, Account], Iterable[Permission]] = permissions
) -> set[tuple[str, str]]:
    """Actions that were taken, and on what, without being listed."""
    needed = listed(recipe, Account(ACCOUNT, "us-west-2"))
    allowed = [(action, arn) for item in needed for action in item.actions for arn in item.resources]
    return {
        (action_of(call), arn)
        for call in standin.calls
        for arn in resources_of(call)
        if action_of(call) not in WITHOUT_A_RIGHT
        and not any(action == action_of(call) and fnmatchcase(arn, pattern) for action, pattern in allowed)
    }


def action_of(call: Call) -> str:
    return iam_action(call.service, call.operation)


def resources_of(call: Call) -> list[str]:
    """ARNs of what the request names; `*` when it names nothing."""
    if call.service == "s3":
        bucket, deleted = call.request["Bucket"], call.request.get("Delete", {}).get("Objects", [])
        keys = [call.request["Key"]] if "Key" in call.request else [item["Key"] for item in deleted]
        return [f"arn:aws:s3:::{bucket}/{key}" for key in keys] or [f"arn:aws:s3:::{bucket}"]
    found = []
    for key, value in call.request.items():
        if pattern := NAMED.get((call.service, key.removesuffix("s"))):
            names = value if isinstance(value, list) else [value]
            found += [pattern.format(account=ACCOUNT, name=name) for name in names]
    return found or ["*"]
