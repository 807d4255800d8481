"""Recipes for a cluster: one bad case and one good for each code, the good one a small edit away."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from pairs import HUB_RECIPE, write_hub_pair

from toolkit.api.checking import check
from toolkit.catalog import lookup
from toolkit.catalog.trainium import UNSIZED, family
from toolkit.findings import Finding

SAGEMAKER = "platform: {name: sagemaker, instance_types: [ml.g6.xlarge], health_check_timeout: 600}"
IRSA = "kubernetes: {service_account_role: 'arn:aws:iam::111122223333:role/pods'}"
ROUTING = "kubernetes: {routing: {gateway: public}}"
PROMETHEUS = "kubernetes: {prometheus: 'http://prometheus'}"


def findings(
    root: Path, platform: str = "", more: str = "", *edits: tuple[str, str], **facts: Mapping[str, Any]
) -> tuple[Finding, ...]:
    """Findings on the hub's good pair, on a cluster with these settings added."""
    types = "" if "instance_types" in platform else "instance_types: [g6.xlarge], "
    text = HUB_RECIPE.replace("0.30.0", "0.32.0")
    text = text.replace(SAGEMAKER, f"platform: {{name: kubernetes, {types}{platform}}}\n{more}\n")
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return check(write_hub_pair(root, text, **facts)).findings


@pytest.mark.parametrize("platform", ["", IRSA, "hub_token_secret: hf-token", "health_check_timeout: 900"])
def test_a_good_recipe_has_no_findings(tmp_path: Path, platform: str) -> None:
    assert findings(tmp_path, platform) == ()


@pytest.mark.parametrize(
    ("bad", "good", "code", "severity", "path"),
    [
        (("", "", ("name: hub", "name: Hub")), ("",), "kubernetes.name", "error", "name"),
        (("", "", ("name: hub", "name: hub-epp")), ("",), "kubernetes.name", "error", "name"),
        (("hub_token_secret: 'arn:aws:secretsmanager:us-east-1:1:secret:hf'",), ("hub_token_secret: hf",),
         "kubernetes.secret", "error", "platform.hub_token_secret"),
        (("instance_types: [ml.g6.xlarge]",), ("instance_types: [g6.xlarge]",),
         "kubernetes.instance-type", "error", "platform.instance_types.0"),
        (("instance_types: [g6.xlage]",), ("instance_types: [g6.xlarge]",),
         "kubernetes.instance-type", "error", "platform.instance_types.0"),
        (("instance_types: [m7i.large]",), ("instance_types: [g6e.2xlarge]",),
         "kubernetes.accelerator", "error", "platform.instance_types.0"),
        (("instance_types: [{type: g6.xlarge, num_speculative_tokens: 3}]",), ("instance_types: [g6.xlarge]",),
         "kubernetes.overrides", "error", "platform.instance_types.0"),
        (("region: us-east-1",), ("",), "recipe.no-effect", "error", "platform.region"),
        (("role: mine",), (IRSA,), "recipe.no-effect", "error", "platform.role"),
        (("kms_key: mine",), ("",), "recipe.no-effect", "error", "platform.kms_key"),
        (("inference_component: {}",), ("",), "recipe.no-effect", "error", "platform.inference_component"),
        (("routing: random",), ("",), "recipe.no-effect", "error", "platform.routing"),
        (("capacity_reservation: 'arn:aws:sagemaker:us-east-1:111122223333:training-plan/p'",), ("",),
         "recipe.no-effect", "error", "platform.capacity_reservation"),
        (("", "rollout: {update: canary}"), ("",), "recipe.no-effect", "error", "rollout.update"),
        (("", "rollout: {shadow: true}"), ("",), "recipe.no-effect", "error", "rollout.shadow"),
        (("", "network: {isolation: true}"), ("",), "recipe.no-effect", "error", "network.isolation"),
        (("", "observability: {dashboard: true}"), ("",), "recipe.no-effect", "error", "observability.dashboard"),
        (("", "container: custom"), ("", "container: {base: mine:1}"), "kubernetes.container", "error", "container"),
        (("", "container: {base: mine:1, bake_drafter: true}"), ("", "container: {base: mine:1}"),
         "kubernetes.container", "error", "container.bake_drafter"),
        (("weights: s3",), ("weights: hub",), "kubernetes.weights", "error", "platform.weights"),
        ((PROMETHEUS, "scaling: {min_instances: 0}"), (PROMETHEUS, "scaling: {min_instances: 1}"),
         "kubernetes.scale-to-zero", "error", "scaling.min_instances"),
        (("", "scaling: {max_instances: 2}"), (PROMETHEUS, "scaling: {max_instances: 2}"),
         "kubernetes.autoscaling", "info", "scaling.max_instances"),
        ((PROMETHEUS, "scaling: {max_instances: 2, requests_per_instance: 129}"),
         (PROMETHEUS, "scaling: {max_instances: 2, requests_per_instance: 128}"),
         "kubernetes.scaling-target", "warning", "scaling.requests_per_instance"),
        ((ROUTING,), (ROUTING, "scaling: {min_instances: 2, max_instances: 2}"),
         "kubernetes.routing", "warning", "platform.kubernetes.routing"),
    ],
)  # fmt: skip
def test_a_bad_setting_and_a_good_one(
    tmp_path: Path, bad: tuple[str, ...], good: tuple[str, ...], code: str, severity: str, path: str
) -> None:
    (finding,) = findings(tmp_path, *bad)
    assert (finding.code, finding.severity, finding.path) == (code, severity, path)
    assert finding.hint
    assert findings(tmp_path, *good) == ()


def test_sagemakers_name_of_a_type_is_offered_without_its_prefix(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, "instance_types: [ml.g6.xlarge]")
    assert finding.hint == "Write g6.xlarge."


def of_weights(root: Path, platform: str = "", *edits: tuple[str, str]) -> list[tuple[str, str]]:
    found = findings(root, platform, "", *edits)
    return [(finding.path, finding.hint) for finding in found if finding.code == "kubernetes.weights"]


def test_jumpstarts_models_are_not_for_clusters(tmp_path: Path) -> None:
    ((path, hint),) = of_weights(tmp_path, "", ("org/target", "jumpstart:target"))
    assert (path, hint) == ("target.model", "Use its id on the hub, or an address in S3.")


def test_a_local_folder_needs_a_bucket_and_has_one_where_the_hint_is_followed(tmp_path: Path) -> None:
    folder = ("org/target", "./models/target")
    ((path, hint),) = of_weights(tmp_path, "", folder)
    assert (path, "Set kubernetes.weights_bucket" in hint) == ("target.model", True)
    assert of_weights(tmp_path, "kubernetes: {weights_bucket: our-models}", folder) == []


@pytest.mark.parametrize(
    "platform",
    [
        "weights: hub",
        "kubernetes: {weights_cache: node}",
        "kubernetes: {weights_bucket: our-models}",
        "weights: s3, kubernetes: {weights_bucket: our-models}",
        "kubernetes: {weights_claim: models}",
    ],
)
def test_models_come_from_the_hub_a_bucket_or_a_claim(tmp_path: Path, platform: str) -> None:
    assert of_weights(tmp_path, platform) == []


def test_a_model_in_s3_is_mounted_from_there(tmp_path: Path) -> None:
    assert of_weights(tmp_path, "", ("org/target", "s3://bucket/target/")) == []


@pytest.mark.parametrize(
    ("platform", "path"),
    [
        ("weights: s3", "platform.weights"),
        ("weights: s3, kubernetes: {weights_claim: models}", "platform.weights"),
        ("weights: hub, kubernetes: {weights_bucket: our-models}", "platform.weights"),
        ("kubernetes: {weights_bucket: our-models, weights_cache: node}", "platform.kubernetes.weights_cache"),
    ],
)
def test_keys_of_weights_that_exclude_each_other(tmp_path: Path, platform: str, path: str) -> None:
    assert [found for found, _ in of_weights(tmp_path, platform)] == [path]


def of_pod(root: Path, pod: str, scaling: str = "") -> list[tuple[str, str]]:
    found = findings(root, f"kubernetes: {{pod: {{{pod}}}}}", scaling)
    return [(finding.severity, finding.path) for finding in found if finding.code == "kubernetes.pod"]


POD = "platform.kubernetes.pod"


@pytest.mark.parametrize(
    ("pod", "severity", "path"),
    [
        ("node_selector: {node.kubernetes.io/instance-type: g6.xlarge}", "error", f"{POD}.node_selector"),
        ("volumes: [{name: cache, mount_path: /data, claim: data}]", "error", f"{POD}.volumes.0.name"),
        ("volumes: [{name: data, mount_path: /opt/toolkit, claim: data}]", "error", f"{POD}.volumes.0.mount_path"),
        ("volumes: [{name: data, mount_path: /opt, claim: data}]", "error", f"{POD}.volumes.0.mount_path"),
        ("volumes: [{name: data, mount_path: /tmp/data, claim: data}]", "error", f"{POD}.volumes.0.mount_path"),
        (
            "volumes: [{name: a, mount_path: /a, claim: a}, {name: a, mount_path: /b, claim: b}]",
            "error",
            f"{POD}.volumes.1.name",
        ),
        ("min_available: 1", "warning", f"{POD}.min_available"),
    ],
)
def test_additions_to_pods_that_clash(tmp_path: Path, pod: str, severity: str, path: str) -> None:
    assert of_pod(tmp_path, pod) == [(severity, path)]


def test_additions_to_pods_that_do_not_clash(tmp_path: Path) -> None:
    ca, data = "{name: ca, mount_path: /etc/ssl/ours, config_map: ca}", "{name: data, mount_path: /data, claim: d}"
    assert of_pod(tmp_path, f"node_selector: {{team: search}}, volumes: [{ca}, {data}]") == []
    assert of_pod(tmp_path, "min_available: 1", "scaling: {min_instances: 2, max_instances: 2}") == []


@pytest.mark.parametrize(
    "pod",
    [
        "tolerations: [{key: 'not a key'}]",
        "tolerations: [{key: dedicated, effect: Never}]",
        "priority_class: High",
        "image_pull_secrets: ['a b']",
        "security_context: {run_as_user: -1}",
        "volumes: [{name: data, mount_path: data, claim: data}]",
        "volumes: [{name: data, mount_path: /data}]",
        "volumes: [{name: data, mount_path: /data, claim: data, secret: data}]",
        "min_available: 0",
        "priorityClass: high",
    ],
)
def test_values_that_kubernetes_would_refuse_are_refused_before(tmp_path: Path, pod: str) -> None:
    found = findings(tmp_path, f"kubernetes: {{pod: {{{pod}}}}}")
    assert [finding.path.startswith(POD) for finding in found if finding.severity == "error"] == [True]


def test_a_gated_target_takes_a_token(tmp_path: Path) -> None:
    gated = ("org/target", "meta-llama/target")
    found = {finding.code: finding for finding in findings(tmp_path, "", "", gated)}
    assert (found["kubernetes.hub-token"].severity, found["kubernetes.hub-token"].path) == ("warning", "target.model")
    with_token = findings(tmp_path, "hub_token_secret: hf", "", gated)
    assert "kubernetes.hub-token" not in {finding.code for finding in with_token}


def test_a_gated_drafter_of_the_catalogue_takes_a_token(tmp_path: Path) -> None:
    gated = next(head.repo for head in lookup.heads() if head.gated)
    found = findings(tmp_path, "", "", ("org/drafter", gated))
    assert ("kubernetes.hub-token", "speculation.model") in [(finding.code, finding.path) for finding in found]


@pytest.mark.parametrize(("length", "codes"), [(253, []), (254, ["kubernetes.secret"])])
def test_a_secrets_name_has_at_most_253_characters(tmp_path: Path, length: int, codes: list[str]) -> None:
    assert [finding.code for finding in findings(tmp_path, f"hub_token_secret: {'s' * length}")] == codes


def test_memory_is_that_of_the_node(tmp_path: Path) -> None:
    size = {"tensors": None, "weight_bytes": 30 * 2**30}
    (finding,) = findings(tmp_path, target=size)
    assert (finding.code, finding.path) == ("memory.does-not-fit", "platform.instance_types.0")
    assert finding.message.startswith("g6.xlarge: ")
    assert "ml." not in finding.hint


def test_a_version_without_an_image_may_be_somebodys_own(tmp_path: Path) -> None:
    never = ("0.32.0", "0.32.99")
    (finding,) = findings(tmp_path, "", "", never)
    assert finding.code == "container.image"
    assert finding.hint.startswith("Use 0.33.0 or ")
    assert "Or name one yourself: `container: {base: registry/repository:tag}`." in finding.hint
    assert findings(tmp_path, "", "container: {base: mine:1}", never) == ()


def test_vllm_on_trainium_is_told_of_its_engines(tmp_path: Path) -> None:
    found = {finding.code: finding for finding in findings(tmp_path, "instance_types: [trn2.48xlarge]")}
    assert found["kubernetes.accelerator"].hint == "Write `engine: {name: neuron}`, or choose a type with GPUs."


def test_what_is_compiled_ahead_lies_in_a_bucket(tmp_path: Path) -> None:
    neuron = "instance_types: [trn2.48xlarge]"
    engine = ("version: 0.32.0", "name: neuron"), ("p-eagle", "draft-model"), ("  max_num_batched_tokens: 16384\n", "")
    without = {finding.code: finding for finding in findings(tmp_path, neuron, "", *engine)}
    assert without["kubernetes.artifacts"].path == "platform.kubernetes.artifacts_bucket"
    for platform, edits in (
        (f"{neuron}, kubernetes: {{artifacts_bucket: mine}}", engine),
        (neuron, (("version: 0.32.0", "name: neuron\n  compile: at-start"), *engine[1:])),
    ):
        codes = {finding.code for finding in findings(tmp_path, platform, "", *edits)}
        assert "kubernetes.artifacts" not in codes
        assert "neuron.support" in codes


def test_a_clusters_settings_are_not_for_sagemaker(tmp_path: Path) -> None:
    text = HUB_RECIPE.replace("health_check_timeout: 600", "health_check_timeout: 600, kubernetes: {namespace: mine}")
    (finding,) = check(write_hub_pair(tmp_path, text)).findings
    assert (finding.code, finding.path) == ("recipe.no-effect", "platform.kubernetes")


def test_sagemakers_limits_of_the_environment_are_not_a_clusters(tmp_path: Path) -> None:
    long = ("  max_model_len", f"  args: {{served-model-name-note: {'x' * 1025}}}\n  max_model_len")
    assert "container.environment" not in {finding.code for finding in findings(tmp_path, "", "", long)}


def test_a_family_that_aws_names_without_sizes_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    (finding,) = (one for one in findings(tmp_path, "instance_types: [trn3.48xlarge]") if one.severity == "error")
    assert (finding.code, finding.path) == ("kubernetes.instance-type", "platform.instance_types.0")
    assert "no instance type's vCPUs and host memory" in finding.message
    assert "unlisted" not in finding.hint


@pytest.mark.parametrize(
    ("service", "shape"), [("ec2", "InstanceType"), ("sagemaker", "ProductionVariantInstanceType")]
)
def test_aws_s_api_has_no_type_of_a_family_that_is_refused(service: str, shape: str) -> None:
    model = botocore.session.get_session().get_service_model(service)
    known = {family(name) for name in model.shape_for(shape).enum}  # type: ignore[attr-defined]
    assert "trn2" in known
    assert not known & set(UNSIZED), "its sizes can be in the catalogue now"
