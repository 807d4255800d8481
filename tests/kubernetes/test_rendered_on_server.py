"""What `toolkit render` writes, applied by the genuine kubectl to a genuine API server with its controllers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from container import NETWORK
from node import Node
from rendering import RECIPES, Kubectl, recipe_file, rendered

import toolkit
from toolkit.cli.main import run
from toolkit.platforms.kubernetes.pods import is_ready
from toolkit.platforms.kubernetes.rules.metadata import INSTANCE
from toolkit.platforms.kubernetes.rules.storage import bucket_folders

_PATIENCE_SECONDS = 120.0
HOWTO = Path(__file__).parents[2] / "docs/howto/kubernetes.md"


def apply(kubectl: Kubectl, folder: Path) -> None:
    kubectl("apply", "--server-side", "--field-manager=toolkit", "-k", folder)


def documents(folder: Path) -> list[Mapping[str, Any]]:
    """The manifests of all files of a base."""
    files = (path for part in ("base", "serve") for path in (folder / part).glob("*-*.yaml"))
    return [yaml.safe_load(path.read_text()) for path in files]


def test_one_of_two_endpoints_of_a_namespace_is_deleted(kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    """Deleting all that an endpoint's commit has, as a GitOps tool does, leaves the namespace and the other one."""
    first, second = (rendered(tmp_path, name, namespace) for name in ("first", "second"))
    apply(kubectl, first / "namespace")
    apply(kubectl, first)
    apply(kubectl, second)
    kubectl("delete", "--wait=false", "-k", first)
    assert json.loads(kubectl("get", "namespace", namespace, "-o", "json"))["status"]["phase"] == "Active"
    left = kubectl("get", "serviceaccount,service,deployment,configmap,networkpolicy", "-n", namespace, "-o", "name")
    of_ours = [line for line in left.splitlines() if line.rpartition("/")[2].startswith(("first", "second"))]
    assert [line for line in of_ours if "/first" in line] == []
    assert len(of_ours) == 5


def on_trainium(folder: Path, name: str, namespace: str, bucket: str) -> Path:
    """The folder of an endpoint whose compiled code lies in that bucket."""
    shipped = RECIPES / "qwen3-32b/draft-model-trn2-eks.yaml"
    path, yaml_text = folder / f"{name}.yaml", shipped.read_text()
    recipe = {**yaml.safe_load(yaml_text), "name": name}
    recipe["engine"] = {**recipe["engine"], "compile": "ahead"}
    settings = {"namespace": namespace, "artifacts_bucket": bucket, "neuron_devices": "device-plugin"}
    recipe["platform"] = {**recipe["platform"], "kubernetes": settings}
    path.write_text(json.dumps(recipe))
    path.with_suffix(".lock.json").write_bytes(shipped.with_suffix(".lock.json").read_bytes())
    assert run(["render", str(path), "--out", str(folder / name)]) == 0
    return folder / name


def test_endpoints_bring_their_volumes_of_compiled_code_and_leave_them(
    kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    """The namespace's folder is applied once, whatever buckets its endpoints have."""
    first, second, third = (
        on_trainium(tmp_path, name, namespace, bucket)
        for name, bucket in (("first", "ours"), ("second", "ours"), ("third", "another"))
    )
    apply(kubectl, first / "namespace")
    for folder in (first, second, third):
        apply(kubectl, folder)
    claims = kubectl("get", "pvc", "-n", namespace, "-o", "name").split()
    assert len(claims) == 2
    kubectl("delete", "--wait=false", *documented("kubectl delete -k manifests (.*?)`"), "-k", first)
    assert kubectl("get", "pvc", "-n", namespace, "-o", "name").split() == claims
    left = kubectl("get", "deployment,configmap", "-n", namespace, "-o", "name")
    assert [name in left for name in ("first", "second", "third")] == [False, True, True]


def documented(pattern: str) -> list[str]:
    """Words of a command of the how-to."""
    (found,) = re.findall(pattern, HOWTO.read_text(), re.DOTALL | re.MULTILINE)
    return shlex.split(found)


def test_the_documented_clean_up_takes_one_endpoint_of_one_namespace(
    kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    other = f"{namespace}-other"
    for place in (namespace, other):
        for name in ("chat", "search"):
            folder = rendered(tmp_path, name, place, weights_bucket="our-models")
            apply(kubectl, folder / "namespace")
            apply(kubectl, folder)
    block = documented(r"^```console\n\$ (kubectl get -n NAMESPACE pvc .*?)^```")
    words = " ".join(block).replace("NAMESPACE", namespace).replace("=NAME", "=chat")
    lists, takes, takes_volumes = (command.split() for command in words.split(" $ kubectl "))
    volumes_of_it = kubectl(*lists[1:]).split()
    kubectl(*takes)
    assert takes_volumes[-1] == "VOLUMES"
    kubectl(*takes_volumes[:-1], *volumes_of_it)
    volumes = json.loads(kubectl("get", "pv", "-l", INSTANCE, "-o", "json"))["items"]
    found = sorted((item["spec"]["claimRef"]["namespace"], item["metadata"]["labels"][INSTANCE]) for item in volumes)
    left = [(place, name) for place, name in found if place in (namespace, other)]
    assert left == [(namespace, "search")] * 2 + [(other, "chat")] * 2 + [(other, "search")] * 2
    assert "chat" not in kubectl("get", "configmap,pvc", "-n", namespace, "-o", "name")


def test_the_documented_roles_are_for_a_new_namespace_alone(kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    rendered(tmp_path, "chat", namespace)
    (block,) = re.findall(r"^## What users may do\n+```console\n(.*?)^```", HOWTO.read_text(), re.DOTALL | re.MULTILINE)
    script = block.replace("$ ", "").replace("NAMESPACE", namespace)
    script = script.replace(
        "toolkit render recipe.yaml", f"{sys.executable} -m toolkit render {tmp_path / 'chat.yaml'}"
    )
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def may(*what: str) -> bool:
        done = subprocess.run(["kubectl", "auth", "can-i", *what, "--as", "ci"], capture_output=True, text=True)
        return done.stdout == "yes\n"

    assert may("create", "deployments", "-n", namespace)
    for verb in ("create", "patch"):  # the two that server-side apply takes
        assert may(verb, f"namespaces/{namespace}")
        assert not may(verb, "namespaces/default")


def test_the_documented_overlay_is_applied_over_its_base(kubectl: Kubectl, namespace: str, tmp_path: Path) -> None:
    base = rendered(tmp_path, "gated", namespace).rename(tmp_path / "manifests")
    apply(kubectl, base / "namespace")
    apply(kubectl, base)
    overlay = tmp_path / "overlays/production"
    overlay.mkdir(parents=True)
    (text,) = re.findall(r"^```yaml\n(apiVersion: kustomize.*?)^```", HOWTO.read_text(), re.DOTALL | re.MULTILINE)
    (overlay / "kustomization.yaml").write_text(text)
    kubectl(*documented("kubectl (apply [^`$]*) -k overlays/production"), "-k", overlay)
    place = "jsonpath={.spec.replicas}"
    assert kubectl("get", "deployment", "gated", "-n", namespace, "-o", place) == "3"


def pruned(kubectl: Kubectl, namespace: str, name: str, wanted: list[Mapping[str, Any]]) -> list[str]:
    """As Argo CD prunes: what the endpoint has and its commit has not any more goes, unless it says `Prune=false`."""
    kinds = "configmaps,persistentvolumeclaims,services,serviceaccounts,networkpolicies"
    listed = kubectl("get", kinds, "-n", namespace, "-l", f"app.kubernetes.io/instance={name}", "-o", "json")
    still, gone = {(item["kind"], item["metadata"]["name"]) for item in wanted}, []
    for item in json.loads(listed)["items"]:
        option = item["metadata"].get("annotations", {}).get("argocd.argoproj.io/sync-options", "")
        if (item["kind"], item["metadata"]["name"]) not in still and "Prune=false" not in option:
            kubectl("delete", item["kind"], "-n", namespace, item["metadata"]["name"])
            gone.append(item["metadata"]["name"])
    return gone


def version(namespace: str, folder: Path, number: str) -> Path:
    """The rendered folder of a version of `chat` whose models have a bucket of their own."""
    settings: dict[str, Any] = {"weights_bucket": f"bucket-{number}", "pod": {"annotations": {"version": number}}}
    recipe = toolkit.load(recipe_file(folder, "chat", namespace, **settings))
    for found in bucket_folders(recipe).values():
        model = folder / "buckets" / found.bucket / found.prefix
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
    return rendered(folder, "chat", namespace, **settings)


@pytest.mark.allow_hosts(["127.0.0.1", NETWORK])
def test_a_rollback_after_a_prune_starts_the_version_before(
    kubectl: Kubectl, node: Node, namespace: str, tmp_path: Path
) -> None:
    old = version(namespace, tmp_path, "1")
    apply(kubectl, old / "namespace")
    kubectl("create", "secret", "generic", "hub", "-n", namespace, "--from-literal=token=hf_token")
    apply(kubectl, old)
    kubectl("create", "service", "clusterip", "chat-extra", "-n", namespace, "--tcp=80")
    kubectl("label", "service", "chat-extra", "-n", namespace, "app.kubernetes.io/instance=chat", "--overwrite")
    wait_served(node, "1")
    new = version(namespace, tmp_path, "2")
    apply(kubectl, new)
    wait_served(node, "2")
    assert pruned(kubectl, namespace, "chat", documents(new)) == ["chat-extra"]

    kubectl("rollout", "undo", "deployment/chat", "-n", namespace)
    wait_served(node, "1")


def wait_served(node: Node, number: str) -> None:
    """Until pods of that version alone are there, and ready."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while [(item["metadata"]["annotations"]["version"], is_ready(item)) for item in [*node.pods.values()]] != [
        (number, True)
    ]:
        assert time.monotonic() < deadline, f"version {number} does not come"
        time.sleep(0.05)
