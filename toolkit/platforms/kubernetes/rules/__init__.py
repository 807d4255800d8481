"""The pure part of Kubernetes: manifests, checks, notes and plan decisions for a recipe.

Nothing here loads the Kubernetes client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.apply.stages import expected_seconds
from toolkit.catalog import lookup
from toolkit.errors import UsageError
from toolkit.findings import Finding
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Observed, Resource
from toolkit.planning.rules import KindRule, Transition
from toolkit.platforms.image import base_address, base_image
from toolkit.platforms.kubernetes.keys import SECTIONS, ClusterPlatform, KubernetesSection
from toolkit.platforms.kubernetes.rules import hardware, manifests, notes, rollback, storage, training
from toolkit.platforms.kubernetes.rules.checks import findings
from toolkit.platforms.kubernetes.rules.kinds import KINDS, WEIGHTS, position
from toolkit.recipe.lock import Lock, download_seconds, load_seconds
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Disk
from toolkit.recipe.schema import PlatformSection

if TYPE_CHECKING:
    from toolkit.platforms.rules import PlatformRules, Trial

_WAIT_SECONDS = 7200.0
# Time for the cluster to report that a Deployment's deadline is over.
_MARGIN_SECONDS = 600.0


class KubernetesRules:
    """PlatformRules of Kubernetes."""

    name = "kubernetes"
    kinds: Sequence[KindRule] = (WEIGHTS, *KINDS)
    has_instance_types = True
    has_settings_by_type = False
    builds_images = False
    sections = SECTIONS
    starts_image_entrypoint = False
    longest_variable: int | None = None
    gated_models = "set platform.hub_token_secret to a Secret of the cluster"
    price_option = "--ec2"
    compile_command = f"toolkit render RECIPE --part compile | {manifests.APPLY} -f -"
    exports_templates = False

    def fill_in(self, written: PlatformSection) -> PlatformSection:
        """Where nothing is said of weights, containers download them."""
        settings = ClusterPlatform.of(written).kubernetes or KubernetesSection()
        weights = "claim" if settings.weights_claim else "s3" if settings.weights_bucket else "hub"
        return written.edit(kubernetes=settings, weights=written.weights or weights)

    def move_here(self, other: PlatformSection) -> PlatformSection:
        """Nodes have EC2's names of instance types."""
        here = other.edit(name=self.name, kubernetes=KubernetesSection(), weights="hub")
        return here.rename_types(hardware.ec2_name)

    def completed(self, recipe: Recipe, published: Mapping[str, Mapping[str, Any]]) -> Recipe:
        """The recipe as it is: JumpStart's models run on SageMaker only."""
        return recipe

    def instance(self, name: str) -> lookup.Instance | None:
        return hardware.instance(name)

    def instances(self) -> Sequence[lookup.Instance]:
        return hardware.instances()

    def builds(self, recipe: Recipe) -> bool:
        """Never: public images run as they are, with the toolkit's programs mounted."""
        return False

    def images(self, recipe: Recipe) -> Sequence[lookup.Image]:
        return lookup.images("upstream", recipe.engine.name)

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        return findings(recipe)

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        resources = (item for arm in arms for item in (*storage.uploads(arm), *manifests.resources(arm)))
        found = {(item.kind, item.name): item for item in resources}
        return tuple(sorted(found.values(), key=lambda item: position(item.kind)))

    def endpoint_name(self, recipe: Recipe) -> str:
        return recipe.name

    def desired_image(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """None: public images run as they are."""
        return ()

    def image_uri(self, recipe: Recipe, account: Account) -> str:
        return base_image(recipe, account)

    def base_images(self, recipe: Recipe, account: Account) -> Sequence[str]:
        """The engine's own image, or the recipe's. Raises UsageError where there is none."""
        return (base_address(recipe, account),)

    def desired_compilation(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        """None: `require_compilable` refuses."""
        return ()

    def compilation_notes(self, recipe: Recipe) -> Iterator[str]:
        """None: `require_compilable` refuses."""
        return iter(())

    def desired_training(self, recipe: Recipe, account: Account) -> tuple[Resource, ...]:
        return tuple(training.train_job(recipe))

    def training_notes(self, recipe: Recipe) -> Iterator[str]:
        return training.notes(recipe)

    def training_disk(self, recipe: Recipe) -> Disk | None:
        """Not known: how large the claim is, and what is in it, only the cluster says."""
        return None

    def training_price(self, recipe: Recipe) -> float | None:
        """Not known: nodes are EC2's, and shared."""
        return None

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        return notes.notes(recipe, account)

    def price_per_hour(self, recipe: Recipe) -> float | None:
        """Not known: nodes are EC2's, and shared."""
        return None

    def price_now(self, observed: Observed, region: str | None = None) -> float | None:
        """Not known: nodes are billed whether pods run on them or not."""
        return None

    def price_text(self, recipe: Recipe) -> str:
        return notes.price_text(recipe)

    def require(self, desired: Sequence[Resource], observed: Observed) -> None:
        """Nothing: the server-side dry run has found what stands in the way."""

    def transition(self, desired: Sequence[Resource], observed: Observed) -> Transition:
        """Nothing: the cluster replaces pods by itself."""
        return Transition(tuple(desired))

    def trial(self, recipe: Recipe) -> Trial:
        from toolkit.platforms.rules import Trial

        return Trial("The new head is tried on an endpoint of its own, because a Deployment has no variants")

    def kept_for_rollback(self, observed: Observed, updated: Mapping[str, str]) -> set[tuple[str, str]]:
        """What versions in the cluster's history use, also once it is updated."""
        return rollback.kept_for_rollback(observed)

    def require_startable(self, plan: Plan) -> None:
        """Nothing: whether compiled code is in its bucket is not looked at, and the notes say how to make it."""

    def rollback(self, recipe: str, address: str, observed: Observed) -> Plan:
        return rollback.rollback_plan(recipe, self.name, address, observed)

    def wait_seconds(self, plan: Plan) -> float:
        """How long its endpoints may take: an update starts one pod after the other, each with the whole deadline."""
        specs = [action.request["spec"] for action in plan.actions if action.kind == "Deployment" and action.request]
        seconds: list[float] = [spec.get("progressDeadlineSeconds", 0) * spec.get("replicas", 1) for spec in specs]
        return max(_WAIT_SECONDS, max(seconds, default=0.0) + _MARGIN_SECONDS)

    def expected_seconds(self, recipe: Recipe) -> dict[str, float]:
        """By stage of a container's start; nothing where the size of the weights is not known."""
        size = recipe.weight_bytes
        return expected_seconds(download_seconds(size), load_seconds(recipe, size)) if size else {}

    def require_compilable(self, recipe: Recipe) -> None:
        run = self.compile_command.replace("RECIPE", str(recipe.path))
        hint = f"Run: {run}. For a SageMaker endpoint, add: --platform sagemaker"
        raise UsageError("`toolkit compile` does not work on Kubernetes, where a Job compiles", hint=hint)


RULES: PlatformRules = KubernetesRules()
