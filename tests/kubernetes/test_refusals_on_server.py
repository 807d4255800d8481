"""What a genuine cluster refuses, in the words that the toolkit's user reads: where, what, and the edit to make."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rendering import Kubectl, recipe_file
from scripted_node import ScriptedNode
from waiting import until

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import WaitTimeout
from toolkit.planning.plan import Action
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME
from toolkit.platforms.kubernetes.session import SESSION

OURS = "app.kubernetes.io/managed-by=toolkit"


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Cluster:
    """A namespace of this test's own, and the toolkit's commands in it."""

    kubectl: Kubectl
    namespace: str
    folder: Path
    captured: pytest.CaptureFixture[str]

    def recipe(self, **settings: Any) -> str:
        return str(recipe_file(self.folder, "chat", self.namespace, **settings))

    def toolkit(self, *arguments: str) -> Ended:
        self.captured.readouterr()
        code = run(list(arguments))
        return Ended(code, *self.captured.readouterr())

    def deploy(self, recipe: str, *options: str) -> Ended:
        return self.toolkit("deploy", recipe, "--yes", "--no-prove", *options)

    def make(self, *words: str) -> None:
        self.kubectl("create", *words, "-n", self.namespace)

    def apply(self, *documents: Mapping[str, Any]) -> None:
        path = self.folder / "documents.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
        self.kubectl("apply", "-f", path)

    def until_refused(self, recipe: str, kind: str) -> None:
        """Wait until the server has taken notice of what refuses the recipe's object of that kind."""
        manifests = {
            item["kind"]: item for item in json.loads(self.toolkit("render", recipe, "--json").out)["manifests"]
        }
        template = manifests["Deployment"]["spec"]["template"]
        metadata = {**template["metadata"], "name": "one", "namespace": self.namespace}
        manifests["Pod"] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        path = self.folder / "probe.json"
        path.write_text(json.dumps(manifests[kind]))
        probe = ["kubectl", "create", "--dry-run=server", "-f", path]
        until(lambda: subprocess.run(probe, capture_output=True).returncode != 0)

    def told_of(self, condition: str) -> str:
        """Status and message of a condition of the Deployment."""
        found = f"jsonpath={{.status.conditions[?(@.type=='{condition}')]['status','message']}}"
        return self.kubectl("get", "deployment", "chat", "-n", self.namespace, "-o", found)

    def there(self) -> set[str]:
        """What the toolkit has made."""
        kinds = "serviceaccounts,configmaps,services,deployments,networkpolicies"
        return set(self.kubectl("get", kinds, "-n", self.namespace, "-l", OURS, "-o", "name").split())


@pytest.fixture
def cluster(kubectl: Kubectl, namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cluster:
    kubectl("create", "namespace", namespace)
    return Cluster(kubectl, namespace, tmp_path, capsys)


def told(ended: Ended, *words: str) -> None:
    """It was refused, in these words."""
    assert ended.code == 3, ended
    for said in words:
        assert said in " ".join(ended.err.split()), ended.err


def explained(ended: Ended, code: str) -> None:
    """`explain` knows the same line."""
    (line,) = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    found = toolkit.explain(line)
    assert found.to_dict()["cause"] == code


def test_a_quota_of_objects_is_told_and_the_next_call_goes_on(cluster: Cluster) -> None:
    cluster.make("quota", "few", "--hard=services=0")
    recipe = cluster.recipe()
    cluster.until_refused(recipe, "Service")
    refused = cluster.deploy(recipe)
    told(refused, "create Service chat", "exceeded quota: few, requested: services=1", "kubectl describe quota")
    told(refused, "3 of 5 actions are done", "Run the same command again to resume")
    explained(refused, "namespace-quota")
    assert not any(name.startswith("deployment") for name in cluster.there())

    cluster.kubectl("delete", "quota", "few", "-n", cluster.namespace)
    until(lambda: cluster.deploy(recipe, "--no-wait").code == 0)
    assert len(cluster.there()) == 5


def test_a_quota_of_gpus_ends_the_wait(cluster: Cluster) -> None:
    cluster.make("quota", "gpus", "--hard=requests.nvidia.com/gpu=0")
    recipe = cluster.recipe()
    cluster.until_refused(recipe, "Pod")
    refused = cluster.deploy(recipe)
    told(refused, "exceeded quota: gpus, requested: requests.nvidia.com/gpu=1", "kubectl describe quota")
    explained(refused, "namespace-quota")


def test_a_quota_of_what_pods_do_not_say_asks_for_a_default(cluster: Cluster) -> None:
    cluster.make("quota", "cpu", "--hard=limits.cpu=100")
    recipe = cluster.recipe()
    cluster.until_refused(recipe, "Pod")
    refused = cluster.deploy(recipe)
    told(refused, "must specify limits.cpu for: engine", "for a LimitRange with a default for it")
    explained(refused, "namespace-quota")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max": {"memory": "1Gi"}}, "maximum memory usage per Container is 1Gi, but limit is 27Gi"),
        ({"default": {"cpu": "500m"}}, "must be less than or equal to cpu limit of 500m"),
    ],
)
def test_limits_below_what_the_model_needs_end_the_wait(
    cluster: Cluster, limits: Mapping[str, Any], words: str
) -> None:
    spec = {"limits": [{"type": "Container", **limits}]}
    metadata = {"name": "small", "namespace": cluster.namespace}
    cluster.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": spec})
    recipe = cluster.recipe()
    cluster.until_refused(recipe, "Pod")
    refused = cluster.deploy(recipe)
    told(refused, words, "kubectl describe limitrange")
    explained(refused, "limit-range")


def policy(
    name: str, namespace: str, group: str, plural: str, message: str = "write the label `team`"
) -> list[dict[str, Any]]:
    """Each such object needs a label that the toolkit's have not."""
    match = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [plural]}
    wanted = {"expression": "has(object.metadata.labels.team)", "message": message}
    spec = {"matchConstraints": {"resourceRules": [match]}, "validations": [wanted]}
    of_namespace = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    bound = {"policyName": name, "validationActions": ["Deny"], "matchResources": of_namespace}
    kinds = (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound))
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    return [{**head, "kind": kind, "spec": body} for kind, body in kinds]


@pytest.mark.parametrize(("group", "kind"), [("apps", "Deployment"), ("", "Pod")])
def test_a_policy_of_the_cluster_is_told_with_what_it_wants(cluster: Cluster, group: str, kind: str) -> None:
    name = f"{cluster.namespace}-{kind.lower()}"
    cluster.apply(*policy(name, cluster.namespace, group, f"{kind.lower()}s"))
    recipe = cluster.recipe()
    cluster.until_refused(recipe, kind)
    refused = cluster.deploy(recipe)
    told(refused, f"ValidatingAdmissionPolicy '{name}'", "write the label `team`")
    told(refused, "platform.kubernetes.pod", "write an overlay over `toolkit render RECIPE --out DIR`")
    explained(refused, "pod-refused")


def test_what_a_policy_calls_immutable_is_told_and_nothing_is_deleted_for_it(cluster: Cluster) -> None:
    assert cluster.deploy(cluster.recipe(), "--no-wait").code == 0
    name, said = f"{cluster.namespace}-team", "the label team is immutable"
    cluster.apply(*policy(name, cluster.namespace, "apps", "deployments", said))
    probe = ["kubectl", "annotate", "--dry-run=server", "-n", cluster.namespace, "deployment/chat", "a=b"]
    until(lambda: subprocess.run(probe, capture_output=True).returncode != 0)
    newer = cluster.recipe(pod={"annotations": {"version": "2"}})
    told(cluster.toolkit("plan", newer), f"ValidatingAdmissionPolicy '{name}'", said, "platform.kubernetes.pod")


def test_a_quota_that_the_pod_before_still_has_is_waited_for_where_that_goes_first(
    cluster: Cluster, kubelet: ScriptedNode
) -> None:
    """Where it would stay until the new one is ready, nothing comes of waiting."""
    assert cluster.deploy(cluster.recipe(), "--no-wait").code == 0
    kubelet.endless = True  # it drains
    until(lambda: kubelet.turn() or "True" in cluster.told_of("Available"))
    cluster.make("quota", "gpus", "--hard=requests.nvidia.com/gpu=1")
    used = ["quota", "gpus", "-n", cluster.namespace, "-o", "jsonpath={.status.used}"]
    until(lambda: '"1"' in cluster.kubectl("get", *used))
    for update, state in (("old-first", "Updating"), ("new-first", "Failed")):
        newer = cluster.recipe(pod={"update": update, "annotations": {"version": update}})
        assert cluster.deploy(newer, "--no-wait").code == 0
        until(lambda: "exceeded quota" in cluster.told_of("ReplicaFailure"))
        listed = json.loads(cluster.toolkit("status", newer, "--json").out)["endpoints"]
        assert [item["status"] for item in listed] == [state]


def test_a_pod_security_standard_is_told_with_the_key_that_breaks_it(cluster: Cluster) -> None:
    cluster.kubectl("label", "namespace", cluster.namespace, "pod-security.kubernetes.io/enforce=restricted")
    recipe = cluster.recipe(weights_cache="node")
    cluster.until_refused(recipe, "Pod")
    refused = cluster.deploy(recipe)
    told(refused, 'violates PodSecurity "restricted:latest"', "`weights_cache: node`: take weights_bucket")
    explained(refused, "pod-security")


@pytest.mark.parametrize(
    ("settings", "kind", "edit"),
    [
        ({"most": 4, "prometheus": "http://p:9090"}, "ScaledObject", "platform.kubernetes.prometheus"),
        ({"monitors": {"release": "prometheus"}}, "PodMonitor", "platform.kubernetes.monitors"),
        ({"nodes": 2}, "LeaderWorkerSet", "platform.kubernetes.nodes"),
        ({"routing": {"gateway": "public"}}, "InferencePool", "platform.kubernetes.routing"),
    ],
)
def test_a_kind_that_the_cluster_lacks_is_told_before_anything_is_made(
    cluster: Cluster, settings: Mapping[str, Any], kind: str, edit: str
) -> None:
    api = KINDS_BY_NAME[kind].api
    cluster.kubectl("delete", "crd", f"{api.plural}.{api.version.partition('/')[0]}", "--ignore-not-found")
    recipe = cluster.recipe(**settings)
    for ended in (cluster.toolkit("plan", recipe), cluster.deploy(recipe)):
        told(ended, f"the cluster does not know the kind {kind}", f"install it, or remove {edit}")
        explained(ended, "kind-missing")
    assert cluster.there() == set()


def held(cluster: Cluster, kind: str, name: str, *finalizers: str) -> None:
    """Somebody's finalizer is put there, or taken off."""
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    cluster.kubectl("patch", kind, name, "-n", cluster.namespace, "--type=merge", "-p", patch)


def test_a_namespace_that_is_going_says_what_it_waits_for_and_is_made_anew(cluster: Cluster) -> None:
    cluster.make("configmap", "kept")
    held(cluster, "configmap", "kept", "example.com/hold")
    cluster.kubectl("delete", "namespace", cluster.namespace, "--wait=false")
    platform = SESSION.open(f"/{cluster.namespace}")
    said = "is deleted: Some resources are remaining: configmaps. has 1 resource instances; Some content in the "
    said += "namespace has finalizers remaining: example.com/hold"
    words = ""

    def look(_: float) -> None:
        nonlocal words
        words += cluster.captured.readouterr().err
        if said in words and cluster.kubectl("get", "configmap", "kept", "-n", cluster.namespace, "--ignore-not-found"):
            held(cluster, "configmap", "kept")
        time.sleep(0.05)

    with replace(platform, sleep=look).lease("chat"):
        pass
    assert said in words
    assert (
        json.loads(cluster.kubectl("get", "namespace", cluster.namespace, "-o", "json"))["status"]["phase"] == "Active"
    )


def test_a_deletion_that_a_finalizer_holds_names_it_and_the_next_call_ends_it(cluster: Cluster) -> None:
    recipe = cluster.recipe()
    assert cluster.deploy(recipe, "--no-wait").code == 0
    held(cluster, "networkpolicy", "chat", "example.com/hold")
    platform = SESSION.open(f"/{cluster.namespace}")
    ticks = count(0, 100)
    policy = Action("NetworkPolicy", "chat", "delete", "is not wanted", {})
    with pytest.raises(WaitTimeout) as late:
        replace(platform, clock=lambda: next(ticks), sleep=lambda _: None).execute(policy, Silent())
    assert late.value.message == "NetworkPolicy chat is still being deleted after 900 s: finalizer example.com/hold"
    assert f"kubectl describe -n {cluster.namespace} networkpolicy chat" in late.value.hint

    held(cluster, "networkpolicy", "chat")
    assert cluster.toolkit("destroy", recipe, "--yes").code == 0
    assert cluster.there() == set()


def test_a_field_that_another_manager_has_set_is_taken_over_by_the_command_that_is_told(cluster: Cluster) -> None:
    recipe = cluster.recipe()
    assert cluster.deploy(recipe, "--no-wait").code == 0
    cluster.kubectl("set", "image", "deployment/chat", "engine=other:1", "-n", cluster.namespace)
    refused = cluster.toolkit("plan", recipe)
    told(refused, 'Deployment chat: spec.template.spec.containers[name="engine"].image is set by kubectl-set')

    ((name, command),) = re.findall(r"toolkit render (\S+) \| kubectl (.*) -f -", " ".join(refused.err.split()))
    manifests = cluster.folder / "manifests.yaml"
    manifests.write_text(cluster.toolkit("render", name).out)
    cluster.kubectl(*command.split(), "-f", manifests)
    assert json.loads(cluster.toolkit("plan", recipe, "--json").out)["actions"]
    assert {action["verb"] for action in json.loads(cluster.toolkit("plan", recipe, "--json").out)["actions"]} == {
        "reuse"
    }


def test_a_rollback_to_what_somebody_pruned_is_refused_and_the_older_recipe_brings_it_back(cluster: Cluster) -> None:
    older = cluster.recipe()
    assert cluster.deploy(older, "--no-wait").code == 0
    (programs,) = [name for name in cluster.there() if name.startswith("configmap/")]
    until(lambda: "1" in revisions(cluster))
    newer = cluster.recipe(pod={"annotations": {"version": "2"}})
    assert cluster.deploy(newer, "--no-wait").code == 0
    until(lambda: "2" in revisions(cluster))
    cluster.kubectl("delete", programs, "-n", cluster.namespace)

    refused = cluster.toolkit("rollback", newer, "--yes", "--no-wait")
    assert refused.code == 2
    gone = programs.replace("configmap/", "ConfigMap ")
    assert f"chat cannot be rolled back: {gone}, which the version before needs, is not there" in refused.err
    assert cluster.deploy(newer, "--no-wait").code == 0
    assert cluster.toolkit("rollback", newer, "--yes", "--no-wait").code == 0
    assert programs in cluster.there()


def revisions(cluster: Cluster) -> set[str]:
    """That the controller has written down."""
    listed = json.loads(cluster.kubectl("get", "replicasets", "-n", cluster.namespace, "-o", "json"))["items"]
    return {item["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for item in listed}


def become_guest(cluster: Cluster, recipe: str, *roles: str) -> None:
    """From now on KUBECONFIG is that of a user who has these roles of `--part rbac`, and no other."""
    path = cluster.folder / "roles.yaml"
    path.write_text(cluster.toolkit("render", recipe, "--part", "rbac").out)
    cluster.kubectl("apply", "-f", path)
    for role in roles:
        cluster.make("rolebinding", role, "--role", role, "--user", "guest")
    kubeconfig = cluster.folder / "kubeconfig"
    kubeconfig.write_text(kubeconfig.read_text().replace("admin-token", "guest-token"))


def test_who_may_nothing_is_told_the_rule_to_ask_for(cluster: Cluster) -> None:
    recipe = cluster.recipe()
    become_guest(cluster, recipe)
    rule = f'Ask for this rule in a Role of namespace {cluster.namespace}: {{apiGroups: ["apps"]'
    told(cluster.deploy(recipe), rule, "`toolkit render RECIPE --part rbac` writes all that its users need")


def test_who_may_look_into_one_namespace_alone_is_told_to_name_the_recipe(cluster: Cluster) -> None:
    recipe = cluster.recipe()
    assert cluster.deploy(recipe, "--no-wait").code == 0
    become_guest(cluster, recipe, "toolkit-read")
    said = "you may list endpoints neither of all namespaces nor of toolkit"
    told(cluster.toolkit("status", "--platform", "kubernetes"), said, "such as: toolkit status RECIPE")
    assert cluster.toolkit("status", recipe, "--platform", "kubernetes").code == 0


def test_who_may_read_sees_the_endpoint_of_the_recipe_and_is_told_what_else_takes(cluster: Cluster) -> None:
    recipe = cluster.recipe()
    assert cluster.deploy(recipe, "--no-wait").code == 0
    become_guest(cluster, recipe, "toolkit-read")
    listed = cluster.toolkit("status", recipe, "tiny/p-eagle", "--json")
    assert [item["region"] for item in json.loads(listed.out)["endpoints"]] == [f"real/{cluster.namespace}"]
    assert cluster.toolkit("logs", recipe).code == 0
    told(cluster.toolkit("invoke", recipe, "hello"), 'resources: ["services/proxy"]')
    told(cluster.toolkit("destroy", recipe, "--yes"), 'resources: ["namespaces"], verbs: ["get"]')


def test_who_may_watch_asks_the_endpoint_but_changes_nothing(cluster: Cluster) -> None:
    recipe = cluster.recipe()
    assert cluster.deploy(recipe, "--no-wait").code == 0
    made = cluster.there()
    become_guest(cluster, recipe, "toolkit-watch")
    told(cluster.toolkit("invoke", recipe, "hello"), "None of its pods is ready")
    told(cluster.toolkit("pause", recipe, "--yes"), 'resources: ["leases"], verbs: ["create"]')
    (cluster.folder / "kubeconfig").write_text(
        (cluster.folder / "kubeconfig").read_text().replace("guest-token", "admin-token")
    )
    assert cluster.there() == made


def test_who_may_deploy_in_a_namespace_alone_is_told_of_the_role_for_the_cluster(cluster: Cluster) -> None:
    recipe = cluster.recipe()
    become_guest(cluster, recipe, "toolkit-deploy")
    told(cluster.deploy(recipe), f'namespaces "{cluster.namespace}" is forbidden', "--part rbac")
