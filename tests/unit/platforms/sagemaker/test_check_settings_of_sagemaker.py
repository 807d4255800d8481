"""Settings of SageMaker in a recipe: one bad case and one good for each code, the good one a small edit away."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import botocore.session
import pytest
from pairs import HUB_RECIPE, RECIPE, write_hub_pair, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.catalog import lookup
from toolkit.engines.arguments import environment
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.platforms.sagemaker.kinds.endpoint import endpoint
from toolkit.platforms.sagemaker.rules.checks.component import LONGEST_UPDATE_SECONDS
from toolkit.platforms.sagemaker.rules.drivers import AMI_DRIVERS, inference_ami

ON = "platform: {name: sagemaker, instance_types: [ml.g6.xlarge], health_check_timeout: 600}"
ROLLING = "rollout: {update: rolling}"
COMPONENT = "inference_component: {}"
PLAN = "capacity_reservation: 'arn:aws:sagemaker:us-east-1:111122223333:training-plan/p4'"
WEST = PLAN.replace("us-east-1", "us-west-2")


def report(
    root: Path, platform: str = "", more: str = "", types: str = "[ml.g6.xlarge]", engine: str = ""
) -> tuple[Finding, ...]:
    """Findings on a good pair with these settings added."""
    where = f"platform: {{name: sagemaker, instance_types: {types}, health_check_timeout: 600, {platform}}}\n{more}\n"
    text = HUB_RECIPE.replace(ON, where).replace("  max_model_len", f"{engine}  max_model_len")
    return check(write_hub_pair(root, text)).findings


@pytest.mark.parametrize(
    ("bad", "good", "code", "severity", "path"),
    [
        (("weights: hub", "network: {isolation: true}"), ("weights: s3", "network: {isolation: true}"),
         "sagemaker.isolation", "error", "platform.weights"),
        (("weights: hub, hub_token_secret: hf",), ("weights: s3, hub_token_secret: hf",),
         "sagemaker.hub-token", "error", "platform.hub_token_secret"),
        (("", "network: {subnets: [a], security_groups: [b], private_registry: true}"),
         ("", "network: {subnets: [a], security_groups: [b]}"),
         "sagemaker.private-registry", "warning", "network.private_registry"),
        (("", "network: {subnets: [a], security_groups: [b, c, d, e, f, g]}"),
         ("", "network: {subnets: [a], security_groups: [b, c, d, e, f]}"),
         "sagemaker.vpc", "error", "network.security_groups"),
        (("", "tags: {team: 'a,b'}"), ("", "tags: {team: 'a b'}"), "sagemaker.tags", "error", "tags.team"),
        (("", "tags: {'aws:team': a}"), ("", "tags: {'our:team': a}"), "sagemaker.tags", "error", "tags.aws:team"),
        (("", f"tags: {{{'x' * 129}: a}}"), ("", f"tags: {{{'x' * 128}: a}}"),
         "sagemaker.tags", "error", f"tags.{'x' * 129}"),
        (("", f"tags: {{team: {'x' * 257}}}"), ("", f"tags: {{team: {'x' * 256}}}"),
         "sagemaker.tags", "error", "tags.team"),
        (("", f"tags: {dict.fromkeys(map(str, range(47)), '')}"),
         ("", f"tags: {dict.fromkeys(map(str, range(46)), '')}"), "sagemaker.tags", "error", "tags"),
        (("", "scaling: {min_instances: 0}"), (COMPONENT, "scaling: {min_instances: 0}"),
         "sagemaker.scale-to-zero", "error", "scaling.min_instances"),
        ((PLAN, "", "[ml.p5.4xlarge, ml.g6.2xlarge]"), (PLAN, "", "[ml.p5.4xlarge]"),
         "sagemaker.capacity-reservation", "error", "platform.capacity_reservation"),
        ((PLAN,), (PLAN, "", "[ml.p5.4xlarge]"),
         "sagemaker.capacity-reservation", "warning", "platform.capacity_reservation"),
        ((f"{PLAN}, region: us-west-2", "", "[ml.p5.4xlarge]"), (f"{WEST}, region: us-west-2", "", "[ml.p5.4xlarge]"),
         "sagemaker.capacity-reservation", "error", "platform.capacity_reservation"),
        (("", "", "[ml.g6.xlarge, ml.g6.xlarge]"), ("", "", "[ml.g6.xlarge, ml.g6.2xlarge]"),
         "sagemaker.same-type", "error", "platform.instance_types.1"),
        (("routing: kv-aware",), ("routing: kv-aware", "scaling: {max_instances: 2}"),
         "sagemaker.routing", "info", "platform.routing"),
        (("kms_key: 1234abcd",), ("",), "sagemaker.kms-key", "info", "platform.kms_key"),
        ((f"{COMPONENT}, region: eu-west-3", "scaling: {min_instances: 0}"),
         (f"{COMPONENT}, region: eu-west-1", "scaling: {min_instances: 0}"),
         "sagemaker.scale-to-zero", "warning", "scaling.min_instances"),
        (("routing: kv-aware", "scaling: {max_instances: 2}\ncontainer: custom"),
         ("routing: kv-aware", "scaling: {max_instances: 2}"),
         "sagemaker.routing", "warning", "platform.routing"),
        ((COMPONENT, "rollout: {shadow: true}"), ("", "rollout: {shadow: true}"),
         "sagemaker.component-experiment", "error", "rollout.shadow"),
        ((COMPONENT, "rollout: {speculative_percent: 50}"), ("", "rollout: {speculative_percent: 50}"),
         "sagemaker.component-experiment", "error", "rollout.speculative_percent"),
        ((COMPONENT, "rollout: {update: canary}"), (COMPONENT, f"{ROLLING}\nscaling: {{max_instances: 2}}"),
         "sagemaker.component-update", "warning", "rollout.update"),
        ((COMPONENT, "rollout: {alarms: [mine]}"), ("", "rollout: {alarms: [mine]}"),
         "sagemaker.component-update", "warning", "rollout.alarms"),
        ((COMPONENT, ROLLING), (COMPONENT, f"{ROLLING}\nscaling: {{max_instances: 2}}"),
         "sagemaker.rollout-step", "warning", "rollout.update"),
        (("inference_component: {accelerators: 2}",), ("inference_component: {accelerators: 1}",),
         "sagemaker.component-size", "error", "platform.instance_types.0"),
        (("inference_component: {accelerators: 1}", "", "[ml.g6.12xlarge]", "  args: {tensor-parallel-size: 2}\n"),
         ("inference_component: {accelerators: 2}", "", "[ml.g6.12xlarge]", "  args: {tensor-parallel-size: 2}\n"),
         "sagemaker.component-size", "error", "platform.inference_component.accelerators"),
        (("inference_component: {memory_mib: 16385}",), ("inference_component: {memory_mib: 16384}",),
         "sagemaker.component-size", "error", "platform.inference_component.memory_mib"),
        (("", "rollout: {update: linear, step_percent: 9}\nscaling: {max_instances: 2}"),
         ("", "rollout: {update: linear, step_percent: 10}\nscaling: {max_instances: 2}"),
         "sagemaker.rollout-step", "error", "rollout.step_percent"),
        (("", "rollout: {update: canary}"), ("", "rollout: {update: all-at-once}"),
         "sagemaker.rollout-step", "warning", "rollout.update"),
        (("", "rollout: {update: rolling, step_percent: 25, wait_seconds: 3600}\nscaling: {max_instances: 4}"),
         ("", "rollout: {update: rolling, step_percent: 25, wait_seconds: 3599}\nscaling: {max_instances: 4}"),
         "sagemaker.rollout-time", "error", "rollout.wait_seconds"),
        (("", "rollout: {update: rolling, speculative_percent: 50}\nscaling: {max_instances: 2}"),
         ("", "rollout: {update: linear, speculative_percent: 50}\nscaling: {max_instances: 2}"),
         "sagemaker.rollout-variants", "warning", "rollout.update"),
        (("", "scaling: {max_instances: 2, requests_per_instance: 129}"),
         ("", "scaling: {max_instances: 2, requests_per_instance: 128}"),
         "sagemaker.scaling-target", "warning", "scaling.requests_per_instance"),
        (("", "", "[ml.g7e.2xlarge]", "  env: {HF_TOKEN: abc}\n"),
         ("", "", "[ml.g7e.2xlarge]", '  env: {HF_HUB_DISABLE_IMPLICIT_TOKEN: "1", TOKENIZERS_PARALLELISM: "true"}\n'),
         "container.secret", "error", "engine.env.HF_TOKEN"),
        (("", "", "[ml.g6.xlarge]", "  args: {api-key: abc}\n"),
         ("", "", "[ml.g6.xlarge]", "  args: {hf-token: true}\n"),
         "container.secret", "error", "engine.args.api-key"),
        (("", "", "[ml.g6.xlarge]", "  env: {STORE: 'postgres://user:password@host'}\n"),
         ("", "", "[ml.g6.xlarge]", "  env: {STORE: 'postgres://host/db'}\n"),
         "container.secret", "error", "engine.env.STORE"),
        (("", "", "[ml.g6.xlarge]", "  args: {override-generation-config: {deep: {password: abc}}}\n"),
         ("", "", "[ml.g6.xlarge]", "  args: {override-generation-config: {deep: {bos_token: <s>}}}\n"),
         "container.secret", "error", "engine.args.override-generation-config.deep.password"),
        (("", "tags: {DB_PASSWORD: abc}"), ("", "tags: {team: abc}"), "container.secret", "error", "tags.DB_PASSWORD"),
        (("", "description: the head of s3://me:hunter2@ours"), ("", "description: the head of s3://ours"),
         "container.secret", "error", "description"),
    ],
)  # fmt: skip
def test_a_bad_setting_and_a_good_one(
    tmp_path: Path, bad: tuple[str, ...], good: tuple[str, ...], code: str, severity: str, path: str
) -> None:
    (finding,) = report(tmp_path, *bad)
    assert (finding.code, finding.severity, finding.path) == (code, severity, path)
    assert finding.hint
    assert report(tmp_path, *good) == ()


@pytest.mark.parametrize("alias", ["alias/ours", "arn:aws:kms:us-west-2:123456789012:alias/ours"])
def test_an_alias_of_a_key_is_refused_because_a_policy_on_it_allows_nothing(tmp_path: Path, alias: str) -> None:
    (refused, _) = report(tmp_path, f"kms_key: {alias}")
    assert (refused.code, refused.severity, refused.path) == ("sagemaker.kms-alias", "error", "platform.kms_key")
    assert f"aws kms describe-key --key-id {alias} " in refused.hint


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("kms_key: arn:aws:kms:REGION:123456789012:key/1", "platform.kms_key"),
        ("log_kms_key: arn:aws:kms:REGION:123456789012:key/1", "observability.log_kms_key"),
        ("notify: arn:aws:sns:REGION:123456789012:topic", "observability.notify"),
    ],
)
def test_a_key_or_a_topic_of_another_region_is_refused(tmp_path: Path, written: str, path: str) -> None:
    for region, codes in (("us-west-2", []), ("us-east-1", ["sagemaker.other-region"])):
        there = written.replace("REGION", region)
        platform = f", {there}" if path.startswith("platform") else ""
        text = HUB_RECIPE.replace("platform: {", f"platform: {{region: us-west-2{platform}, ")
        recipe = write_hub_pair(tmp_path, text if platform else f"{text}observability: {{{there}}}\n")
        found = [item for item in check(recipe).findings if item.severity == "error"]
        assert [item.code for item in found] == codes
        assert all(item.path == path for item in found)


def test_an_experiment_needs_speculation(tmp_path: Path) -> None:
    spec = "method: p-eagle\n  model: org/drafter\n  num_speculative_tokens: 7"
    text = HUB_RECIPE.replace(spec, "method: none") + "rollout: {shadow: true}\n"
    recipe = write_hub_pair(tmp_path)
    recipe.write_text(text)
    (finding,) = check(recipe).findings
    assert (finding.code, finding.path) == ("sagemaker.rollout-baseline", "rollout.shadow")


@pytest.mark.parametrize(
    "name", ["HUGGING_FACE_HUB_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "hf_token"]
)
def test_a_secret_is_found_by_its_name_and_not_shown(tmp_path: Path, name: str) -> None:
    (finding,) = report(tmp_path, engine=f"  env: {{{name}: very-private}}\n")
    assert finding.code == "container.secret"
    assert "very-private" not in str(finding)


@pytest.mark.parametrize("version", ["0.19.0", "0.30.0"])
def test_an_old_image_gets_a_host_whose_driver_knows_its_gpus(tmp_path: Path, version: str) -> None:
    """vLLM 0.19.0 (CUDA 12.9) is published as running on a g7e."""
    text = HUB_RECIPE.replace("ml.g6.xlarge", "ml.g7e.2xlarge").replace("0.30.0", version).replace("16384", "32768")
    assert check(write_hub_pair(tmp_path, text)).findings == ()
    image = next(image for image in lookup.images("sagemaker", "vllm") if image.version == version)
    assert inference_ami(image, ["ml.g6.xlarge"]) == image.ami
    assert AMI_DRIVERS[inference_ami(image, ["ml.g6.xlarge", "ml.g7e.2xlarge"])] == 580


def test_drivers_are_those_that_the_service_model_names() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    text = re.sub(
        "<[^>]+>|\\s+", " ", model.shape_for("ProductionVariant").members["InferenceAmiVersion"].documentation
    )
    named = re.findall(r"(al\S+-gpu-\S+) Accelerator: GPU NVIDIA driver version: (\d+)", re.sub(" +", " ", text))
    assert {name: int(driver) for name, driver in named} == AMI_DRIVERS


def test_every_image_for_gpus_runs_on_the_driver_of_its_ami() -> None:
    """CUDA 12 needs driver 525, CUDA 13 needs 580 (NVIDIA, CUDA minor version compatibility)."""
    least = {"12": 525, "13": 580}
    images = [image for engine in ("vllm", "lmi") for image in lookup.images("sagemaker", engine)]
    assert [image.tag for image in images if AMI_DRIVERS[image.ami] < least[image.cuda.split(".")[0]]] == []
    assert [image.tag for image in images if AMI_DRIVERS[image.ami] < int(image.driver or 0)] == []


def test_an_update_is_given_as_long_as_the_check_says(tmp_path: Path) -> None:
    recipe = load(write_hub_pair(tmp_path, HUB_RECIPE + "rollout: {update: linear}\n"))
    policy = endpoint(recipe, "config").update["DeploymentConfig"]["BlueGreenUpdatePolicy"]
    assert policy["MaximumExecutionTimeoutInSeconds"] == LONGEST_UPDATE_SECONDS


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ("platform: {name: local, inference_component: {}}", "platform.inference_component"),
        ("platform: {name: local}\nobservability: {data_capture_percent: 1}", "observability.data_capture_percent"),
        ("platform: {name: local}\nscaling: {min_instances: 2, max_instances: 2}", "scaling.min_instances"),
    ],
)
def test_what_the_local_platform_refuses(tmp_path: Path, wrong: str, path: str) -> None:
    write_pair(tmp_path)
    (finding,) = check(write_recipe(tmp_path, RECIPE.replace("platform: {name: local}", wrong))).findings
    assert (finding.code, finding.path) == ("local.not-here", path)


@pytest.mark.parametrize(
    ("container", "codes"),
    [("", ["local.base"]), ("container: custom\n", ["local.base"]), ("container: {base: 'ours/vllm-cpu:1'}\n", [])],
)
def test_a_container_on_this_machine_needs_a_base(tmp_path: Path, container: str, codes: list[str]) -> None:
    write_pair(tmp_path)
    text = RECIPE.replace("platform: {name: local}", f"{container}platform: {{name: local, run: container}}")
    assert [finding.code for finding in check(write_recipe(tmp_path, text)).findings] == codes


@pytest.mark.parametrize(
    ("own", "code", "path"),
    [
        ("args: {enable-lorra: true}", "engine.unknown-flag", "args.enable-lorra"),
        ("args: {max_num_seqs: 5}", "engine.own-flag", "args.max-num-seqs"),
        ("num_speculative_tokens: 70", "engine.token-budget", None),
    ],
)
def test_settings_of_one_type_are_checked_there(tmp_path: Path, own: str, code: str, path: str | None) -> None:
    (finding,) = report(tmp_path, types=f"[ml.g6.xlarge, {{type: ml.g6.2xlarge, {own}}}]")
    here = "platform.instance_types.1"
    assert (finding.code, finding.path) == (code, f"{here}.{path}" if path else here)
    assert finding.message.startswith("on ml.g6.2xlarge: ")
    assert finding.line


def test_what_is_wrong_everywhere_is_said_once(tmp_path: Path) -> None:
    types = "[ml.g6.xlarge, {type: ml.g6.2xlarge, num_speculative_tokens: 3}]"
    (finding,) = report(tmp_path, types=types, engine="  args: {enable-lorra: true}\n")
    assert finding.path == "engine.args.enable-lorra"


LARGE = {"target": {"tensors": None, "weight_bytes": 30 * 2**30}}
FOUR = "{type: ml.g6.12xlarge, args: {tensor-parallel-size: 2}}"


def test_memory_is_that_of_each_type_with_its_own_flags(tmp_path: Path) -> None:
    alone = HUB_RECIPE.replace("[ml.g6.xlarge]", f"[ml.g7e.2xlarge, {FOUR}]")
    assert check(write_hub_pair(tmp_path, alone, **LARGE)).findings == ()
    small = HUB_RECIPE.replace("[ml.g6.xlarge]", f"[{FOUR}, ml.g6.xlarge]")
    (finding,) = check(write_hub_pair(tmp_path, small, **LARGE)).findings
    assert (finding.code, finding.path) == ("memory.does-not-fit", "platform.instance_types.1")


def test_the_hint_for_one_type_of_several_is_for_that_type(tmp_path: Path) -> None:
    text = HUB_RECIPE.replace("[ml.g6.xlarge]", "[ml.g7e.2xlarge, ml.g6.12xlarge]")
    (finding,) = check(write_hub_pair(tmp_path, text, **LARGE)).findings
    assert (finding.code, finding.path) == ("memory.tensor-parallel", "platform.instance_types.1")
    assert finding.hint.startswith(f"For this type only: `{FOUR}`.")


@pytest.mark.parametrize(
    ("beyond", "said"), [(0, []), (1, ["but SageMaker allows 32768"])], ids=["32 KiB", "a byte more"]
)
def test_an_environment_has_32_kib_with_its_names(tmp_path: Path, beyond: int, said: list[str]) -> None:
    recipe = load(write_hub_pair(tmp_path))
    free = 32 * 1024 + beyond - sum(len(name) + len(value) for name, value in environment(recipe).items())
    full, rest = divmod(free, 1003)
    env = {f"A{number:02}": "x" * 1000 for number in range(full)} | {"B": "x" * (rest - 1)}
    filled = replace(recipe, engine=recipe.engine.edit(env=env))
    found = [finding.message for finding in check(filled).findings if finding.code == "container.environment"]
    assert [part for message in found for part in said if part in message] == said
    assert len(found) == len(said)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ml.gr6.4xlarge", "See: toolkit fit {recipe}"),
        ("ml.trn2.3xlarge", "Use trn2.3xlarge on a cluster (`name: kubernetes`); or see: toolkit fit {recipe}"),
    ],
)
def test_a_type_that_hosts_no_endpoints_is_told_with_where_it_can_be_used(tmp_path: Path, name: str, hint: str) -> None:
    (finding,) = [one for one in report(tmp_path, types=f"[{name}]") if one.code == "sagemaker.instance-type"]
    shown = hint.replace("{recipe}", str(tmp_path / "recipe.yaml"))
    assert (finding.message, finding.hint) == (f"{name} cannot host endpoints", shown)
