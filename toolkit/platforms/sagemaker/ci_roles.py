"""Two roles for GitHub Actions: one that plans what a pull request proposes and only reads, one that deploys.

Whoever may push a branch decides what runs in its pull request, before anybody has looked at it. So a pull request gets
a role that changes nothing, and that reads neither captured conversations, logs nor secrets. The other one is for jobs
of an environment, which the repository's owner gives to the main branch alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from toolkit.planning.names import ARTIFACTS_PREFIX
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.platforms.sagemaker.rules.access import policy
from toolkit.platforms.sagemaker.rules.checks.account import Permission
from toolkit.platforms.sagemaker.rules.names import WEIGHTS_PREFIX, bucket_name, key_arn
from toolkit.recipe.recipe import Recipe

_GITHUB = "token.actions.githubusercontent.com"
# What `toolkit plan` calls; a test holds it against the calls that are made. s3:GetObject is another matter.
_PLANS_WITH = {
    "application-autoscaling:DescribeScalableTargets",
    "application-autoscaling:DescribeScalingPolicies",
    "application-autoscaling:ListTagsForResource",
    "cloudwatch:DescribeAlarms",
    "cloudwatch:GetDashboard",
    "cloudwatch:ListTagsForResource",
    "ecr:DescribeImages",
    "ecr:ListTagsForResource",
    "iam:GetRole",
    "iam:GetRolePolicy",
    "iam:ListRolePolicies",
    "iam:ListRoleTags",
    "logs:DescribeLogGroups",
    "logs:DescribeMetricFilters",
    "logs:ListTagsForResource",
    "s3:ListBucket",
    "sagemaker:DescribeEndpoint",
    "sagemaker:DescribeEndpointConfig",
    "sagemaker:DescribeHubContent",
    "sagemaker:DescribeInferenceComponent",
    "sagemaker:DescribeModel",
    "sagemaker:ListEndpointConfigs",
    "sagemaker:ListInferenceComponents",
    "sagemaker:ListModels",
    "sagemaker:ListTags",
    "sagemaker:ListTrainingJobs",
}
_PARAMETERS = {
    "Repository": {
        "Type": "String",
        "AllowedPattern": r"[\w.-]+(@\d+)?/[\w.-]+(@\d+)?",
        "Description": (
            "OWNER/NAME, or OWNER@ID/NAME@ID where GitHub's tokens have the numbers (its OIDC settings show it)"
        ),
    },
    "Environment": {
        "Type": "String",
        "Default": "production",
        "Description": "The repository's environment that deploys: let only the main branch into it",
    },
}


def template(recipe: Recipe, account: Account) -> dict[str, Any]:
    """Both roles for CloudFormation, for one recipe with and without `--baseline`. That AWS takes it is unverified."""
    roles = {
        "PlanRole": _role(account, "pull_request", reading(recipe, account)),
        "DeployRole": _role(account, "environment:${Environment}", permissions(recipe, account)),
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Roles with which GitHub Actions plans and deploys {recipe.name} in {account.region}",
        "Parameters": _PARAMETERS,
        "Resources": roles,
        "Outputs": {name: {"Value": {"Fn::GetAtt": [name, "Arn"]}} for name in roles},
    }


def reading(recipe: Recipe, account: Account) -> Iterator[Permission]:
    """What planning takes of all that deploying takes: no change, and nothing that somebody said to an endpoint."""
    for needed in permissions(recipe, account):
        if actions := tuple(action for action in needed.actions if action in _PLANS_WITH):
            yield replace(needed, actions=actions)
    ours = f"arn:{account.partition}:s3:::{bucket_name(account)}"
    # The checksums of what is staged, the records of what was compiled.
    yield Permission(("s3:GetObject",), (f"{ours}/{WEIGHTS_PREFIX}*", f"{ours}/{ARTIFACTS_PREFIX}*"))
    if key := aws(recipe).kms_key:
        service = {"kms:ViaService": f"s3.{account.region}.{account.domain}"}
        yield Permission(("kms:Decrypt",), (key_arn(key, account),), service)


def _role(account: Account, subject: str, allowed: Iterable[Permission]) -> dict[str, Any]:
    trust = {
        "Effect": "Allow",
        "Principal": {"Federated": f"arn:{account.partition}:iam::{account.id}:oidc-provider/{_GITHUB}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Condition": {
            "StringEquals": {
                f"{_GITHUB}:aud": "sts.amazonaws.com",
                f"{_GITHUB}:sub": {"Fn::Sub": f"repo:${{Repository}}:{subject}"},
            }
        },
    }
    document = policy(*(item.statement() for item in allowed))
    properties = {
        "AssumeRolePolicyDocument": policy(trust),
        "Policies": [{"PolicyName": "toolkit", "PolicyDocument": document}],
    }
    return {"Type": "AWS::IAM::Role", "Properties": properties}
