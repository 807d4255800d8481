"""The local platform's pure part: SageMaker's, with what this machine can do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.home import home
from toolkit.platforms.image import ImageStore
from toolkit.platforms.local.checks import check_local
from toolkit.platforms.local.keys import SECTIONS
from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules
from toolkit.platforms.sagemaker.rules.capabilities import Capabilities
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Disk

if TYPE_CHECKING:
    from toolkit.planning.resources import Account, Resource

LOCAL_REGISTRY = "localhost"
"""What images are called by that are on this machine only."""

LOCAL = Capabilities(
    enhanced_metrics=False,
    instance_types=False,
    runs_programs=True,
    deployment_guardrails=False,
    compiles=False,
    monitors=False,
    outlasts=False,
    plan_notes=False,
    images=ImageStore(LOCAL_REGISTRY, "podman or docker", has_accelerators=False),
    endpoint_seconds=lookup.platform("local").endpoint_seconds,
)


class LocalRules(AwsRules):
    """SageMaker's rules, but for training: a job is a process of this machine, with its files in the user's home."""

    def desired_training(self, recipe: Recipe, account: Account) -> tuple[Resource, ...]:
        """The job alone. Raises UsageError for data that a process of this machine cannot read or write."""
        from toolkit.planning.resources import Resource
        from toolkit.training.plan import job_name, section, training_job

        training = section(recipe)
        sources = [*training.data, recipe.target.model, training.start_from or "", str(recipe.drafter)]
        if in_s3 := next((source for source in sources if source.startswith("s3://")), None):
            hint = f"Copy it to a folder beside the recipe: aws s3 sync {in_s3} FOLDER. Or add: --platform sagemaker"
            raise UsageError(f"training on this machine takes no files in S3, such as {in_s3}", hint=hint)
        name = job_name(recipe)
        request = {"TrainingJobName": name, "Job": training_job(recipe).model_dump(mode="json")}
        return (Resource("TrainingJob", name, request),)

    def training_notes(self, recipe: Recipe) -> Iterator[str]:
        yield "The job is a process of this machine, on its GPU if PyTorch finds one"

    def training_disk(self, recipe: Recipe) -> Disk:
        folder = home()
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        return Disk(f"the disk of {folder}", free, "training.data", "Make room, set TOOLKIT_HOME to another disk")

    def training_price(self, recipe: Recipe) -> float:
        return 0.0


RULES = LocalRules("local", LOCAL, SECTIONS, check_local)
