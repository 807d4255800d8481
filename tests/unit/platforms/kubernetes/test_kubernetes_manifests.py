"""A recipe as manifests: whole shapes as golden files, refused by none of the schemas that Kubernetes publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
from pairs import recipe_with

from toolkit.errors import UsageError
from toolkit.home import containers_dir
from toolkit.loading import load, on_platform
from toolkit.planning.resources import Account
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.platforms.kubernetes.rules.devices import accelerators
from toolkit.platforms.kubernetes.rules.manifests import parts, resources
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import ContainerSection, ScalingSection
from toolkit.registry import price_text

ROLE = "arn:aws:iam::123456789012:role/reads-artifacts"
SCALED = ScalingSection(min_instances=1, max_instances=4, requests_per_instance=16)
AHEAD: Mapping[str, Any] = {"artifacts_bucket": "our-artifacts", "service_account_role": ROLE}
VERSIONS = ("1.34", "1.37")  # the first with resource.k8s.io/v1, and the last that the schemas are of


@pytest.fixture
def gpu() -> Recipe:
    """P-EAGLE on one GPU of a cluster."""
    base = ContainerSection(base="docker.io/vllm/vllm-openai:v0.29.0")
    recipe = complete(on_platform(load("gpt-oss-20b/p-eagle"), "kubernetes"))
    return recipe_with(recipe, container=base, instance_types=("g7e.2xlarge",))


@pytest.fixture
def trn2() -> Recipe:
    """The study's pair on half an instance, which compiles while it starts."""
    recipe = load("qwen3-32b/draft-model-trn2-eks")
    return recipe_with(recipe, engine=recipe.engine.edit(compile="at-start"), kubernetes=KubernetesSection())


def complete(recipe: Recipe) -> Recipe:
    return pinned(recipe, read_lock(lock_path(recipe)))


def ahead(recipe: Recipe) -> Recipe:
    engine = recipe.engine.edit(compile="ahead")
    return complete(recipe_with(recipe, engine=engine, kubernetes=KubernetesSection(**AHEAD)))


def one(recipe: Recipe, kind: str) -> dict[str, Any]:
    """The recipe's only manifest of that kind."""
    (found,) = [item for item in resources(recipe) if item.kind == kind]
    return dict(found.request)


def pod(recipe: Recipe) -> dict[str, Any]:
    spec: dict[str, Any] = one(recipe, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = pod(recipe)["containers"][0]
    return found


def comparable(made: Mapping[str, Any]) -> Any:
    """Without what stands elsewhere: the programs, and digests of them and of the recipe."""
    text = json.dumps({part: manifests for part, manifests in made.items() if part != "rbac"})
    for manifest in (item for part in made.values() for item in part):
        if manifest["kind"] in ("ConfigMap", "Job"):
            name = manifest["metadata"]["name"]
            text = text.replace(name, re.sub("[0-9a-f]{8}$", "<content>", name))
    told = re.sub(r'("toolkit/recipe": )"\w+"', r'\1"<digest>"', text)
    short: dict[str, list[dict[str, Any]]] = json.loads(told)
    for manifest in (item for part in short.values() for item in part):
        if manifest["kind"] == "ConfigMap":
            manifest["data"] = dict.fromkeys(manifest["data"], "<content>")
    return short


def test_p_eagle_on_a_gpu(gpu: Recipe, golden: Callable[[str, object], None]) -> None:
    golden("kubernetes/gpu-p-eagle", comparable(parts([gpu])))


def test_a_draft_model_on_trainium_that_compiles_ahead_with_its_baseline(
    trn2: Recipe, golden: Callable[[str, object], None]
) -> None:
    golden("kubernetes/trn2-dra-ahead-baseline", comparable(parts([ahead(trn2), ahead(trn2).baseline()])))


def test_the_same_with_neurons_device_plugin(trn2: Recipe, golden: Callable[[str, object], None]) -> None:
    plugin = complete(recipe_with(trn2, kubernetes=KubernetesSection(neuron_devices="device-plugin")))
    golden("kubernetes/trn2-device-plugin", comparable(parts([plugin])))


def test_an_autoscaler(gpu: Recipe, golden: Callable[[str, object], None]) -> None:
    made = parts([replace(gpu, scaling=SCALED)])
    golden("kubernetes/gpu-autoscaler", comparable({"serve": made["serve"]}))


def test_keda(gpu: Recipe, golden: Callable[[str, object], None]) -> None:
    keda = KubernetesSection(prometheus="http://prometheus.monitoring:9090")
    made = parts([recipe_with(gpu, scaling=SCALED, kubernetes=keda)])
    golden("kubernetes/gpu-keda", comparable({"serve": made["serve"]}))


def disk(recipe: Recipe, part: str) -> str:
    """What the pod asks for of its node's disk, as one of those that serve, or of the Job that compiles."""
    made = parts([recipe])[part]
    (spec,) = [item["spec"]["template"]["spec"] for item in made if item["kind"] in ("Deployment", "Job")]
    requests: dict[str, str] = spec["containers"][0]["resources"]["requests"]
    return requests["ephemeral-storage"]


def test_the_fork_asks_for_the_disk_of_all_its_copies(trn2: Recipe) -> None:
    # 69.6 GB downloaded, the same in float32, and the shards, with a margin of 20 %.
    assert disk(complete(trn2), "serve") == "312Gi"
    assert disk(ahead(trn2), "compile") == "234Gi"
    assert disk(ahead(trn2), "serve") == "78Gi"


def test_a_gpu_s_pod_asks_for_the_disk_of_its_weights(gpu: Recipe) -> None:
    assert disk(gpu, "serve") == "20Gi"


def test_a_restarted_container_takes_what_it_compiled_before(trn2: Recipe) -> None:
    env = {item["name"]: item.get("value") for item in container(trn2)["env"]}
    (cache,) = [item["name"] for item in container(trn2)["volumeMounts"] if item["mountPath"] == "/cache"]
    assert env["TOOLKIT_COMPILED"] == "/cache/compiled"
    assert {"name": cache, "emptyDir": {}} in pod(trn2)["volumes"]


def test_a_claim_asks_for_chips_with_the_driver_that_the_recipe_states(trn2: Recipe) -> None:
    stated = recipe_with(trn2, kubernetes=KubernetesSection(neuron_driver="2.28.0.0"))
    (request,) = one(stated, "ResourceClaimTemplate")["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["selectors"][0]["cel"]["expression"] == (
        "(device.attributes['neuron.aws.com'].instanceType == 'trn2.48xlarge') && "
        "device.attributes['neuron.aws.com'].neuronDriverVersion == '2.28.0.0'"
    )


def test_the_container_gets_the_drivers_that_its_runtime_works_with(trn2: Recipe) -> None:
    env = {item["name"]: item.get("value") for item in container(trn2)["env"]}
    assert env["TOOLKIT_NEURON_DRIVER"] == "2.22"
    assert env["TOOLKIT_NEURON_DRIVER_BELOW"] == "2.29"
    assert env["TOOLKIT_NEURON_AMI"] == "v20260625 (driver 2.28.0.0)"


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_schemas_refuse_nothing(gpu: Recipe, trn2: Recipe, version: str) -> None:
    plugin = recipe_with(trn2, kubernetes=KubernetesSection(neuron_devices="device-plugin"))
    gated = recipe_with(gpu, scaling=SCALED, hub_token_secret="hub-token", tags={"team": "search"})
    types = recipe_with(gpu, instance_types=("g7e.2xlarge", "g6e.2xlarge"))
    for arms in ([gpu], [gated], [types], [plugin], [ahead(trn2), ahead(trn2).baseline()]):
        for manifest in (item for part in parts(arms).values() for item in part):
            kubernetes_validate.validate(dict(manifest), version, strict=True)


def test_the_schemas_would_tell(gpu: Recipe) -> None:
    deployment = one(gpu, "Deployment")
    deployment["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError, match="enableServiceLink"):
        kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)


@pytest.mark.parametrize(
    ("instance_type", "tensor_parallel", "env", "chips"),
    [
        ("trn2.48xlarge", 4, {}, 1),
        ("trn2.48xlarge", 8, {}, 4),  # two would do, and are no group
        ("trn2.48xlarge", 32, {}, 8),
        ("trn2.48xlarge", 64, {}, 16),
        ("trn2.48xlarge", 64, {"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
        ("trn2.3xlarge", 4, {}, 1),
        ("trn1.32xlarge", 32, {}, 16),
        ("inf2.48xlarge", 24, {}, 12),  # all there are
    ],
)
def test_chips_by_tensor_parallelism(
    trn2: Recipe, instance_type: str, tensor_parallel: int, env: dict[str, str], chips: int
) -> None:
    engine = trn2.engine.edit(args={"tensor-parallel-size": tensor_parallel}, env=env)
    assert accelerators(recipe_with(trn2, engine=engine, instance_types=(instance_type,))) == chips


@pytest.mark.parametrize("flag", ["data-parallel-size", "pipeline-parallel-size"])
def test_every_kind_of_parallelism_takes_accelerators(gpu: Recipe, trn2: Recipe, flag: str) -> None:
    args = {"tensor-parallel-size": 8, flag: 2}
    assert accelerators(replace(trn2, engine=trn2.engine.edit(args=args))) == 4
    assert accelerators(replace(gpu, engine=gpu.engine.edit(args=args))) == 16


def test_half_an_instance_leaves_the_other_half(trn2: Recipe) -> None:
    requests = container(trn2)["resources"]["requests"]
    assert (requests["cpu"], requests["memory"]) == ("90", "870Gi")  # of 192 CPUs and 2,048 GiB


def test_chips_that_group_no_cores_are_told_nothing_of_groups(trn2: Recipe) -> None:
    dra = KubernetesSection(neuron_devices="dra")
    claim = one(recipe_with(trn2, instance_types=("trn1.32xlarge",), kubernetes=dra), "ResourceClaimTemplate")
    assert "config" not in claim["spec"]["spec"]["devices"]


def test_several_instance_types(gpu: Recipe) -> None:
    either = pod(recipe_with(gpu, instance_types=("g7e.2xlarge", "g6e.2xlarge")))
    required = either["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (expression,) = required["nodeSelectorTerms"][0]["matchExpressions"]
    assert expression["values"] == ["g7e.2xlarge", "g6e.2xlarge"]
    assert "nodeSelector" not in either


@pytest.mark.parametrize("types", [("g7e.2xlarge", "g7e.4xlarge"), ("g7e.4xlarge", "g7e.2xlarge")])
def test_a_pod_fits_on_the_smallest_of_several_instance_types(gpu: Recipe, types: tuple[str, ...]) -> None:
    requests = container(recipe_with(gpu, instance_types=types))["resources"]["requests"]
    assert (requests["cpu"], requests["memory"]) == ("7", "54Gi")  # of 8 CPUs and 64 GiB


def test_an_instance_without_accelerators_needs_no_plugin(gpu: Recipe) -> None:
    cpu = pod(recipe_with(gpu, instance_types=("c7i.12xlarge",)))
    assert "tolerations" not in cpu
    assert cpu["containers"][0]["resources"]["limits"].keys() == {"memory"}


def test_the_service_finds_what_serves_and_no_job(trn2: Recipe) -> None:
    wanted = one(trn2, "Service")["spec"]["selector"].items()
    made = parts([ahead(trn2)])
    pods = {
        part: made[part][-1]["spec"]["template"]["metadata"]["labels"] for part in ("serve", "compile", "benchmark")
    }
    assert [part for part, labels in pods.items() if wanted <= labels.items()] == ["serve"]


def test_the_hubs_token_stays_in_its_secret(gpu: Recipe) -> None:
    env = {item["name"]: item for item in container(recipe_with(gpu, hub_token_secret="hub-token"))["env"]}
    assert env["HF_TOKEN"] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hub-token", "key": "token"}},
    }


def test_kubernetes_puts_no_variable_into_a_value(gpu: Recipe) -> None:
    engine = gpu.engine.edit(env={"TEMPLATE": "$(HF_TOKEN) and $$"})
    env = {item["name"]: item["value"] for item in container(replace(gpu, engine=engine))["env"]}
    assert env["TEMPLATE"] == "$$(HF_TOKEN) and $$$$"


def test_only_the_job_may_write_what_is_compiled(trn2: Recipe) -> None:
    made = parts([ahead(trn2)])
    for part, read_only in (("serve", True), ("compile", False)):
        spec = made[part][-1]["spec"]["template"]["spec"]
        (mount,) = [item for item in spec["containers"][0]["volumeMounts"] if item["name"] == "artifacts"]
        assert mount["readOnly"] is read_only


def test_what_compiles_has_time_to_end_its_engine(trn2: Recipe) -> None:
    (job,) = parts([ahead(trn2)])["compile"]
    ends = re.search(r"^END_SECONDS = (\d+)", (containers_dir() / "on-vllm/compiling.py").read_text(), re.M)
    assert ends
    assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > int(ends[1])


def test_a_user_of_the_recipe_may_write_what_is_compiled(trn2: Recipe) -> None:
    """As nobody but root has rights on a mount of Mountpoint's without options."""
    of_root = one(ahead(trn2), "PersistentVolume")
    user = {"pod": {"security_context": {"run_as_user": 1000, "run_as_group": 2000}}}
    owned = recipe_with(ahead(trn2), kubernetes=KubernetesSection.model_validate({**AHEAD, **user}))
    volume = one(owned, "PersistentVolume")
    assert volume["spec"]["mountOptions"][2:-1] == ["allow-other", "uid=1000", "gid=2000"]
    assert "allow-other" not in of_root["spec"]["mountOptions"]
    assert volume["metadata"]["name"] != of_root["metadata"]["name"]


def test_what_compiles_at_start_gets_the_time_and_no_bucket(trn2: Recipe) -> None:
    probe = container(trn2)["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == 4.75 * 3600
    assert parts([trn2]).keys() == {"namespace", "base", "serve", "benchmark", "rbac"}
    assert not [item for item in resources(trn2) if item.kind == "PersistentVolume"]


def test_a_longer_start_is_a_later_deadline(gpu: Recipe) -> None:
    deadlines = [one(recipe, "Deployment")["spec"]["progressDeadlineSeconds"] for recipe in (gpu, _slow(gpu))]
    assert deadlines[1] - deadlines[0] == 100


def _slow(recipe: Recipe) -> Recipe:
    return recipe_with(recipe, health_check_timeout=(recipe.platform.health_check_timeout or 0) + 100)


def test_words_alone_start_no_pod_again(gpu: Recipe) -> None:
    other = replace(gpu, description="other words", tags={"team": "search"})
    assert pod(other) == pod(gpu)
    assert one(other, "Deployment")["metadata"]["annotations"]["toolkit/tags"] == '{"team": "search"}'


def test_both_arms_share_the_namespace_and_the_volume(trn2: Recipe) -> None:
    made = parts([ahead(trn2), ahead(trn2).baseline()])
    kinds = [manifest["kind"] for part in ("namespace", "base") for manifest in made[part]]
    once = ("Namespace", "PersistentVolume", "PersistentVolumeClaim")
    assert [kinds.count(kind) for kind in (*once, "ServiceAccount")] == [1, 1, 1, 2]


def test_an_engine_version_that_no_image_has(gpu: Recipe) -> None:
    with pytest.raises(UsageError, match=r"no base image with vllm 0\.28\.1 is known") as raised:
        resources(replace(gpu, container=None, engine=gpu.engine.edit(version="0.28.1")))
    assert "container.base" in raised.value.hint


def test_the_notes_say_what_the_cluster_needs_and_what_comes_first(trn2: Recipe) -> None:
    told = "\n".join(RULES.notes(replace(ahead(trn2), scaling=SCALED), Account("", "")))
    for words in ("DRA driver", "Mountpoint for Amazon S3", "vllm_requests_in_flight", "8 more chips", "DIR/compile"):
        assert words in told


@pytest.mark.parametrize(("count", "words"), [(1, "one more accelerator"), (2, "2 more GPUs")])
def test_the_notes_count_the_accelerators_that_an_update_takes(gpu: Recipe, count: int, words: str) -> None:
    engine = gpu.engine.edit(args={**gpu.engine.args, "tensor-parallel-size": count})
    assert words in "\n".join(RULES.notes(replace(gpu, engine=engine), Account("", "")))


def test_a_node_has_a_price_and_its_pods_have_none(gpu: Recipe) -> None:
    assert gpu.price_per_hour is None
    assert list(RULES.notes(gpu, Account("", "")))[-1] == (
        "Price: ? $/h: the catalogue has no EC2 price of g7e.2xlarge: no public copy of AWS's price list that was "
        "found has it (2026-11-26); see https://aws.amazon.com/ec2/pricing/on-demand/"
    )
    on_another = price_text(recipe_with(gpu, instance_types=("g6e.4xlarge",)))
    assert on_another.startswith("? $/h: the cluster's nodes are paid for, not its pods; a g6e.4xlarge is 3.00 (EC2, ")


def test_another_role_wants_other_pods(trn2: Recipe) -> None:
    template = one(ahead(trn2), "Deployment")["spec"]["template"]
    assert template["metadata"]["annotations"]["toolkit/role"] == ROLE


def test_a_benchmark_waits_as_long_as_its_endpoint_may_take_to_start(trn2: Recipe) -> None:
    program, _, job = parts([complete(trn2)])["benchmark"]
    started = one(complete(trn2), "Deployment")["spec"]["progressDeadlineSeconds"]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-2:] == ["--start-seconds", str(started)]
    assert job["spec"]["activeDeadlineSeconds"] > started
    for item in (program, job):
        assert item["metadata"]["labels"]["app.kubernetes.io/component"] == "benchmark"


def test_no_autoscaler_of_nodes_moves_a_benchmark(gpu: Recipe) -> None:
    *_, job = parts([gpu, gpu.baseline()])["benchmark"]
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_manifests_are_applied_as_the_toolkit_does_it(trn2: Recipe) -> None:
    (first,) = [note for note in RULES.notes(ahead(trn2), Account("", "")) if "compiled code only" in note]
    assert "kubectl apply --server-side --field-manager=toolkit -k DIR/compile" in first
