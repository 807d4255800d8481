"""Many endpoints and many recipes at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pairs import HUB_RECIPE, write_hub_pair
from standin_user import IMAGE, User, one

from toolkit.planning.names import ENDPOINT_TAG, content_name

PULLED = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ")
A = TypeVar("A")
R = TypeVar("R")


def make_endpoints(user: User, names: Sequence[str]) -> None:
    """Endpoints in service, with the names and the tag that ours have."""
    container = {"Image": IMAGE, "ModelDataSource": user.weights}
    for name in names:
        tags, content = [{"Key": ENDPOINT_TAG, "Value": name}], content_name(name, {})
        variant = one(content, InstanceType="ml.g6.xlarge")
        user.sagemaker.create_model(
            ModelName=content, ExecutionRoleArn=user.role, PrimaryContainer=container, Tags=tags
        )
        user.create_config(content, variant, Tags=tags)
        user.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=content, Tags=tags)
        assert user.statuses(name, 2) == ["Creating", "InService"]


def write_recipes(root: Path, names: Sequence[str]) -> list[Path]:
    """One recipe for SageMaker under each name, all of the same pair."""
    first = write_hub_pair(root, PULLED)
    recipes = [root / f"{name}.yaml" for name in names]
    for name, path in zip(names, recipes, strict=True):
        path.write_text(first.read_text().replace("name: hub", f"name: {name}", 1))
        shutil.copy(first.with_suffix(".lock.json"), path.with_suffix(".lock.json"))
    return recipes


def side_by_side(function: Callable[[A], R], items: Sequence[A]) -> list[R]:
    """The function's results, each item in a thread of its own. Raises what the first of them raised."""
    with ThreadPoolExecutor(len(items)) as threads:
        return list(threads.map(function, items))
