"""Notes for a plan for a cluster: what the cluster needs, and what to do before."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.platforms.image import base_image
from toolkit.platforms.kubernetes.rules.devices import accelerators, disk_gib, on_trainium
from toolkit.platforms.kubernetes.rules.manifests import APPLY, scales
from toolkit.platforms.kubernetes.rules.metadata import section
from toolkit.recipe.resolve import Recipe

PRICE = "? $/h: the catalogue has SageMaker's prices, but a cluster's nodes have EC2's prices"


def notes(recipe: Recipe, account: Account) -> Iterator[str]:
    """One sentence or line each."""
    if account.id == NO_ACCOUNT:
        yield "This plan was made without a cluster, as if it were empty. It cannot be applied."
    yield from recipe.engine.rules.notes(recipe)
    yield f"No image is built: {base_image(recipe, Account('', ''))} is used, with the toolkit's programs mounted"
    yield from _needs(recipe)
    if count := accelerators(recipe):
        what = f"{count} more {'chips' if on_trainium(recipe) else 'GPUs'}" if count > 1 else "one more accelerator"
        yield f"An update starts the new pod beside the old one: it needs {what}, and waits until they are free"
    if compiles_ahead(recipe):
        yield (
            f"Pods start with compiled code only. First: toolkit render {recipe.path} --out DIR && {APPLY} -k "
            "DIR/compile, and wait until its Job is complete"
        )
    yield f"Price: {PRICE}"


def _needs(recipe: Recipe) -> Iterator[str]:
    settings, metrics = section(recipe), recipe.engine.rules.metrics
    if on_trainium(recipe) and settings.neuron_devices == "dra":
        yield "The cluster needs Kubernetes 1.34 and Neuron's DRA driver, on nodes without Neuron's device plugin"
    elif on_trainium(recipe):
        yield (
            "The cluster needs Neuron's device plugin; for several chips of a node also its scheduler extension, which "
            "picks connected ones"
        )
    elif accelerators(recipe):
        yield "The cluster needs NVIDIA's device plugin"
    compiles = compiles_ahead(recipe)
    if disk := max(disk_gib(recipe, compiles=False), disk_gib(recipe, compiles=True) if compiles else 0):
        yield f"A node needs {disk} GiB of free disk for each pod (ephemeral storage): give its volume that size"
    if compiles:
        role = settings.service_account_role or "its role"
        yield f"It needs Mountpoint for Amazon S3's CSI driver; {role} reads and writes {settings.artifacts_bucket}"
    if scales(recipe) and settings.prometheus:
        yield "Autoscaling needs KEDA, and Prometheus scraping the pods"
    elif scales(recipe):
        yield (
            f"Autoscaling needs the pods' metric {metrics.of_pods}: with Prometheus and its adapter, a rule that gives "
            f"{metrics.running_requests} this name"
        )
