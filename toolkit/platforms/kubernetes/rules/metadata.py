"""Names, labels and annotations of what is made on a cluster: how the toolkit's own are recognized."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from toolkit.planning.names import RECIPE_ANNOTATION, RECIPE_TAG, tag_map
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import OWN_LABELS, cluster
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME
from toolkit.recipe.recipe import Recipe

Component = Literal["server", "worker", "compile", "benchmark", "train", "picker"]
"""What pods do: `worker` is a node's share of a model of which another node answers, `picker` chooses for a Gateway
which of the pods does.
"""

MANAGED_BY, INSTANCE, _ENGINE, COMPONENT = OWN_LABELS

OURS = {MANAGED_BY: "toolkit"}
BENCHMARK, TRAINING = {COMPONENT: "benchmark"}, {COMPONENT: "train"}
"""Labels of the Jobs that measure and train, and of what they need: no deployment creates or removes those."""


def manifest(recipe: Recipe, kind: str, name: str, **body: Any) -> Resource:
    """A resource of this endpoint's own; `body` is the manifest but for its head, to which it may add labels.

    The digest of the recipe stands in an annotation, and so do the recipe's tags, which labels could not hold.
    """
    tags = {"toolkit/tags": json.dumps(recipe.tags, sort_keys=True)} if recipe.tags else {}
    its_labels = {**labels(recipe), **body.pop("labels", {})}
    annotations = {RECIPE_ANNOTATION: tag_map(recipe)[RECIPE_TAG], **tags, **body.pop("annotations", {})}
    return _resource(recipe, kind, name, {"labels": its_labels, "annotations": annotations}, body)


def shared(recipe: Recipe, kind: str, name: str, **body: Any) -> Resource:
    """A resource that other endpoints of the namespace use as well."""
    return _resource(recipe, kind, name, {"labels": dict(OURS)}, body)


def labels(recipe: Recipe) -> dict[str, str]:
    return {**OURS, INSTANCE: recipe.name, _ENGINE: recipe.engine.name}


def pod_labels(recipe: Recipe, component: Component) -> dict[str, str]:
    """Labels of pods. They include the component, so that the Service does not select the pods of a Job."""
    return {**labels(recipe), COMPONENT: component}


def selector(recipe: Recipe, component: Component = "server") -> dict[str, str]:
    """Finds the pods that serve, or others. It cannot be changed later, so the engine is not in it."""
    return {INSTANCE: recipe.name, COMPONENT: component}


def _resource(recipe: Recipe, kind: str, name: str, metadata: Mapping[str, Any], body: Mapping[str, Any]) -> Resource:
    rule = KINDS_BY_NAME[kind]
    namespace = {"namespace": cluster(recipe).namespace} if rule.api.namespaced else {}
    head = {"apiVersion": rule.api.version, "kind": kind, "metadata": {"name": name, **namespace, **metadata}}
    return Resource(kind, name, {**head, **body})
