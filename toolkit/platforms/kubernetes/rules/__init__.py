"""The pure part of Kubernetes: manifests, checks, notes and plan decisions for a recipe.

Nothing here loads the Kubernetes client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolkit.catalog import lookup
from toolkit.findings import Finding
from toolkit.planning.kinds import Kind
from toolkit.planning.plan import Plan
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.image import base_address
from toolkit.platforms.kubernetes.keys import SECTIONS, ClusterPlatform, KubernetesSection, cluster
from toolkit.platforms.kubernetes.rules import (
    devices,
    manifests,
    notes,
    pausing,
    rollback,
    several_nodes,
    storage,
    train_job,
)
from toolkit.platforms.kubernetes.rules.checks import findings
from toolkit.platforms.kubernetes.rules.kinds import ENDPOINTS, KINDS, WEIGHTS, pods_of, position
from toolkit.platforms.kubernetes.rules.pod import PULL_SECONDS
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import PlatformFacts, Recipe
from toolkit.recipe.schema import PlatformSection

if TYPE_CHECKING:
    from toolkit.platforms.parts import PlatformParts
    from toolkit.platforms.rules import PlatformRules

_WAIT_SECONDS = 7200.0
# Time for the cluster to report that a Deployment's deadline is over.
_MARGIN_SECONDS = 600.0


def _adopt(other: PlatformSection) -> PlatformSection:
    """Nodes have EC2's names of instance types."""
    return other.edit(kubernetes=KubernetesSection(), weights="hub").rename_types(devices.ec2_name)


class KubernetesRules:
    name = "kubernetes"
    sections = SECTIONS
    kinds: Sequence[Kind] = (WEIGHTS, *KINDS)
    facts = PlatformFacts(
        gated_models="set platform.hub_token_secret to a Secret of the cluster",
        has_instance_types=True,
        price_option="--ec2",
        compile_command=f"toolkit render RECIPE --part compile | {manifests.APPLY} -f -",
        why_not_compiled="`toolkit compile` does not work on Kubernetes, where a Job compiles",
        adopt=_adopt,
        nodes=lambda recipe: cluster(recipe).nodes,
    )

    @cached_property
    def parts(self) -> PlatformParts:
        from toolkit.platforms.parts import HeadTraining, PlatformParts, Trial

        training = HeadTraining(
            lambda recipe, account: train_job.train_job(recipe),
            train_job.notes,
            price_text=lambda recipe: notes.price_text(recipe.on(train_job.instance_type(recipe))),
        )
        trial = Trial("The new head is tried on an endpoint of its own, because a Deployment has no variants")
        return PlatformParts(
            require=several_nodes.require_free_names,
            transition=several_nodes.transition,
            kept_for_rollback=rollback.kept_for_rollback,
            base_images=lambda recipe, account: (base_address(recipe, account),),
            training=lambda: training,
            trial=lambda recipe: trial,
            rollback=rollback.rollback_plan,
            pause=pausing.pause_plan,
            price_text=notes.price_text,
            wait_seconds=wait_seconds,
        )

    def fill_in(self, written: PlatformSection) -> PlatformSection:
        """Where nothing is said of weights, containers download them."""
        settings = ClusterPlatform.of(written).kubernetes or KubernetesSection()
        weights = "claim" if settings.weights_claim else "s3" if settings.weights_bucket else "hub"
        return written.edit(kubernetes=settings, weights=written.weights or weights)

    def instance(self, name: str) -> lookup.Instance | None:
        return devices.node_type(name)

    def instances(self) -> Sequence[lookup.Instance]:
        return devices.node_types()

    def images(self, recipe: Recipe) -> Sequence[lookup.Image]:
        return lookup.images("upstream", recipe.engine.name)

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        return findings(recipe)

    def desired(self, arms: Sequence[Recipe], account: Account) -> tuple[Resource, ...]:
        resources = (item for arm in arms for item in (*storage.uploads(arm), *manifests.resources(arm)))
        once = {(item.kind, item.name): item for item in resources}
        return tuple(sorted(once.values(), key=lambda item: position(item.kind)))

    def notes(self, recipe: Recipe, account: Account) -> Iterator[str]:
        return notes.notes(recipe, account)


def wait_seconds(plan: Plan) -> float:
    """How long its endpoints may take: an update starts one pod after the other, each with the whole deadline."""
    seconds = [
        _deadline(action.request) * _starts(action.request["spec"])
        for action in plan.actions
        if action.kind in ENDPOINTS and action.request
    ]
    return max(_WAIT_SECONDS, max(seconds, default=0.0) + _MARGIN_SECONDS)


def _starts(spec: Mapping[str, Any]) -> int:
    """How many copies an update starts one after the other; of groups one more, which is there for the update only."""
    rollout = spec.get("rolloutStrategy", {}).get("rollingUpdateConfiguration", {})
    return int(spec.get("replicas", 1)) + int(rollout.get("maxSurge", 0))


def _deadline(request: Mapping[str, Any]) -> float:
    """How long one copy may take until it is ready. A LeaderWorkerSet has no such field: its probe says it."""
    if "leaderWorkerTemplate" not in request["spec"]:
        return float(request["spec"].get("progressDeadlineSeconds", 0))
    pod = pods_of(request)["spec"]
    probe = pod["containers"][0]["startupProbe"]
    return float(
        probe["failureThreshold"] * probe["periodSeconds"] + PULL_SECONDS + pod["terminationGracePeriodSeconds"]
    )


RULES: PlatformRules = KubernetesRules()
