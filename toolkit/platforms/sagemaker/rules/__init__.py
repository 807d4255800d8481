"""SageMaker's pure part: what a recipe needs there. No SDK is imported here, and no client is used.

    arms, deployment, model_data     a recipe's variants, and the model data of their containers
    checks/                          findings on SageMaker's settings, and on an account
    cloudformation, compilation, jumpstart, notes, price, rollback

What reads and writes is beside this folder: kinds/ has a file for each kind of resource. The local platform has the
same API, so it shares all of this.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from toolkit.engines.arguments import LONGEST_VALUE
from toolkit.planning.artifacts import wants_compiled
from toolkit.platforms.sagemaker.keys import SECTIONS
from toolkit.platforms.sagemaker.rules import price
from toolkit.platforms.sagemaker.rules.aws_rules import GATED_MODELS, AwsRules, adopt
from toolkit.platforms.sagemaker.rules.checks.settings import check_sagemaker
from toolkit.recipe.recipe import PlatformFacts, Recipe
from toolkit.recipe.rules import Disk

if TYPE_CHECKING:
    from toolkit.platforms.parts import HeadTraining, ModelRegistry, PlatformParts, Templates

__all__ = ["RULES"]


def _builds(recipe: Recipe) -> bool:
    """Also where the public image does not do without the toolkit's programs: on Trainium, and for warm starts."""
    compiles = recipe.engine_rules.compilation is not None or wants_compiled(recipe)
    return compiles or recipe.container is not None


def _training_disk(recipe: Recipe) -> Disk:
    from toolkit.platforms.sagemaker.rules.job_machines import disk

    return disk(recipe)


_FACTS = PlatformFacts(
    gated_models=GATED_MODELS,
    has_instance_types=True,
    has_settings_by_type=True,
    starts_image_entrypoint=True,
    longest_variable=LONGEST_VALUE,  # botocore 1.44.5, service model: EnvironmentValue
    builds=_builds,
    price_per_hour=price.price_per_hour,
    training_disk=_training_disk,
    adopt=adopt,
)


class SageMakerRules(AwsRules):
    """AWS itself: it compiles, trains, has templates, and costs money."""

    @cached_property
    def parts(self) -> PlatformParts:
        from toolkit.platforms.parts import Compilation
        from toolkit.platforms.sagemaker.rules import compilation

        return replace(
            super().parts,
            compilation=Compilation(compilation.compile_resources, compilation.job_notes, compilation.require_compiled),
            training=_training,
            templates=self._templates,
            registry=_registry,
            price_now=price.price_now,
            price_text=price.price_text,
        )

    def _templates(self) -> Templates:
        from toolkit.platforms.parts import Templates
        from toolkit.platforms.sagemaker.rules import cloudformation
        from toolkit.platforms.sagemaker.rules.model_data import with_one_data_source

        return Templates(
            with_one_data_source,
            partial(cloudformation.template, kinds=self.kinds),
            partial(cloudformation.failures, kinds=self.kinds),
        )


def _registry() -> ModelRegistry:
    from toolkit.platforms.parts import ModelRegistry
    from toolkit.platforms.sagemaker.kinds.model_package import newest
    from toolkit.platforms.sagemaker.rules.names import registered
    from toolkit.platforms.sagemaker.rules.registering import version_resources

    return ModelRegistry(version_resources, registered, newest)


def _training() -> HeadTraining:
    from toolkit.platforms.parts import HeadTraining
    from toolkit.platforms.sagemaker.rules import head_training, job_machines

    return HeadTraining(
        head_training.training_resources, head_training.notes, job_machines.price_per_hour, job_machines.price_text
    )


RULES = SageMakerRules("sagemaker", _FACTS, SECTIONS, check_sagemaker)
