"""What the rest of the toolkit asks of a platform with SageMaker's API, without opening it.

A check asks little of it: what only plans need is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import LONGEST_VALUE
from toolkit.errors import PlatformError
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.rules import arms, price
from toolkit.platforms.sagemaker.rules.capabilities import Capabilities
from toolkit.platforms.sagemaker.rules.names import ML
from toolkit.recipe.lock import Lock, download_seconds, load_seconds
from toolkit.recipe.resolve import PlatformSettings, Recipe

if TYPE_CHECKING:
    from toolkit.planning.plan import Plan
    from toolkit.planning.resources import Account, Observed, Resource
    from toolkit.platforms.sagemaker.rules import jumpstart
    from toolkit.platforms.sagemaker.rules.kinds.base import AwsKind

# SageMaker gives a container at most an hour to get healthy, and downloads weights before that.
_WAIT_SECONDS = 7200.0


@dataclass(frozen=True)
class AwsRules:
    """One platform of that API: what it is called, what it can do, and what it checks."""

    name: str
    capabilities: Capabilities
    has_settings_by_type = True
    builds_images = True
    gated_models = "write `weights: s3`: it is staged with the token that you have here"
    compile_command = "toolkit compile RECIPE"
    check: Callable[[Recipe, Lock | None], Iterator[Finding]]

    @cached_property
    def kinds(self) -> tuple[AwsKind, ...]:
        """In the order in which they are made; they are removed in the reverse order."""
        from toolkit.platforms.sagemaker.rules.kinds import aws_kinds

        return aws_kinds(self.capabilities)

    @property
    def has_instance_types(self) -> bool:
        """Whether types differ; else this machine is all there is."""
        return self.capabilities.instance_types

    @property
    def starts_image_entrypoint(self) -> bool:
        """Whether an image's own entrypoint starts the engine."""
        return not self.capabilities.runs_programs

    @property
    def longest_variable(self) -> int | None:
        """SageMaker's limit (botocore 1.44.5, service model: EnvironmentValue); programs here have none."""
        return None if self.capabilities.runs_programs else LONGEST_VALUE

    @property
    def exports_templates(self) -> bool:
        """Whether CloudFormation can make what it runs."""
        return self.capabilities.instance_types

    def settled(self, written: PlatformSettings) -> PlatformSettings:
        """The settings with what SageMaker does by default: weights are staged in S3."""
        return replace(written, kubernetes=None, weights=written.weights or "s3")

    def settings_from(self, other: PlatformSettings) -> PlatformSettings:
        """The settings of a recipe that was written for another platform; a cluster's nodes have EC2's names."""
        if other.kubernetes is None:
            return replace(other, name=self.name)
        names = {name: ML + name.removeprefix(ML) for name in (*other.instance_types, *other.overrides)}
        return replace(
            other,
            name=self.name,
            kubernetes=None,
            weights="s3",
            hub_token_secret=None,
            instance_types=tuple(names[name] for name in other.instance_types),
            overrides={names[name]: item for name, item in other.overrides.items()},
        )

    def instance(self, name: str) -> lookup.Instance | None:
        """The catalogue's hardware of an instance type."""
        return lookup.instance(name)

    def instances(self) -> Sequence[lookup.Instance]:
        """All known instance types that endpoints can run on."""
        return tuple(instance for instance in lookup.instances() if instance.hostable)

    def builds(self, recipe: Recipe) -> bool:
        """Whether an image is built for the recipe.

        Where programs run without a container, that is what they do if not asked otherwise. SageMaker cannot start the
        image of an engine that compiles as it is: it always gets the toolkit's entrypoint.
        """
        if self.capabilities.runs_programs:
            return recipe.platform.run == "container"
        return recipe.engine.rules.compiles(recipe) or recipe.container is not None

    def images(self, recipe: Recipe) -> list[lookup.Image]:
        """The platform's own, then those that one is built on."""
        found = [image for image in lookup.images(self.name, recipe.engine.name) if image.entrypoint != "own"]
        return [*found, *lookup.images("upstream", recipe.engine.name)] if self.builds(recipe) else found

    def completed(self, recipe: Recipe, published: jumpstart.Entries) -> Recipe:
        """The recipe with what JumpStart fills in."""
        from toolkit.platforms.sagemaker.rules import jumpstart

        return jumpstart.with_jumpstart_defaults(recipe, published)

    def endpoint_name(self, recipe: Recipe) -> str:
        """The endpoint that serves the recipe: its own, or the one that its inference component lives on."""
        return arms.endpoint_name(recipe)

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """All resources of the arms, in the order in which they are made; what two arms share stands once."""
        from toolkit.planning.rules import in_order
        from toolkit.platforms.sagemaker.rules.deployment import Deployment

        deployments = [Deployment(arm, account) for arm in arms]
        found = [item for kind in self.kinds for deployment in deployments for item in kind.desired(deployment)]
        return in_order(found, self)

    def desired_image(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """The images that are built for the arms, and their repositories; none for what runs as it is."""
        from toolkit.planning.rules import in_order
        from toolkit.platforms.sagemaker.rules.kinds.image import images
        from toolkit.platforms.sagemaker.rules.kinds.repository import repositories

        found = [item for arm in arms for item in (*repositories(arm), *images(arm, account))]
        return in_order(found, self)

    def image_uri(self, recipe: Recipe, account: Account) -> str:
        """The image that a container runs. Raises UsageError where there is none."""
        from toolkit.platforms.sagemaker.rules.kinds.image import image_uri

        return image_uri(recipe, account)

    def base_images(self, recipe: Recipe, account: Account) -> Sequence[str]:
        """The base of an image that is built, else each instance type's own; none where this machine's engine serves.

        Raises UsageError where there is none.
        """
        from toolkit.platforms.sagemaker.rules.kinds.image import base_images

        return base_images(recipe, account)

    def require_compilable(self, recipe: Recipe) -> None:
        """Raise UsageError for a recipe that there is nothing to compile for."""
        from toolkit.platforms.sagemaker.rules import compilation

        compilation.require_compilable(recipe)

    def desired_compilation(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """All that compiling for the arms takes; the first is the recipe. Raises UsageError."""
        from toolkit.planning.rules import in_order
        from toolkit.platforms.sagemaker.rules import compilation

        return in_order(compilation.compile_resources(arms, account), self)

    def compilation_notes(self, recipe: Recipe) -> Iterator[str]:
        """What the reader of the plan of a compilation should know."""
        from toolkit.platforms.sagemaker.rules import compilation

        return compilation.job_notes(recipe)

    def template(self, resources: Sequence[Resource]) -> dict[str, Any]:
        """The resources as a CloudFormation template. Raises UsageError."""
        from toolkit.platforms.sagemaker.rules import cloudformation

        return cloudformation.template(resources, self.kinds)

    def template_losses(self, template: dict[str, Any]) -> list[str]:
        """What a stack of the template lacks, one sentence each."""
        from toolkit.platforms.sagemaker.rules import cloudformation

        return cloudformation.losses(template, self.kinds)

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        """What the reader of a plan should know besides its actions, a sentence or line each."""
        from toolkit.platforms.sagemaker.rules import notes

        return notes.notes(recipe, account)

    def price_per_hour(self, recipe: Recipe) -> float | None:
        """US dollars per hour of the recipe's endpoint as it starts; None where it is not known."""
        return price.price_per_hour(recipe) if self.capabilities.instance_types else self._one_price

    def price_now(self, observed: Observed) -> float | None:
        """US dollars per hour of the endpoints that exist; None where it is not known."""
        return price.price_now(observed) if self.capabilities.instance_types else self._one_price

    def price_text(self, recipe: Recipe) -> str:
        """The price in words: its source and date, or why there is none."""
        return price.price_text(recipe) if self.capabilities.instance_types else f"{self._one_price:.2f} $/h"

    def require(self, desired: Sequence[Resource], observed: Observed) -> None:
        """Raise PlatformError when a component would take over an endpoint that serves models of its own."""
        for item in desired:
            host = item.request["EndpointName"] if item.kind == "InferenceComponent" else None
            endpoint = observed.get("Endpoint", host) if host and host != item.name else None
            config = observed.get("EndpointConfig", endpoint.state["Running"]) if endpoint else None
            if config and config.state["Models"]:
                message = f"Endpoint {host} serves a model of its own, and no inference components"
                raise PlatformError(message, hint="Name another one as `platform.inference_component.endpoint`.")

    def require_startable(self, plan: Plan) -> None:
        """Raise NotCompiled where code that the plan needs was not compiled."""
        from toolkit.platforms.sagemaker.rules import compilation

        compilation.require_compiled(plan)

    def kept_for_rollback(self, observed: Observed, updated: Sequence[str]) -> set[tuple[str, str]]:
        """Kind and name of all that the endpoints run, or would go back to."""
        from toolkit.platforms.sagemaker.rules import rollback

        return rollback.kept_for_rollback(observed, updated)

    def rollback(self, recipe: str, address: str, observed: Observed) -> Plan:
        """The plan that brings an endpoint back to what it ran before. Raises UsageError where that cannot be."""
        from toolkit.platforms.sagemaker.rules import rollback

        return rollback.rollback_plan(recipe, self.name, address, observed, self.capabilities.endpoint_seconds)

    def wait_seconds(self, plan: Plan) -> float:
        """How long the plan's endpoints may take until they are in service."""
        return _WAIT_SECONDS

    def expected_seconds(self, recipe: Recipe) -> dict[str, float]:
        """By stage of a container's start; empty where nobody knows the weights' size, or they are on this machine."""
        from toolkit.apply.stages import expected_seconds

        size = recipe.weight_bytes
        if not size or not self.capabilities.instance_types:
            return {}
        return expected_seconds(download_seconds(size), load_seconds(recipe, size))

    @property
    def _one_price(self) -> float:
        return lookup.platform(self.name).price_per_hour
