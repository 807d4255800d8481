"""PlatformRules of platforms with SageMaker's API: SageMaker itself and the local platform.

Modules that only plans need are imported where they are used, so that `toolkit check` starts quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolkit.catalog import lookup
from toolkit.engines.arguments import LONGEST_VALUE
from toolkit.errors import PlatformError
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.rules import arms, price
from toolkit.platforms.sagemaker.rules.capabilities import Capabilities
from toolkit.platforms.sagemaker.rules.names import ML
from toolkit.recipe.assemble import Sections
from toolkit.recipe.lock import Lock, download_seconds, load_seconds
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import PlatformSection

if TYPE_CHECKING:
    from toolkit.planning.plan import Plan
    from toolkit.planning.resources import Account, Observed, Resource
    from toolkit.planning.rules import Transition
    from toolkit.platforms.rules import Trial
    from toolkit.platforms.sagemaker.rules import jumpstart
    from toolkit.platforms.sagemaker.rules.kinds.base import AwsKind
    from toolkit.recipe.rules import Disk

# SageMaker allows a container at most an hour to become healthy, and downloads weights before that.
_WAIT_SECONDS = 7200.0
# An endpoint configuration must have a type.
_ANY_TYPE = "ml.m7i.large"


@dataclass(frozen=True)
class AwsRules:
    """One such platform: its name, capabilities and checks."""

    name: str
    capabilities: Capabilities
    has_settings_by_type = True
    builds_images = True
    gated_models = "set `weights: s3`: the toolkit stages it with your own hub token"
    price_option = ""
    compile_command = "toolkit compile RECIPE"
    sections: Sections
    check: Callable[[Recipe, Lock | None], Iterator[Finding]]

    @cached_property
    def kinds(self) -> tuple[AwsKind, ...]:
        from toolkit.platforms.sagemaker.rules.kinds import aws_kinds

        return aws_kinds(self.capabilities)

    @property
    def has_instance_types(self) -> bool:
        return self.capabilities.instance_types

    @property
    def starts_image_entrypoint(self) -> bool:
        return not self.capabilities.runs_programs

    @property
    def longest_variable(self) -> int | None:
        """SageMaker's limit (botocore 1.44.5, service model: EnvironmentValue); local processes have none."""
        return None if self.capabilities.runs_programs else LONGEST_VALUE

    @property
    def exports_templates(self) -> bool:
        return self.capabilities.instance_types

    def fill_in(self, written: PlatformSection) -> PlatformSection:
        """Weights are staged in S3. Where instance types mean nothing, any will do."""
        open_here = not self.capabilities.instance_types and not written.instance_types
        return written.edit(weights=written.weights or "s3", **({"instance_types": [_ANY_TYPE]} if open_here else {}))

    def move_here(self, other: PlatformSection) -> PlatformSection:
        """A cluster's instance types have EC2's names."""
        here = other.edit(name=self.name)
        if getattr(other, "kubernetes", None) is None:
            return here
        renamed = here.rename_types(lambda name: ML + name.removeprefix(ML))
        return renamed.edit(kubernetes=None, weights="s3", hub_token_secret=None)

    def instance(self, name: str) -> lookup.Instance | None:
        return lookup.instance(name)

    def instances(self) -> Sequence[lookup.Instance]:
        """All known instance types that can host endpoints."""
        return tuple(instance for instance in lookup.instances() if instance.hostable)

    def builds(self, recipe: Recipe) -> bool:
        """Whether an image is built for the recipe.

        On the local platform only if the recipe asks for a container. On SageMaker also for every engine that compiles,
        because its public image does not start there without the toolkit's entrypoint.
        """
        if self.capabilities.runs_programs:
            return getattr(recipe.platform, "run", "") == "container"
        return recipe.engine_rules.compilation is not None or recipe.container is not None

    def images(self, recipe: Recipe) -> list[lookup.Image]:
        found = [image for image in lookup.images(self.name, recipe.engine.name) if image.entrypoint != "own"]
        return [*found, *lookup.images("upstream", recipe.engine.name)] if self.builds(recipe) else found

    def completed(self, recipe: Recipe, published: jumpstart.Entries) -> Recipe:
        from toolkit.platforms.sagemaker.rules import jumpstart

        return jumpstart.with_jumpstart_defaults(recipe, published)

    def endpoint_name(self, recipe: Recipe) -> str:
        return arms.endpoint_name(recipe)

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        from toolkit.planning.rules import in_order
        from toolkit.platforms.sagemaker.rules.deployment import Deployment

        deployments = [Deployment(arm, account) for arm in arms]
        found = [item for kind in self.kinds for deployment in deployments for item in kind.desired(deployment)]
        return in_order(found, self)

    def desired_image(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        from toolkit.planning.rules import in_order
        from toolkit.platforms.sagemaker.rules.kinds.image import images
        from toolkit.platforms.sagemaker.rules.kinds.repository import repositories

        found = [item for arm in arms for item in (*repositories(arm), *images(arm, account))]
        return in_order(found, self)

    def image_uri(self, recipe: Recipe, account: Account) -> str:
        from toolkit.platforms.sagemaker.rules.kinds.image import image_uri

        return image_uri(recipe, account)

    def base_images(self, recipe: Recipe, account: Account) -> Sequence[str]:
        """The base of an image that is built, else each instance type's own; none where this machine's engine serves.

        Raises UsageError where there is none.
        """
        from toolkit.platforms.sagemaker.rules.kinds.image import base_images

        return base_images(recipe, account)

    def require_compilable(self, recipe: Recipe) -> None:
        from toolkit.platforms.sagemaker.rules import compilation

        compilation.require_compilable(recipe)

    def desired_compilation(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        from toolkit.planning.rules import in_order
        from toolkit.platforms.sagemaker.rules import compilation

        return in_order(compilation.compile_resources(arms, account), self)

    def compilation_notes(self, recipe: Recipe) -> Iterator[str]:
        from toolkit.platforms.sagemaker.rules import compilation

        return compilation.job_notes(recipe)

    def desired_training(self, recipe: Recipe, account: Account) -> tuple[Resource, ...]:
        from toolkit.planning.rules import in_order
        from toolkit.platforms.sagemaker.rules import head_training

        return in_order(head_training.training_resources(recipe, account), self)

    def training_notes(self, recipe: Recipe) -> Iterator[str]:
        from toolkit.platforms.sagemaker.rules import head_training

        return head_training.notes(recipe)

    def training_disk(self, recipe: Recipe) -> Disk | None:
        from toolkit.platforms.sagemaker.rules import head_training

        return head_training.disk(recipe)

    def training_price(self, recipe: Recipe) -> float | None:
        from toolkit.platforms.sagemaker.rules import head_training

        return head_training.price_per_hour(recipe)

    def trial(self, recipe: Recipe) -> Trial:
        from toolkit.platforms.sagemaker.rules import trial

        return trial.trial(recipe)

    def for_template(self, recipe: Recipe, account: Account) -> Recipe:
        """The recipe with its files arranged so that a CloudFormation template can have them."""
        from toolkit.platforms.sagemaker.rules.model_data import with_one_data_source

        return with_one_data_source(recipe, account)

    def template(self, resources: Sequence[Resource]) -> dict[str, Any]:
        """The resources as a CloudFormation template. Raises UsageError."""
        from toolkit.platforms.sagemaker.rules import cloudformation

        return cloudformation.template(resources, self.kinds)

    def template_losses(self, template: dict[str, Any]) -> list[str]:
        """What a stack of the template lacks compared with `toolkit deploy`, one sentence each."""
        from toolkit.platforms.sagemaker.rules import cloudformation

        return cloudformation.losses(template, self.kinds)

    def template_failures(self, template: dict[str, Any]) -> list[str]:
        """Those losses without which no stack of the template works."""
        from toolkit.platforms.sagemaker.rules import cloudformation

        return cloudformation.failures(template, self.kinds)

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        from toolkit.platforms.sagemaker.rules import notes

        return notes.notes(recipe, account)

    def price_per_hour(self, recipe: Recipe) -> float | None:
        return price.price_per_hour(recipe) if self.capabilities.instance_types else self._one_price

    def price_now(self, observed: Observed, region: str | None = None) -> float | None:
        return price.price_now(observed, region) if self.capabilities.instance_types else self._one_price

    def price_text(self, recipe: Recipe) -> str:
        return price.price_text(recipe) if self.capabilities.instance_types else f"{self._one_price:.2f} $/h"

    def require(self, desired: Sequence[Resource], observed: Observed) -> None:
        """Raise PlatformError if the endpoint of an inference component already serves a model of its own."""
        for item in desired:
            host = item.request["EndpointName"] if item.kind == "InferenceComponent" else None
            endpoint = observed.get("Endpoint", host) if host and host != item.name else None
            config = observed.get("EndpointConfig", endpoint.state["Running"]) if endpoint else None
            if config and config.state["Models"]:
                message = f"Endpoint {host} serves a model of its own, so it cannot host inference components"
                raise PlatformError(message, hint="Set `platform.inference_component.endpoint` to another endpoint.")

    def transition(self, desired: Sequence[Resource], observed: Observed) -> Transition:
        from toolkit.platforms.sagemaker.rules import transition

        return transition.transition(desired, observed)

    def require_startable(self, plan: Plan) -> None:
        from toolkit.platforms.sagemaker.rules import compilation

        compilation.require_compiled(plan)

    def kept_for_rollback(self, observed: Observed, updated: Mapping[str, str]) -> set[tuple[str, str]]:
        from toolkit.platforms.sagemaker.rules import rollback

        return rollback.kept_for_rollback(observed, updated)

    def rollback(self, recipe: str, address: str, observed: Observed) -> Plan:
        from toolkit.platforms.sagemaker.rules import rollback

        return rollback.rollback_plan(recipe, self.name, address, observed, self.capabilities.endpoint_seconds)

    def wait_seconds(self, plan: Plan) -> float:
        return _WAIT_SECONDS

    def expected_seconds(self, recipe: Recipe) -> dict[str, float]:
        from toolkit.apply.stages import expected_seconds

        size = recipe.weight_bytes
        if not size or not self.capabilities.instance_types:
            return {}
        return expected_seconds(download_seconds(size), load_seconds(recipe, size))

    @property
    def _one_price(self) -> float:
        return lookup.platform(self.name).price_per_hour
