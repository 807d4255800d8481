"""What a recipe can change of its pods: where models come from, and what `kubernetes.pod` adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from pairs import recipe_with

from toolkit.loading import load, on_platform
from toolkit.measure import expected
from toolkit.planning.resources import Account
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.manifests import parts, resources
from toolkit.platforms.kubernetes.rules.metadata import pod_labels
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection
from toolkit.recipe.source import ModelSource

TARGET = ModelSource(model="openai/gpt-oss-20b", revision="a" * 40)
ROLE = "arn:aws:iam::123456789012:role/reads-models"


def on_cluster(weights: str = "hub", **settings: Any) -> Recipe:
    recipe = on_platform(load("gpt-oss-20b/p-eagle"), "kubernetes")
    recipe = pinned(recipe, read_lock(lock_path(recipe)))
    base = ContainerSection(base="docker.io/vllm/vllm-openai:v0.30.0")
    section = KubernetesSection.model_validate(settings)
    return recipe_with(recipe, container=base, instance_types=("g7e.2xlarge",), kubernetes=section, weights=weights)


def spec(recipe: Recipe) -> dict[str, Any]:
    """Of its pods that serve."""
    (found,) = [item.request for item in resources(recipe) if item.kind == "Deployment"]
    return dict(found["spec"]["template"]["spec"])


def mounted(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Mounts of the engine's container by folder, each with its volume."""
    volumes = {item["name"]: item for item in spec(recipe)["volumes"]}
    mounts = spec(recipe)["containers"][0]["volumeMounts"]
    return {item["mountPath"]: {**volumes[item["name"]], **item} for item in mounts}


def env(recipe: Recipe) -> dict[str, str]:
    return {item["name"]: item.get("value", "") for item in spec(recipe)["containers"][0]["env"]}


def volumes(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """Specs of PersistentVolumes by the name of their claim."""
    made = [item.request["spec"] for item in resources(recipe) if item.kind == "PersistentVolume"]
    return {item["claimRef"]["name"]: item for item in made}


def uploads(recipe: Recipe) -> list[str]:
    """What a plan says of models that are not in the bucket yet."""
    return [note for note in RULES.notes(recipe, Account("", "")) if "for manifests by hand: " in note]


MODEL, DRAFTER = "/opt/ml/model", "/opt/ml/additional-model-data-sources/drafter"
EVERYTHING = {
    "tolerations": [{"key": "dedicated", "value": "llm", "effect": "NoSchedule"}, {"key": "spot"}],
    "node_selector": {"team": "search"},
    "priority_class": "serving",
    "image_pull_secrets": ["registry"],
    "runtime_class": "nvidia",
    "security_context": {"run_as_user": 1000, "fs_group": 2000},
    "volumes": [
        {"name": "ca", "mount_path": "/etc/ssl/ours", "config_map": "ca"},
        {"name": "keys", "mount_path": "/keys", "secret": "keys"},
        {"name": "data", "mount_path": "/data", "claim": "data", "read_only": False},
    ],
    "min_available": 1,
}


def test_annotations_of_the_recipe_stand_beside_our_own() -> None:
    wanted = {"sidecar.istio.io/inject": "false", "prometheus.io/scrape": "false", "toolkit/role": "another"}
    recipe = on_cluster(service_account_role=ROLE, pod={"annotations": wanted})
    (deployment,) = [item.request for item in resources(recipe) if item.kind == "Deployment"]
    found = deployment["spec"]["template"]["metadata"]["annotations"]
    assert {key: found[key] for key in wanted} == {**wanted, "toolkit/role": ROLE}


def test_from_the_hub_nothing_is_mounted() -> None:
    recipe = on_cluster()
    assert not {MODEL, DRAFTER} & mounted(recipe).keys()
    assert env(recipe)["SM_VLLM_MODEL"] == "openai/gpt-oss-20b"


def test_from_a_claim_each_model_is_a_folder_of_it_and_nothing_is_downloaded() -> None:
    recipe = on_cluster("claim", weights_claim="models")
    assert mounted(recipe)[MODEL]["subPath"] == "openai/gpt-oss-20b"
    assert mounted(recipe)[DRAFTER]["subPath"] == "amazon/GPT-OSS-20B-P-EAGLE"
    assert mounted(recipe)[MODEL]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    assert "SM_VLLM_MODEL" not in env(recipe)  # so that the entrypoint takes /opt/ml/model
    assert DRAFTER in env(recipe)["SM_VLLM_SPECULATIVE_CONFIG"]
    assert "ephemeral-storage" not in spec(recipe)["containers"][0]["resources"]["requests"]


def test_from_a_bucket_each_model_is_a_volume_of_mountpoint() -> None:
    recipe = recipe_with(on_cluster("s3", weights_bucket="our-models", service_account_role=ROLE), target=TARGET)
    claim = mounted(recipe)[MODEL]["persistentVolumeClaim"]["claimName"]
    volume = volumes(recipe)[claim]
    assert volume["mountOptions"] == ["read-only", "allow-other", "prefix weights/openai/gpt-oss-20b/aaaaaaaaaaaa/"]
    assert volume["csi"]["volumeAttributes"] == {"bucketName": "our-models", "authenticationSource": "pod"}
    assert len(volumes(recipe)) == 2
    assert mounted(recipe)[DRAFTER]["readOnly"] is True


def test_a_plan_says_what_is_uploaded() -> None:
    target, _ = uploads(recipe_with(on_cluster("s3", weights_bucket="our-models"), target=TARGET))
    assert ": hf download openai/gpt-oss-20b --revision aaaaaaaaaaaa" in target
    assert "&& aws s3 sync gpt-oss-20b s3://our-models/weights/openai/gpt-oss-20b/" in target


def test_a_model_that_is_in_s3_is_mounted_from_where_it_is() -> None:
    recipe = recipe_with(on_cluster(), target=ModelSource(model="s3://theirs/models/target"))
    claim = mounted(recipe)[MODEL]["persistentVolumeClaim"]["claimName"]
    assert volumes(recipe)[claim]["mountOptions"] == ["read-only", "allow-other", "prefix models/target/"]
    assert volumes(recipe)[claim]["csi"]["volumeAttributes"]["bucketName"] == "theirs"
    assert uploads(recipe) == []


def test_a_local_folder_goes_to_the_bucket_by_its_content(tmp_path: Path) -> None:
    folder = tmp_path / "finetuned"
    folder.mkdir()
    prefixes = []
    for content in ("{}", "{}  "):
        (folder / "config.json").write_text(content)
        source = ModelSource(model=str(folder))
        recipe = recipe_with(on_cluster("s3", weights_bucket="our-models"), target=source)
        claim = mounted(recipe)[MODEL]["persistentVolumeClaim"]["claimName"]
        prefixes.append(volumes(recipe)[claim]["mountOptions"][-1])
        target, _ = uploads(recipe)
        assert f": aws s3 sync {folder} s3://our-models/weights/finetuned-" in target
    assert prefixes[0] != prefixes[1]


def test_the_pods_of_a_node_share_one_download() -> None:
    recipe = on_cluster(weights_cache="node")
    assert mounted(recipe)["/cache/huggingface"]["hostPath"]["path"] == "/var/lib/toolkit/huggingface"
    assert env(recipe)["HF_HOME"] == "/cache/huggingface"
    (opens,) = spec(recipe)["initContainers"]
    assert opens["securityContext"]["runAsUser"] == 0
    assert opens["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_what_the_recipe_adds_is_in_the_pod() -> None:
    recipe = on_cluster(pod=EVERYTHING)
    found, ours = spec(recipe), spec(on_cluster())
    assert found["tolerations"] == [
        *ours["tolerations"],
        {"key": "dedicated", "operator": "Equal", "value": "llm", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert found["nodeSelector"] == {**ours["nodeSelector"], "team": "search"}
    assert (found["priorityClassName"], found["runtimeClassName"]) == ("serving", "nvidia")
    assert found["imagePullSecrets"] == [{"name": "registry"}]
    security = ours["securityContext"]
    assert found["securityContext"] == {**security, "runAsUser": 1000, "fsGroup": 2000, "runAsNonRoot": True}
    assert mounted(recipe)["/data"]["readOnly"] is False
    assert mounted(recipe)["/keys"]["secret"] == {"secretName": "keys"}
    assert mounted(recipe)["/etc/ssl/ours"]["configMap"] == {"name": "ca"}


def test_root_is_said_to_be_root() -> None:
    recipe = on_cluster(pod={"security_context": {"run_as_user": 0}})
    assert spec(recipe)["securityContext"]["runAsNonRoot"] is False


def test_draining_nodes_leaves_pods_running() -> None:
    made = {item.kind: item.request for item in resources(on_cluster(pod=EVERYTHING))}
    assert made["PodDisruptionBudget"]["spec"]["minAvailable"] == 1
    assert made["PodDisruptionBudget"]["spec"]["selector"] == made["Deployment"]["spec"]["selector"]
    assert "PodDisruptionBudget" not in {item.kind for item in resources(on_cluster())}


@pytest.mark.parametrize(
    ("longest", "settings", "seconds"),
    [(4096, {}, 205), (131072, {}, 555), (4096, {"drain_seconds": 1800}, 1800), (None, {}, 555)],
)
def test_a_pod_that_ends_lets_open_requests_go_on(longest: int | None, settings: dict[str, int], seconds: int) -> None:
    recipe = on_cluster(pod=settings)
    recipe = recipe_with(recipe, engine=recipe.engine.edit(max_model_len=longest))
    assert env(recipe)["TOOLKIT_DRAIN_SECONDS"] == str(seconds)
    pause = spec(recipe)["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = spec(recipe)["terminationGracePeriodSeconds"]
    assert grace >= pause + seconds + 30
    assert settings or grace <= 600  # which the cluster autoscaler waits by default


def made(recipe: Recipe, kind: str) -> dict[str, Any]:
    (found,) = [item.request for item in resources(recipe) if item.kind == kind]
    return dict(found)


def test_an_update_may_end_the_old_pod_first() -> None:
    def strategy(recipe: Recipe) -> dict[str, int]:
        return dict(made(recipe, "Deployment")["spec"]["strategy"]["rollingUpdate"])

    assert strategy(on_cluster()) == {"maxSurge": 1, "maxUnavailable": 0}
    old_first = on_cluster(pod={"update": "old-first"})
    assert strategy(old_first) == {"maxSurge": 0, "maxUnavailable": 1}
    told = "\n".join(RULES.notes(old_first, Account("", "")))
    assert "a single pod answers nobody meanwhile" in told
    assert "one more accelerator" not in told


def test_pods_of_a_version_stand_apart_where_they_can() -> None:
    constraints = spec(on_cluster())["topologySpreadConstraints"]
    assert [item["topologyKey"] for item in constraints] == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
    labels = made(on_cluster(), "Deployment")["spec"]["template"]["metadata"]["labels"]
    for item in constraints:
        assert item["whenUnsatisfiable"] == "ScheduleAnyway"
        assert item["labelSelector"]["matchLabels"].items() <= labels.items()


def test_a_role_by_pod_identity_has_no_annotation_and_its_command_is_told() -> None:
    recipe = on_cluster(service_account_role=ROLE, pod_identity=True)
    assert "eks.amazonaws.com/role-arn" not in made(recipe, "ServiceAccount")["metadata"]["annotations"]
    (told,) = [note for note in RULES.notes(recipe, Account("", "")) if "pod-identity" in note]
    assert told.endswith(f"--namespace toolkit --service-account {recipe.name} --role-arn {ROLE}")
    with pytest.raises(ValueError, match="name it in `service_account_role`"):
        on_cluster(pod_identity=True)


def test_another_way_to_the_same_role_wants_other_pods() -> None:
    irsa, identity = (on_cluster(service_account_role=ROLE, pod_identity=by_identity) for by_identity in (False, True))
    by_irsa, by_identity = (
        made(recipe, "Deployment")["spec"]["template"]["metadata"]["annotations"]["toolkit/role"]
        for recipe in (irsa, identity)
    )
    assert (by_irsa, by_identity) == (ROLE, f"pod-identity:{ROLE}")


def test_pod_identity_takes_the_second_version_of_the_driver_of_buckets() -> None:
    def told(**settings: Any) -> bool:
        recipe = on_cluster("s3", weights_bucket="our-models", service_account_role=ROLE, **settings)
        (note,) = [note for note in RULES.notes(recipe, Account("", "")) if "CSI driver" in note]
        return "CSI driver, version 2 or newer" in note

    assert told(pod_identity=True)
    assert not told()


def test_the_prometheus_operator_is_told_where_to_look_and_when_to_tell() -> None:
    recipe = on_cluster(monitors={"release": "prometheus"})
    monitor, rules = (made(recipe, kind) for kind in ("PodMonitor", "PrometheusRule"))
    assert monitor["metadata"]["labels"]["release"] == rules["metadata"]["labels"]["release"] == "prometheus"
    template = made(recipe, "Deployment")["spec"]["template"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in template["spec"]["containers"][0]["ports"]]
    # Else whoever reads both would count every request twice.
    assert "prometheus.io/scrape" not in template["metadata"].get("annotations", {})
    assert made(on_cluster(), "Deployment")["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scrape"]


def test_labels_for_prometheus_are_none_by_which_the_toolkit_finds_its_own() -> None:
    for key in pod_labels(on_cluster(), "server"):
        with pytest.raises(ValueError, match=f"the toolkit sets {key} itself"):
            on_cluster(monitors={"release": "prometheus", key: "Helm"})


def test_drift_of_acceptance_is_an_alert_where_it_is_known_what_to_expect() -> None:
    def alerts(recipe: Recipe) -> dict[str, str]:
        (group,) = made(recipe, "PrometheusRule")["spec"]["groups"]
        return {rule["alert"]: rule["expr"] for rule in group["rules"]}

    recipe = on_cluster(monitors={})
    floor = expected.acceptance_floor(recipe)
    assert floor
    of = f'{{model_name="{recipe.name}",namespace="toolkit"}}'
    accepted, drafts = (f"vllm:spec_decode_num_{what}_total{of}[5m]" for what in ("accepted_tokens", "drafts"))
    assert alerts(recipe) == {
        "ToolkitRequestsWait": f"sum(vllm:num_requests_waiting{of}) > 0",
        "ToolkitAcceptanceLow": f"1 + sum(rate({accepted})) / sum(rate({drafts})) < {floor:g}",
    }
    assert alerts(recipe_with(recipe, evidence=())).keys() == {"ToolkitRequestsWait"}


def test_karpenter_leaves_what_compiles_alone_and_may_move_what_serves() -> None:
    recipe = load("qwen3-32b/draft-model-trn2-eks")
    section = KubernetesSection(artifacts_bucket="ours")
    recipe = recipe_with(recipe, kubernetes=section, engine=recipe.engine.edit(compile="ahead"))
    made = parts([pinned(recipe, read_lock(lock_path(recipe)))])
    (job,) = made["compile"]
    (deployment,) = [item for item in made["serve"] if item["kind"] == "Deployment"]
    undisturbed = "karpenter.sh/do-not-disrupt"
    assert job["spec"]["template"]["metadata"]["annotations"][undisturbed] == "true"
    assert undisturbed not in deployment["spec"]["template"]["metadata"]["annotations"]


@pytest.mark.parametrize("version", ["1.34", "1.37"])
@pytest.mark.parametrize(
    "settings",
    [
        {"pod": EVERYTHING},
        {"weights_cache": "node"},
        {"weights": "claim", "weights_claim": "models"},
        {"weights": "s3", "weights_bucket": "our-models", "service_account_role": ROLE},
    ],
    ids=["pod", "node", "claim", "bucket"],
)
def test_kubernetes_schemas_refuse_nothing_of_it(settings: dict[str, Any], version: str) -> None:
    for manifest in (item for part in parts([on_cluster(**settings)]).values() for item in part):
        kubernetes_validate.validate(dict(manifest), version, strict=True)
