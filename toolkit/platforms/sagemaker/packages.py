"""Versions of SageMaker's model registry, read: which one is meant, whether it is approved, and the recipe in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML

from toolkit.errors import PlatformError, UsageError
from toolkit.files import whole_file, write_whole
from toolkit.home import cache
from toolkit.platforms.sagemaker.aws_errors import is_missing, unless
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.kinds.model_package import (
    RECIPE,
    RECIPE_DIGEST,
    RECIPE_FILE,
    group_versions,
    is_no_group,
)
from toolkit.platforms.sagemaker.objects import read_objects
from toolkit.platforms.sagemaker.rules.names import PACKAGE_GROUP, PACKAGE_TAG
from toolkit.recipe.content import digest

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients

_ARN = re.compile(
    rf"arn:[a-z-]+:sagemaker:(?P<region>[a-z0-9-]+):(?P<account>\d{{12}}):"
    rf"(?:model-package-group/(?P<group>{PACKAGE_GROUP})|model-package/{PACKAGE_GROUP}/\d+)"
)


@dataclass(frozen=True)
class PackageArn:
    """The ARN of a version, or of a group, which means its newest approved version."""

    text: str
    region: str
    group: str

    @classmethod
    def of(cls, text: str) -> PackageArn:
        """Raises UsageError for another ARN."""
        found = _ARN.fullmatch(text)
        if found is None:
            hint = "Give the ARN of a version, or of its group: aws sagemaker list-model-packages"
            raise UsageError(f"{text} is no version of a model in SageMaker's registry", hint=hint)
        return cls(text, found["region"], found["group"] or "")


def approved_recipe(clients: Clients, arn: PackageArn) -> Path:
    """The recipe of an approved version, in a folder of the cache, with the version in its tags.

    Raises UsageError for one that is not approved or not the toolkit's, PlatformError for a recipe that has changed.
    """
    with aws_errors(f"reading {arn.text}"):
        version = _newest_approved(clients, arn) if arn.group else arn.text
        ask = partial(clients.sagemaker.describe_model_package, ModelPackageName=version)
        found: Mapping[str, Any] | None = unless(clients, ask, is_missing, is_no_group)
    if found is None:
        raise UsageError(f"there is no {version}", hint="See: aws sagemaker list-model-packages")
    if (status := found.get("ModelApprovalStatus")) != "Approved":
        raise UsageError(f"{version} is not approved, but {status}", hint=f"Approve it: {_approve(version)}")
    properties = found.get("CustomerMetadataProperties", {})
    if RECIPE not in properties or RECIPE_DIGEST not in properties:
        hint = "Deploy one that `toolkit register` made."
        raise UsageError(f"{version} has no recipe of the toolkit's: its metadata lack {RECIPE}", hint=hint)
    return _fetch(clients, properties[RECIPE], properties[RECIPE_DIGEST], version, arn.region)


def _newest_approved(clients: Clients, arn: PackageArn) -> str:
    group = arn.group
    approved = next(group_versions(clients, group, "Approved"), None)
    if approved is not None:
        return str(approved["ModelPackageArn"])
    waiting = next(group_versions(clients, group), None)
    if waiting is None:
        raise UsageError(f"{group} has no version", hint=f"Make one: toolkit register RECIPE --group {group}")
    raise UsageError(
        f"no version of {group} is approved", hint=f"Approve the newest: {_approve(waiting['ModelPackageArn'])}"
    )


def _approve(version: str) -> str:
    return f"aws sagemaker update-model-package --model-package-arn {version} --model-approval-status Approved"


def _fetch(clients: Clients, address: str, registered: str, version: str, region: str) -> Path:
    prefix = address.removeprefix("s3://").partition("/")[2]
    texts: dict[str, str] = {}
    for key, content in read_objects(clients, address):
        texts[key.removeprefix(prefix)] = content.decode("utf-8", errors="replace")
    if digest(texts) != registered or not all(map(_stays_below, texts)):
        hint = "Register the recipe again, and approve that version."
        raise PlatformError(f"the recipe in {address} is not the one that {version} was made from", hint=hint)
    folder = cache() / "registered" / re.sub(r"[:/]", "-", version)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return _marked(folder / RECIPE_FILE, version, region)


def _stays_below(name: str) -> bool:
    """Whether a file of that name lies in the folder, and not elsewhere on this machine."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _marked(recipe: Path, version: str, region: str) -> Path:
    """With the version's ARN as a tag on everything that is deployed, and in the version's own region."""
    yaml = YAML()
    data: Any = yaml.load(recipe.read_text(encoding="utf-8"))
    data.setdefault("tags", {})[PACKAGE_TAG] = version
    data["platform"]["region"] = region
    with whole_file(recipe, "w") as stream:
        yaml.dump(data, stream)
    return recipe
