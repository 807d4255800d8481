"""Notes for a plan for a cluster: what the cluster needs, and what to do before."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from toolkit.engines.arguments import left_out_notes
from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.resources import NO_ACCOUNT, Account
from toolkit.platforms.image import base_image
from toolkit.platforms.kubernetes.keys import KubernetesSection, cluster
from toolkit.platforms.kubernetes.rules.devices import accelerators, claims_chips, disk_gib, instances, on_trainium
from toolkit.platforms.kubernetes.rules.manifests import APPLY, scales
from toolkit.platforms.kubernetes.rules.routing import PICKER_IMAGE, PICKER_REQUESTS
from toolkit.platforms.kubernetes.rules.several_nodes import OLDEST, OLDEST_THAT_SURGES
from toolkit.platforms.kubernetes.rules.storage import NODE_FOLDER, BucketFolder, bucket_folders, claim_folders
from toolkit.recipe.recipe import Recipe


def notes(recipe: Recipe, account: Account) -> Iterator[str]:
    if account.id == NO_ACCOUNT:
        yield "This plan was made without a cluster, as if it were empty. It cannot be applied."
    if hardware := recipe.engine_rules.hardware:
        yield from hardware.notes(recipe)
    yield f"No image is built: {base_image(recipe, Account('', ''))} is used, with the toolkit's programs mounted"
    yield from left_out_notes(recipe)
    yield from _needs(recipe)
    if cluster(recipe).pod.update == "old-first":
        yield "An update ends an old pod before it starts the new one: a single pod answers nobody meanwhile"
    elif recipe.nodes > 1:
        yield (
            f"An update starts a new group beside the old one: it needs {recipe.nodes} more nodes, and waits for them; "
            "once that serves, the old group is started anew in its place"
        )
    elif count := accelerators(recipe):
        what = f"{count} more {'chips' if on_trainium(recipe) else 'GPUs'}" if count > 1 else "one more accelerator"
        yield f"An update starts the new pod beside the old one: it needs {what}, and waits until they are free"
    if compiles_ahead(recipe):
        yield (
            f"Pods start with compiled code only. First: toolkit render {recipe.path} --out DIR && {APPLY} -k "
            f"DIR/namespace && {APPLY} -k DIR/compile, and wait until its Job has ended, as that command says"
        )
    yield f"Price: {price_text(recipe)}"


def price_text(recipe: Recipe) -> str:
    """What a node costs. What the pods cost is not known: nodes are billed whether pods run on them or not."""
    first = instances(recipe)[0] if instances(recipe) else None
    price = first.price() if first else None
    if first is None or price is None:
        why = first.no_price if first else None
        said = f"{why.reason}; see {why.address}" if why else "see https://aws.amazon.com/ec2/pricing/on-demand/"
        return f"? $/h: the catalogue has no EC2 price of {recipe.platform.types[0]}: {said}"
    source, each = f"EC2, on demand in {price.region}, {price.date}", price.usd_per_hour
    if recipe.discount_percent:
        source = f"with your discount of {recipe.discount_percent:g} % on {each:.2f} of {source}"
        each *= 1 - recipe.discount_percent / 100
    together = (
        f", and {recipe.nodes} of them, for one copy of the model, {recipe.nodes * each:.2f}"
        if recipe.nodes > 1
        else ""
    )
    return f"? $/h: the cluster's nodes are paid for, not its pods; a {first.name} is {each:.2f}{together} ({source})"


def _needs(recipe: Recipe) -> Iterator[str]:
    settings, metrics = cluster(recipe), recipe.engine_rules.metrics
    if claims_chips(recipe):
        yield (
            "The cluster needs Kubernetes 1.34 and Neuron's DRA driver, on nodes without Neuron's device plugin; EKS "
            "Auto Mode does not support it"
        )
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
        yield f"It needs {_mountpoint(settings)}; {role} reads and writes {settings.artifacts_bucket}"
    if recipe.nodes > 1:
        least = OLDEST if settings.pod.update == "old-first" else OLDEST_THAT_SURGES
        yield (
            f"{recipe.nodes} nodes run the model together: the cluster needs LeaderWorkerSet, version {least} or newer "
            "(https://lws.sigs.k8s.io), and free nodes in one zone. Their network is TCP, unless the image has EFA's "
            "plugin for NCCL and the nodes have its device plugin"
        )
    if settings.pod_identity:
        yield (
            f"Pods get their role by an association: aws eks create-pod-identity-association --cluster-name CLUSTER "
            f"--namespace {settings.namespace} --service-account {recipe.name} "
            f"--role-arn {settings.service_account_role}"
        )
    yield from _models(recipe)
    yield from _routing(settings)
    if scales(recipe) and settings.prometheus:
        yield "Autoscaling needs KEDA, and Prometheus scraping the pods"
    elif scales(recipe) and metrics:
        yield (
            f"Autoscaling needs the pods' metric {metrics.names.of_pods}: with Prometheus and its adapter, a rule that "
            f"adds {metrics.names.running_requests} and {metrics.names.waiting_requests} "
            "(docs/howto/kubernetes.md has it)"
        )


def _routing(settings: KubernetesSection) -> Iterator[str]:
    if wanted := settings.routing:
        yield (
            "Routing needs Gateway API, the CRDs of its inference extension, and the Gateway "
            f"{wanted.gateway} of namespace {wanted.namespace or settings.namespace}, which lets in routes of "
            f"{settings.namespace}. Its endpoint picker asks for {PICKER_REQUESTS['cpu']} CPUs and "
            f"{PICKER_REQUESTS['memory']}, and is named by its tag, not by a digest: {PICKER_IMAGE}"
        )


def _mountpoint(settings: KubernetesSection) -> str:
    """Its version 1 knows pods' roles by IRSA alone."""
    least = ", version 2 or newer" if settings.pod_identity else ""
    return f"Mountpoint for Amazon S3's CSI driver{least}"


def _models(recipe: Recipe) -> Iterator[str]:
    """Where the models must be before pods can start."""
    settings, folders = cluster(recipe), bucket_folders(recipe)
    if folders:
        role = settings.service_account_role or "its role"
        buckets = ", ".join(sorted({folder.bucket for folder in folders.values()}))
        yield f"It needs {_mountpoint(settings)}; {role} reads {buckets}"
    for folder in folders.values():
        if folder.source:
            yield f"`toolkit deploy` uploads {folder.source} first; for manifests by hand: {upload_command(folder)}"
    for path in claim_folders(recipe).values():
        yield f"The claim {settings.weights_claim} in {settings.namespace} must have the model in its folder {path}"
    if settings.weights_cache == "node":
        yield (
            f"Pods of a node share what they download in its {NODE_FOLDER}; that volume is refused in namespaces with "
            "the Pod Security Standard `baseline` or `restricted`"
        )


def upload_command(folder: BucketFolder) -> str:
    """A shell command that puts the model into the bucket: a local folder, or what the hub has."""
    assert folder.source
    source, local = folder.source, shlex.quote(str(folder.source.folder or folder.source.name))
    upload = f"aws s3 sync {local} {shlex.quote(str(folder))} --exclude '.*' --exclude '*/.*'"
    if source.folder:
        return upload
    revision = f" --revision {shlex.quote(source.revision)}" if source.revision else ""
    return f"hf download {shlex.quote(source.model)}{revision} --local-dir {local} --exclude '*/*' && {upload}"
