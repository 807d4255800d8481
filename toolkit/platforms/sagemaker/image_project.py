"""The CodeBuild project that builds images. What its role may do is what a recipe's Dockerfile may do."""

from __future__ import annotations

from typing import Any

from toolkit.catalog import lookup
from toolkit.images.buildspec import buildspec
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.codebuild_project import Project
from toolkit.platforms.sagemaker.kinds.role import IMAGE_ACTIONS
from toolkit.platforms.sagemaker.rules.access import allow

_PUSH = ["ecr:InitiateLayerUpload", "ecr:UploadLayerPart", "ecr:CompleteLayerUpload", "ecr:PutImage"]


def _statements(account: Account) -> list[dict[str, Any]]:
    """Pull from this account and from AWS's registry, push where the toolkit pushes."""
    arn = f"arn:{account.partition}"
    registries = [account.id, *filter(None, [lookup.registries().get(account.region)])]
    bases = [f"{arn}:ecr:{account.region}:{number}:repository/*" for number in registries]
    return [
        allow(["ecr:GetAuthorizationToken"], ["*"]),  # which no resource limits
        allow(IMAGE_ACTIONS, bases),
        allow(_PUSH, [f"{arn}:ecr:{account.region}:{account.id}:repository/toolkit/*"]),
    ]


IMAGE_PROJECT = Project(
    name="toolkit-image-build",
    description="Builds container images for endpoints (toolkit build)",
    buildspec=buildspec(),
    sources="image-build/",
    minutes=60,
    role_policy="image-build",
    statements=_statements,
    template_command="toolkit build RECIPE --admin-template",
    privileged=True,  # there is no Docker engine without
)
