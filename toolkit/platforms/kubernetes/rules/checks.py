"""Can a cluster serve the recipe, and do all of its keys have an effect there?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from toolkit.catalog import lookup
from toolkit.catalog.trainium import UNSIZED, family
from toolkit.checks.sections import check_scaling_target
from toolkit.engines import registry as engine_registry
from toolkit.engines.arguments import fetched_by_container
from toolkit.findings import Finding
from toolkit.planning.artifacts import wants_compiled
from toolkit.platforms.kubernetes.keys import cluster
from toolkit.platforms.kubernetes.rules import devices
from toolkit.platforms.kubernetes.rules.devices import INSTANCE_TYPE, SAGEMAKER_PREFIX
from toolkit.platforms.kubernetes.rules.routing import PICKER_ENDING, READS
from toolkit.platforms.kubernetes.rules.storage import OUR_FOLDERS, OUR_VOLUMES
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource

_TYPES, _NODES, _ROUTING = "platform.instance_types", "platform.kubernetes.nodes", "platform.kubernetes.routing"
_OF_TRAINIUM = ("neuron_devices", "neuron_driver", "artifacts_bucket")
_WITHOUT_RAY = "the engine starts its ranks on several nodes itself, without Ray"
# Flags that are for one node, with the only value that works on several, if there is one, why, and the edit.
_ON_ONE_NODE = {
    "data-parallel-size": (
        "1",
        "copies of a model that several nodes run are groups of pods, not ranks of an engine",
        "Remove it, and set scaling.min_instances.",
    ),
    "distributed-executor-backend": ("mp", _WITHOUT_RAY, "Remove it: the toolkit sets it to `mp`."),
    "data-parallel-backend": ("mp", _WITHOUT_RAY, "Remove it."),
    "api-server-count": (
        None,
        "only the first of several nodes takes requests, and with this flag the engine does not start on the others",
        "Remove it.",
    ),
}
# Kubernetes, object names: RFC 1035 labels for Services, and RFC 1123 subdomains for Secrets.
_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
# Meta asks everybody to accept its licence on the hub; of drafters the catalogue knows it.
_GATED_OWNER = "meta-llama/"


def findings(recipe: Recipe) -> Iterator[Finding]:
    yield from _names(recipe)
    yield from _instance_types(recipe)
    yield from _families(recipe)
    yield from _nodes(recipe)
    yield from _container(recipe)
    yield from _models(recipe)
    yield from _artifacts(recipe)
    yield from _scaling(recipe)
    yield from _routing(recipe)
    yield from _pod(recipe)


def _names(recipe: Recipe) -> Iterator[Finding]:
    if not _LABEL.fullmatch(recipe.name):
        message = f"{recipe.name} is not a valid name for a Kubernetes Service"
        hint = "Use lower-case letters, digits and hyphens, beginning with a letter."
        yield Finding("kubernetes.name", message, "name", hint=hint)
    elif recipe.name.endswith(PICKER_ENDING):
        message = f"names that end with {PICKER_ENDING} are those of endpoint pickers (kubernetes.routing)"
        yield Finding("kubernetes.name", message, "name", hint="Choose another name.")
    if recipe.platform.hub_token_secret and not _SUBDOMAIN.fullmatch(recipe.platform.hub_token_secret):
        message = "this is not a valid name of a Kubernetes Secret"
        hint = "Set it to the Secret's name. The Secret has the token under the key `token`."
        yield Finding("kubernetes.secret", message, "platform.hub_token_secret", hint=hint)


def _instance_types(recipe: Recipe) -> Iterator[Finding]:
    rules, known = recipe.engine_rules, list(map(devices.node_type, recipe.platform.types))
    has_own_image = recipe.container is not None and recipe.container.base is not None
    for index, name in enumerate(recipe.platform.types):
        path, instance = f"{_TYPES}.{index}", devices.node_type(name)
        if name in recipe.platform.overrides:
            message = "a Deployment has the same settings on every instance type"
            hint = "Use one type with its settings, or a recipe for each type."
            yield Finding("kubernetes.overrides", message, path, hint=hint)
        if name.startswith(SAGEMAKER_PREFIX):
            message = f"{name} is SageMaker's name of an instance type; nodes have EC2's names"
            hint = f"Write {name.removeprefix(SAGEMAKER_PREFIX)}."
            yield Finding("kubernetes.instance-type", message, path, hint=hint)
        elif instance is None and not (name in recipe.unlisted and any(known)):
            yield _unknown(name, path)
        elif instance and not (rules.hardware or rules.runs_on(instance) or has_own_image):
            yield _no_gpu(recipe, instance, path)


def _nodes(recipe: Recipe) -> Iterator[Finding]:
    """Is the model divided evenly among nodes, each of which has the accelerators for its part?"""
    nodes, types = recipe.nodes, devices.instances(recipe)
    if not types or recipe.engine_rules.hardware:
        if nodes > 1:
            message = f"{recipe.engine.name} runs on one node only"
            yield Finding("kubernetes.nodes", message, _NODES, hint="Remove it.")
        return
    needed, there = recipe.engine_rules.accelerators(recipe, types[0]), types[0].accelerator_count
    if needed > nodes * there > 0:
        message = f"the engine takes {needed} GPUs, but {_of(nodes)} {types[0].name} has {there}"
        hint = f"Write `kubernetes: {{nodes: {-(-needed // there)}}}`, or lower the parallelism in engine.args."
        yield Finding("kubernetes.nodes", message, f"{_TYPES}.0", hint=hint)
    if nodes > 1:
        yield from _group(recipe, needed)


def _of(nodes: int) -> str:
    return "a" if nodes == 1 else f"each of {nodes}"


def _group(recipe: Recipe, needed: int) -> Iterator[Finding]:
    """Of several nodes that run a model together."""
    nodes, args = recipe.nodes, recipe.engine.args
    if recipe.engine_rules.rank_flags is None:
        message = f"{recipe.engine.name} runs on one node only"
        yield Finding("kubernetes.nodes", message, _NODES, hint="Remove it.")
        return
    if len(recipe.platform.types) > 1:
        message = "nodes that run a model together have to be alike, but pods may run on any of the types"
        yield Finding("kubernetes.nodes", message, f"{_TYPES}.1", hint="Name one type.")
    for flag, (works, message, hint) in _ON_ONE_NODE.items():
        if flag in args and str(args[flag]) != works:
            yield Finding("kubernetes.nodes", message, f"engine.args.{flag}", hint=hint)
    if needed % nodes:
        message = f"the engine's GPUs, {needed}, cannot be divided evenly among {nodes} nodes"
        hint = f"Set `tensor-parallel-size` times `pipeline-parallel-size` in engine.args to a multiple of {nodes}."
        yield Finding("kubernetes.nodes", message, _NODES, hint=hint)
    else:
        yield from _link(recipe, needed // nodes)


def _link(recipe: Recipe, on_each: int) -> Iterator[Finding]:
    """Every layer of a tensor-parallel model waits for all of its ranks, a stage once for the one before."""
    size = str(recipe.engine.args.get("tensor-parallel-size", 1))
    if not size.isdecimal() or int(size) <= on_each:
        return
    message = (
        f"tensor parallelism over {size} GPUs, {on_each} on a node: each layer waits for the network between nodes"
    )
    stages = f"`tensor-parallel-size: {on_each}` with `pipeline-parallel-size: {recipe.nodes}`"
    hint = f"Write {stages}. Where speculation fails with stages: give the nodes a fast network (EFA), and measure."
    yield Finding("kubernetes.link", message, "engine.args.tensor-parallel-size", hint=hint, severity="warning")


def _unknown(name: str, path: str) -> Finding:
    if why := UNSIZED.get(family(name)):
        hint = "Use trn2.48xlarge, on which the engines for it run, too."
        return Finding("kubernetes.instance-type", f"pods cannot be sized for {name}: {why}", path, hint=hint)
    hint = "Use one that `toolkit fit RECIPE` lists, without `ml.`. If it is newer than the catalogue, write "
    hint += f"`unlisted: [{name}]`, beside a known type that pods are sized for."
    return Finding("kubernetes.instance-type", f"{name} is not a known instance type", path, hint=hint)


def _families(recipe: Recipe) -> Iterator[Finding]:
    """Pods and their Job land on any of the types, with one claim, one lowest driver and one compiled code."""
    first, *others = map(family, recipe.platform.types)
    for index, other in enumerate(others, start=1):
        if recipe.engine_rules.compilation and other != first:
            message = (
                f"pods may run on any type, but their claim, driver and compiled code are for {first}, not {other}"
            )
            yield Finding("kubernetes.families", message, f"{_TYPES}.{index}", hint="Write a recipe for each family.")


def _no_gpu(recipe: Recipe, instance: lookup.Instance, path: str) -> Finding:
    message = (
        f"{recipe.engine.name}'s image needs NVIDIA GPUs of Turing or newer and x86 CPUs, but {instance.name} has "
        f"{instance.processors}"
    )
    other = engine_registry.engine_for(instance)
    hint = f"Write `engine: {{name: {other}}}`, or choose" if other else "Choose"
    return Finding("kubernetes.accelerator", message, path, hint=f"{hint} a type with GPUs.")


def _container(recipe: Recipe) -> Iterator[Finding]:
    """The public image runs as it is; only another one can be named."""
    if recipe.container is None:
        return
    written = [key for key in recipe.container.model_dump(exclude_defaults=True) if key != "base"]
    if written or recipe.container.base is None:
        what = f"`{written[0]}` is for images that are built" if written else "nothing is built"
        message = f"{what}, but for a cluster no image is built"
        path = f"container.{written[0]}" if written else "container"
        hint = "Remove it, or name an existing image: `container: {base: registry/repository:tag}`."
        yield Finding("kubernetes.container", message, path, hint=hint)


def _models(recipe: Recipe) -> Iterator[Finding]:
    yield from _weights(recipe)
    for path, source in recipe.models.items():
        fetched = fetched_by_container(recipe, source)
        if source.kind == "jumpstart":
            message = f"{source} is JumpStart's, whose models run on SageMaker only"
            yield Finding("kubernetes.weights", message, path, hint="Use its id on the hub, or an address in S3.")
        elif source.kind == "folder" and recipe.platform.weights == "hub":
            message = f"{source} is a folder of this machine, which pods cannot read"
            hint = "Set kubernetes.weights_bucket to a bucket that you can upload it to, or use a Hugging Face id."
            yield Finding("kubernetes.weights", message, path, hint=hint)
        elif fetched and recipe.platform.hub_token_secret is None and _may_be_gated(source):
            message = f"{source} is gated, but the containers have no token"
            hint = "Create a Secret with the key `token`, and set platform.hub_token_secret to its name."
            yield Finding("kubernetes.hub-token", message, path, hint=hint, severity="warning")


def _weights(recipe: Recipe) -> Iterator[Finding]:
    settings, written, path = cluster(recipe), recipe.platform.weights, "platform.weights"
    needs_bucket = [source for source in recipe.models.values() if source.kind != "s3"]
    mounted = settings.weights_bucket or settings.weights_claim
    if written == "s3" and needs_bucket and not settings.weights_bucket:
        message = f"{needs_bucket[0]} would have to be in a bucket that pods mount, but none is named"
        hint = "Set kubernetes.weights_bucket, or write `weights: hub`."
        yield Finding("kubernetes.weights", message, path, hint=hint)
    elif written == "hub" and mounted:
        message = f"the containers download the models, so {mounted} has no effect"
        yield Finding("kubernetes.weights", message, path, hint="Remove `weights`.")
    elif written != "hub" and settings.weights_cache == "node":
        message = "nothing is downloaded from the hub, so nothing is kept on the nodes"
        hint = "Remove `weights_cache`."
        yield Finding("kubernetes.weights", message, "platform.kubernetes.weights_cache", hint=hint)


def _may_be_gated(source: ModelSource) -> bool:
    listed = lookup.head(source.model)
    return source.model.startswith(_GATED_OWNER) or bool(listed and listed.gated)


def _artifacts(recipe: Recipe) -> Iterator[Finding]:
    settings = cluster(recipe)
    if recipe.engine_rules.compilation is None:
        if wants_compiled(recipe):
            message = "a cluster's pods take nothing of an earlier start yet; one that is started again in its pod does"
            yield Finding("kubernetes.warm-start", message, "engine.warm_start", hint="Remove it.")
        for key in _OF_TRAINIUM:
            if getattr(settings, key):
                message = f"`{key}` is for Trainium, and has no effect with engine `{recipe.engine.name}`"
                yield Finding("recipe.no-effect", message, f"platform.kubernetes.{key}", hint="Remove it.")
    elif recipe.engine.compile_ahead and not settings.artifacts_bucket:
        message = "compiled code must be in a bucket that the pods mount"
        hint = "Set `kubernetes: {artifacts_bucket: …}`, or write `compile: at-start`."
        yield Finding("kubernetes.artifacts", message, "platform.kubernetes.artifacts_bucket", hint=hint)


def _scaling(recipe: Recipe) -> Iterator[Finding]:
    scaling = recipe.scaling
    if scaling.min_instances == 0:
        message = "the toolkit's autoscalers keep at least one pod"
        yield Finding("kubernetes.scale-to-zero", message, "scaling.min_instances", hint="Set it to 1 or more.")
    metrics = recipe.engine_rules.metrics
    if scaling.max_instances > scaling.min_instances and metrics is None:
        message = f"{recipe.engine.name} has no metric of its requests, by which the autoscaler would go"
        yield Finding("kubernetes.autoscaling", message, "scaling.max_instances", hint="Remove `scaling`.")
    elif scaling.max_instances > scaling.min_instances and metrics and not cluster(recipe).prometheus:
        message = "the autoscaler needs a metric of the pods, which a Prometheus adapter must provide"
        hint = f"Install one that provides `{metrics.names.of_pods}`, or KEDA, and set platform.kubernetes.prometheus."
        yield Finding("kubernetes.autoscaling", message, "scaling.max_instances", hint=hint, severity="info")
    yield from check_scaling_target(recipe, "kubernetes.scaling-target")


def _routing(recipe: Recipe) -> Iterator[Finding]:
    """Are there pods to choose among, and metrics to choose by?"""
    metrics = recipe.engine_rules.metrics
    if cluster(recipe).routing is None:
        return
    if metrics is None or metrics.names.prefix != READS:
        message = f"the endpoint picker reads metrics that begin with `{READS}`, and {recipe.engine.name} has none"
        yield Finding("kubernetes.routing", message, _ROUTING, hint="Remove it.")
    elif recipe.scaling.max_instances < 2:
        message = "the endpoint has one replica, so there is nothing to choose among"
        hint = "Set scaling.min_instances and max_instances to 2 or more, or remove it."
        yield Finding("kubernetes.routing", message, _ROUTING, hint=hint, severity="warning")


def _pod(recipe: Recipe) -> Iterator[Finding]:
    wanted, path = cluster(recipe).pod, "platform.kubernetes.pod"
    if INSTANCE_TYPE in wanted.node_selector:
        message = f"the toolkit sets {INSTANCE_TYPE} itself"
        hint = "Remove it, and use platform.instance_types."
        yield Finding("kubernetes.pod", message, f"{path}.node_selector", hint=hint)
    names, folders = set(OUR_VOLUMES), list(OUR_FOLDERS)
    for index, volume in enumerate(wanted.volumes):
        if volume.name in names:
            message = f"the pod has another volume named `{volume.name}`"
            yield Finding("kubernetes.pod", message, f"{path}.volumes.{index}.name", hint="Choose another name.")
        if inside := next((folder for folder in folders if _overlap(folder, volume.mount_path)), None):
            message = f"{volume.mount_path} and the volume at {inside} hide each other"
            place = f"{path}.volumes.{index}.mount_path"
            yield Finding("kubernetes.pod", message, place, hint="Choose another folder.")
        names.add(volume.name)
        folders.append(volume.mount_path)
    if wanted.min_available and wanted.min_available >= max(1, recipe.scaling.min_instances):
        message = "while only these pods run, no node with one of them can be drained"
        hint = f"Set scaling.min_instances above {wanted.min_available}, or remove `min_available`."
        yield Finding("kubernetes.pod", message, f"{path}.min_available", hint=hint, severity="warning")


def _overlap(folder: str, other: str) -> bool:
    first, second = PurePosixPath(folder), PurePosixPath(other)
    return first == second or first in second.parents or second in first.parents
