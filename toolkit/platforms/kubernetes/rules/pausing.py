"""What `toolkit pause` does on a cluster: no pods, and no autoscaler that would start some."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.planning.plan import Action, Plan
from toolkit.planning.resources import Observed
from toolkit.platforms.kubernetes.rules.kinds import serving

PAUSED_ANNOTATION = "toolkit/paused"
_NOTES = ("All other objects stay. A node without pods goes only if something removes it, such as Karpenter",)


def pause_plan(recipe: str, endpoints: Sequence[str], observed: Observed, now: float) -> Plan:
    """The plan that takes all pods from the endpoints; `now` is in seconds since 1970.

    Executing it removes our autoscalers too, which a fixed number of pods excludes.
    """
    actions = []
    for name in endpoints:
        existing = serving(observed, name)
        if existing is None or PAUSED_ANNOTATION in existing.state["Annotations"]:
            continue
        manifest, annotations = existing.state["Manifest"], existing.state["Annotations"]
        metadata = {**manifest["metadata"], "annotations": {**annotations, PAUSED_ANNOTATION: str(int(now))}}
        request = {**manifest, "metadata": metadata, "spec": {**manifest["spec"], "replicas": 0}}
        actions.append(Action(existing.kind, name, "update", "takes its pods away", request))
    return Plan(recipe, "kubernetes", tuple(endpoints), tuple(actions), None, observed.fingerprint(), notes=_NOTES)
