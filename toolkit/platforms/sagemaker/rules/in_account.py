"""Weights that a job in the account fetches from the hub, instead of this machine: which, how long, for how much.

It is a build of CodeBuild: that needs no image and no quota of SageMaker's. Unverified: none has run on AWS.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolkit.engines.arguments import is_in_image
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.rules.names import on_aws
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource

KEY = "platform.staging"
IN_ACCOUNT = "InAccount"
"""In a `Weights` request: a job fetches them, of so many `Bytes` where that is known; how its role is made."""

LARGE_GB = 20
"""From here on it is suggested where this machine is not in AWS."""

# general1.large on Linux in us-east-1, as third parties' pages say: compare https://aws.amazon.com/codebuild/pricing. A
# build is billed by the minute.
_USD_PER_MINUTE = 0.02
# Assumptions, not measured on AWS: how fast the machine is there with what it runs, and what the line carries.
_START_SECONDS = 90
_BYTES_PER_SECOND = 200e6
_HUB = "https://huggingface.co"
_VENDOR = Path("/sys/devices/virtual/dmi/id/sys_vendor")
_AWS_VARIABLES = ("AWS_EXECUTION_ENV", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "ECS_CONTAINER_METADATA_URI_V4")


def has_staging_job(recipe: Recipe) -> bool:
    """Whether a job fetches the recipe's models of the hub."""
    return aws(recipe).staging == "in-account" and bool(staged_from_hub(recipe))


def staged_from_hub(recipe: Recipe) -> list[ModelSource]:
    """The models that are copied from the hub to S3."""
    if not on_aws(recipe) or recipe.platform.weights != "s3":
        return []
    drafter = recipe.drafter if is_in_image(recipe) else None
    return [source for source in recipe.models.values() if source.kind == "hub" and source != drafter]


def estimate(size: int | None) -> tuple[int, str]:
    """Seconds that a job takes for so many bytes, 0 if they are not known, and time and price in words."""
    if not size:
        return 0, f"for {_USD_PER_MINUTE} $ a minute (us-east-1)"
    seconds = _START_SECONDS + round(size / _BYTES_PER_SECOND)
    minutes = -(-seconds // 60)
    rate = f"{size / 1e9:.1f} GB at {_BYTES_PER_SECOND / 1e6:.0f} MB/s"
    return seconds, f"about {minutes} min and {minutes * _USD_PER_MINUTE:.2f} $ (estimates: {rate}, us-east-1's price)"


def unreachable(region: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Why a job does not reach the hub that this machine reads; empty if it does."""
    if region and region.startswith("cn-"):
        return f"a job in {region} does not reach huggingface.co from China"
    address = environ.get("HF_ENDPOINT", "").rstrip("/")
    if address in ("", _HUB):
        return ""
    return f"HF_ENDPOINT names another hub here, but the job asks {_HUB}"


def suggestion(recipe: Recipe, account: Account) -> str:
    """A note where much goes through a machine that is not in AWS; empty elsewhere."""
    size = sum(recipe.model_bytes.get(source.model, 0) for source in staged_from_hub(recipe))
    if size < LARGE_GB * 1e9 or aws(recipe).staging == "in-account" or unreachable(account.region):
        return ""
    _, takes = estimate(size)
    secret = recipe.platform.hub_token_secret
    token = (
        f"with the token of the secret {secret}"
        if secret
        else "without your own token: for a gated model name a secret in `hub_token_secret`"
    )
    return (
        f"What S3 lacks of {size / 1e9:.0f} GB of weights goes through this machine, which does not look like one in "
        f"AWS. With `platform: {{staging: in-account}}` a job in the account fetches it from the hub, {token}; for all "
        f"of it {takes}"
    )


def is_in_aws(environ: Mapping[str, str] = os.environ, vendor: Path = _VENDOR) -> bool:
    """Whether this machine looks like one of AWS's: by the variables of its services, or by what EC2 says of itself."""
    if any(name in environ for name in _AWS_VARIABLES):
        return True
    try:
        return vendor.read_text(encoding="utf-8", errors="replace").startswith("Amazon")
    except OSError:
        return False


def job_request(recipe: Recipe, size: int | None) -> dict[str, Any]:
    """What a `Weights` request says of the job; nothing where this machine stages."""
    if aws(recipe).staging != "in-account" or not on_aws(recipe):
        return {}
    role = {
        "RolePath": aws(recipe).role_path.removesuffix("/"),
        "PermissionsBoundary": aws(recipe).permissions_boundary,
        "Tags": dict(recipe.tags),
        "ByAdmin": aws(recipe).role not in (None, "create"),
    }
    return {IN_ACCOUNT: {key: value for key, value in {"Bytes": size, **role}.items() if value}}
