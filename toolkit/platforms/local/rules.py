"""The local platform's pure part: SageMaker's, with what this machine can do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.findings import Finding
from toolkit.home import home
from toolkit.planning.artifacts import wants_compiled
from toolkit.platforms.local.keys import SECTIONS, LocalPlatform
from toolkit.platforms.sagemaker.keys import aws, aws_observability
from toolkit.platforms.sagemaker.rules.aws_rules import GATED_MODELS, AwsRules, adopt
from toolkit.platforms.sagemaker.rules.checks.environment import check_environment
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import PlatformFacts, Recipe
from toolkit.recipe.rules import Disk

if TYPE_CHECKING:
    from toolkit.planning.resources import Account, Resource
    from toolkit.platforms.parts import PlatformParts


def check_local(recipe: Recipe, _models: Lock | None) -> Iterator[Finding]:
    warm_container = _builds(recipe) and recipe.engine_rules.compilation is None and wants_compiled(recipe)
    refused = (
        ("platform.inference_component", aws(recipe).inference_component is not None, "no inference components"),
        ("observability.data_capture_percent", aws_observability(recipe).data_capture_percent > 0, "no data capture"),
        ("engine.warm_start", warm_container, "no warm starts of containers, which keep nothing"),
        ("scaling.min_instances", recipe.scaling.min_instances > 1, "one container for each variant"),
    )
    for path, is_set, what in refused:
        if is_set:
            hint = "Remove it to run on the local platform."
            yield Finding("local.not-here", f"the local platform supports {what}", path, hint=hint)
    if _builds(recipe) and (recipe.container is None or recipe.container.base is None):
        from toolkit.platforms.image import no_base_for_cpus

        message, hint = no_base_for_cpus(recipe)
        yield Finding("local.base", message, "platform.run", hint=hint)
    for path, source in recipe.models.items():
        if source.kind == "jumpstart":
            message = f"the local platform does not support JumpStart models such as {source}"
            hint = "Use a folder or a Hugging Face id to run on the local platform."
            yield Finding("local.not-here", message, path, hint=hint)
    yield from check_environment(recipe)


def _builds(recipe: Recipe) -> bool:
    """Only if the recipe asks for a container: else a process serves."""
    return LocalPlatform.of(recipe.platform).run == "container"


def _price_per_hour(_: Recipe) -> float:
    return lookup.platform("local").price_per_hour


def _training_disk(_: Recipe) -> Disk:
    folder = home()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    more = "Make room, set TOOLKIT_HOME to another disk"
    return Disk(f"the disk of {folder}", free, "training.data", more, empty=False)


_FACTS = PlatformFacts(
    gated_models=GATED_MODELS,
    has_settings_by_type=True,
    compile_command="toolkit deploy RECIPE",
    why_not_compiled="`toolkit compile` has nothing to do here: this machine keeps what an engine's first start makes",
    keeps_caches=True,
    builds=_builds,
    price_per_hour=_price_per_hour,
    training_disk=_training_disk,
    adopt=adopt,
)


class LocalRules(AwsRules):
    """SageMaker's API on this machine: a training job is a process, with its files in the user's home."""

    @cached_property
    def parts(self) -> PlatformParts:
        from toolkit.platforms.parts import HeadTraining

        price = lookup.platform(self.name).price_per_hour
        training = HeadTraining(_training_resources, _training_notes, _price_per_hour)
        return replace(
            super().parts,
            training=lambda: training,
            price_now=lambda observed, region: price,
            price_text=lambda recipe: f"{price:.2f} $/h",
        )


def _training_resources(recipe: Recipe, _: Account) -> tuple[Resource, ...]:
    """The job alone. Raises UsageError for data that a process of this machine cannot read or write."""
    from toolkit.planning.resources import Resource
    from toolkit.training.plan import job_name, section, training_job

    training = section(recipe)
    sources = [*training.sources, recipe.target.model, training.start_from or "", str(recipe.drafter)]
    if in_s3 := next((source for source in sources if source.startswith("s3://")), None):
        hint = f"Copy it to a folder beside the recipe: aws s3 sync {in_s3} FOLDER. Or add: --platform sagemaker"
        raise UsageError(f"training on this machine takes no files in S3, such as {in_s3}", hint=hint)
    name = job_name(recipe)
    request = {"TrainingJobName": name, "Job": training_job(recipe).model_dump(mode="json")}
    return (Resource("TrainingJob", name, request),)


def _training_notes(_: Recipe) -> Iterator[str]:
    yield "The job is a process of this machine, on its GPU if PyTorch finds one"


RULES = LocalRules("local", _FACTS, SECTIONS, check_local)
