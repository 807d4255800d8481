"""Notes for a plan for a cluster: what the cluster needs, and what to do before."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.platforms.image import base_image
from toolkit.platforms.kubernetes.rules.devices import accelerators, instances, on_trainium
from toolkit.platforms.kubernetes.rules.manifests import APPLY, scales
from toolkit.platforms.kubernetes.rules.metadata import section
from toolkit.recipe.resolve import Recipe


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
    yield f"Price: {price_text(recipe)}"


def price_text(recipe: Recipe) -> str:
    """What a node costs. What the pods cost is not known: nodes are billed whether pods run on them or not."""
    first = instances(recipe)[0] if instances(recipe) else None
    price = first.price() if first else None
    if first is None or price is None:
        return f"? $/h: the catalogue has no EC2 price of {recipe.platform.instance_types[0]}"
    source = f"EC2, on demand in {price.region}, {price.date}"
    return (
        f"? $/h: the cluster's nodes are paid for, not its pods; a {first.name} is {price.usd_per_hour:.2f} ({source})"
    )


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
    if compiles_ahead(recipe):
        role = settings.service_account_role or "its role"
        yield f"It needs Mountpoint for Amazon S3's CSI driver; {role} reads and writes {settings.artifacts_bucket}"
    if scales(recipe) and settings.prometheus:
        yield "Autoscaling needs KEDA, and Prometheus scraping the pods"
    elif scales(recipe):
        yield (
            f"Autoscaling needs the pods' metric {metrics.of_pods}: with Prometheus and its adapter, a rule that gives "
            f"{metrics.running_requests} this name"
        )
