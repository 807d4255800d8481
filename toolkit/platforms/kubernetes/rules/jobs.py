"""Jobs beside the endpoint: one compiles for Trainium before it serves, one compares both arms afterwards.

They are no part of a deployment: what compiles takes the accelerators that serving needs, and is wanted once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.home import containers_dir
from toolkit.planning.artifacts import compiles_ahead
from toolkit.planning.names import content_name
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import cluster
from toolkit.platforms.kubernetes.rules.metadata import BENCHMARK, manifest, pod_labels
from toolkit.platforms.kubernetes.rules.pod import pod_template, rollout_seconds
from toolkit.platforms.kubernetes.rules.security import bare_pod, benchmark_policy, container_security, pod_security
from toolkit.recipe.recipe import Recipe

# The samples allow 4 h 45 min.
_COMPILE_SECONDS = 18000
_KEPT_SECONDS = 7 * 24 * 3600
_BENCHMARK_SECONDS = 4 * 3600
# Karpenter and the cluster autoscaler empty nodes that are little used, such as that of a small pod: all that was
# measured would be lost.
_UNMOVED = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
PYTHON = "public.ecr.aws/docker/library/python:3.13-slim"
_PROGRAM = "benchmark.py"


def compile_job(recipe: Recipe) -> Resource | None:
    """Fills the bucket with what the recipe's pods start with; None where nothing is compiled ahead.

    Run again it ends at once: the artifacts are there. One retry, for a node that is lost.
    """
    if not compiles_ahead(recipe):
        return None
    spec = {
        "backoffLimit": 1,
        "activeDeadlineSeconds": _COMPILE_SECONDS,
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "template": pod_template(recipe, "compile"),
    }
    return manifest(recipe, "Job", content_name("compile", spec), spec=spec)


def wait_command(job: Mapping[str, Any]) -> str:
    """A shell command that ends when the Job has ended, and says whether it is Complete or Failed.

    `kubectl wait --for=condition=complete` goes on for ever after a failure (kubernetes/kubectl issue 1629).
    """
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    condition = """jsonpath={.status.conditions[?(@.status=="True")].type}"""
    get = f"kubectl get -n {namespace} job/{name} -o '{condition}'"
    return f"until {get} | grep -Ewo 'Complete|Failed'; do sleep 30; done"


def benchmark(arms: Sequence[Recipe]) -> list[Resource]:
    """What measures the arms through their Services, as clients in the cluster do: program, network and the Job."""
    recipe, path = arms[0], containers_dir() / "benchmark" / _PROGRAM
    data = {_PROGRAM: path.read_text(encoding="utf-8")}
    name = content_name(f"{recipe.name}-benchmark", data)
    program = manifest(recipe, "ConfigMap", name, labels=BENCHMARK, immutable=True, data=data)
    spec = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": _BENCHMARK_SECONDS + _start_seconds(arms),
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "template": {
            "metadata": {"labels": pod_labels(recipe, "benchmark"), "annotations": _UNMOVED},
            "spec": _benchmark_pod(arms, program.name),
        },
    }
    job = manifest(recipe, "Job", content_name("benchmark", spec), labels=BENCHMARK, spec=spec)
    return [program, benchmark_policy(arms), job]


def _benchmark_pod(arms: Sequence[Recipe], program: str) -> dict[str, Any]:
    options = [word for arm in arms for word in ("--arm", _arm(arm))]
    options += ["--start-seconds", str(_start_seconds(arms))]
    container = {
        "name": "benchmark",
        "image": PYTHON,
        "command": ["python3", f"/opt/toolkit/{_PROGRAM}", *options],
        "resources": {"requests": {"cpu": "1", "memory": "256Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "program", "mountPath": "/opt/toolkit", "readOnly": True}],
        "securityContext": container_security(),
    }
    return bare_pod(container, [{"name": "program", "configMap": {"name": program}}], securityContext=pod_security())


def _start_seconds(arms: Sequence[Recipe]) -> int:
    """The Job may be made together with what it measures."""
    return max(rollout_seconds(arm) for arm in arms)


def _arm(arm: Recipe) -> str:
    """What the study's metrics call it, and its address."""
    return f"{'SD' if arm.speculation else 'Base'}=http://{arm.name}.{cluster(arm).namespace}.svc"
