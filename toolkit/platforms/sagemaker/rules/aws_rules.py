"""PlatformRules of platforms with SageMaker's API: SageMaker itself and the local platform.

Modules that only plans need are imported where they are used, so that `toolkit check` starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from toolkit.catalog import lookup
from toolkit.engines.arguments import builds
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.keys import ANY_TYPE
from toolkit.platforms.sagemaker.rules.arms import endpoint_name
from toolkit.platforms.sagemaker.rules.names import ML
from toolkit.recipe.assemble import Sections
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import PlatformFacts, Recipe
from toolkit.recipe.schema import PlatformSection

if TYPE_CHECKING:
    from toolkit.planning.resources import Account, Resource
    from toolkit.platforms.parts import PlatformParts
    from toolkit.platforms.sagemaker.kinds.base import AwsKind

GATED_MODELS = "set `weights: s3`: the toolkit stages it with your own hub token"


def adopt(other: PlatformSection) -> PlatformSection:
    """A cluster's instance types have EC2's names."""
    if getattr(other, "kubernetes", None) is None:
        return other
    renamed = other.rename_types(lambda name: ML + name.removeprefix(ML))
    return renamed.edit(kubernetes=None, weights="s3", hub_token_secret=None)


@dataclass(frozen=True)
class AwsRules:
    """One such platform: its name, facts and checks."""

    name: str
    facts: PlatformFacts
    sections: Sections
    check: Callable[[Recipe, Lock | None], Iterator[Finding]]

    @cached_property
    def kinds(self) -> tuple[AwsKind, ...]:
        from toolkit.platforms.sagemaker.kinds import KINDS

        return tuple(kind(on_aws=self.facts.has_instance_types) for kind in KINDS)

    @cached_property
    def parts(self) -> PlatformParts:
        """What every such platform has."""
        from toolkit.platforms.parts import Building, PlatformParts
        from toolkit.platforms.sagemaker.kinds import image
        from toolkit.platforms.sagemaker.rules import jumpstart, pausing, updates

        return PlatformParts(
            require=updates.require_free_hosts,
            transition=updates.transition,
            kept_for_rollback=updates.kept_for_rollback,
            endpoint_name=endpoint_name,
            base_images=image.base_images,
            building=Building(_image_resources, image.image_uri),
            with_jumpstart=jumpstart.with_jumpstart_defaults,
            trial=updates.trial,
            rollback=updates.rollback_plan,
            pause=partial(pausing.pause_plan, self.kinds, self),
        )

    def fill_in(self, written: PlatformSection) -> PlatformSection:
        """Weights are staged in S3. Where instance types mean nothing, any will do."""
        any_type = not (self.facts.has_instance_types or written.instance_types)
        here = written.on(ANY_TYPE) if any_type else written
        return here.edit(weights=written.weights or "s3")

    def instance(self, name: str) -> lookup.Instance | None:
        return lookup.instance(name)

    def instances(self) -> Sequence[lookup.Instance]:
        """All known instance types that can host endpoints."""
        return tuple(instance for instance in lookup.instances() if instance.hostable)

    def images(self, recipe: Recipe) -> list[lookup.Image]:
        own = [image for image in lookup.images(self.name, recipe.engine.name) if image.entrypoint != "own"]
        return [*own, *lookup.images("upstream", recipe.engine.name)] if builds(recipe) else own

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        from toolkit.planning.kinds import in_order
        from toolkit.platforms.sagemaker.rules.model_data import Deployment

        deployments = [Deployment(arm, account) for arm in arms]
        wanted = [item for kind in self.kinds for each in deployments for item in kind.desired(each)]
        return in_order(wanted, [kind.kind for kind in self.kinds])

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        from toolkit.platforms.sagemaker.rules import notes

        return notes.notes(recipe, account)


def _image_resources(arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
    from toolkit.planning.kinds import in_order
    from toolkit.platforms.sagemaker.kinds import ORDER
    from toolkit.platforms.sagemaker.kinds.image import images, repositories

    return in_order([item for arm in arms for item in (*repositories(arm), *images(arm, account))], ORDER)
