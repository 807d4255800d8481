"""The machines of a training job: what check refuses, what is asked for, and what the plan says it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from fakes import ACCOUNT
from pairs import HUB_RECIPE, write_hub_pair

import toolkit
from toolkit.api.checking import check
from toolkit.api.training import price
from toolkit.catalog import lookup
from toolkit.checks.training import check_training
from toolkit.errors import RecipeError
from toolkit.loading import load
from toolkit.platforms.sagemaker.rules import job_machines
from toolkit.platforms.sagemaker.rules.checks.capacity import PLANNED_TYPES
from toolkit.platforms.sagemaker.rules.head_training import training_resources
from toolkit.recipe.known import known_model

PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/ours"
P5, P4 = "ml.p5.48xlarge", "ml.p4d.24xlarge"
PLANNED = {"instance_type": P5, "training_plan": PLAN}
FIRST = {"type": P5, "training_plan": PLAN}


def write(folder: Path, platform: dict[str, Any] | None = None, **training: Any) -> Path:
    """A recipe that trains its head on SageMaker."""
    document = yaml.safe_load(HUB_RECIPE)
    document["speculation"]["model"] = "s3://ours/head/"
    document["training"] = {"data": ["hf://org/chats"], **training}
    document["platform"] = {"name": "sagemaker", "instance_types": ["ml.g6.xlarge"], **(platform or {})}
    return write_hub_pair(folder, yaml.safe_dump(document), drafter={"model": "s3://ours/head/"})


def found(path: Path) -> list[tuple[str, str, str]]:
    """What check says of the job's machines."""
    return [
        (item.code, item.severity, item.path)
        for item in check(path).findings
        if item.code.startswith("sagemaker.training") or item.code == "sagemaker.same-type"
    ]


SPOT = ("sagemaker.training-spot", "error", "training.spot")


@pytest.mark.parametrize(
    ("bad", "good", "said"),
    [
        ({**PLANNED, "spot": True}, PLANNED, SPOT),
        ({"keep_alive_minutes": 30, "spot": True}, {"keep_alive_minutes": 30}, SPOT),
        ({"instance_types": [P5, P4], "spot": True}, {"instance_types": [P5, P4]}, SPOT),
        ({"instance_types": [P5, P4, P5]}, {"instance_types": [P5, P4]},
         ("sagemaker.same-type", "error", "training.instance_types.2")),
        ({"instance_types": [P5, P4], "training_plan": PLAN}, {"instance_types": [FIRST, P4]},
         ("sagemaker.training-plan", "error", "training.training_plan")),
        ({**PLANNED, "instance_type": "ml.g6.xlarge"}, PLANNED,
         ("sagemaker.training-plan", "warning", "training.training_plan")),
        ({"instance_types": [P4, {**FIRST, "type": "ml.g6.xlarge"}]}, {"instance_types": [P4, FIRST]},
         ("sagemaker.training-plan", "warning", "training.instance_types.1.training_plan")),
    ],
)  # fmt: skip
def test_machines_that_a_job_cannot_have(
    tmp_path: Path, bad: dict[str, Any], good: dict[str, Any], said: tuple[str, str, str]
) -> None:
    assert found(write(tmp_path, **bad)) == [said]
    assert found(write(tmp_path, **good)) == []


@pytest.mark.parametrize(("region", "count"), [("us-west-2", 0), ("eu-west-1", 1)])
def test_a_plan_is_of_the_recipes_region(tmp_path: Path, region: str, count: int) -> None:
    path = write(tmp_path, {"region": region}, **PLANNED)
    assert found(path) == [("sagemaker.training-plan", "error", "training.training_plan")] * count


def test_a_key_that_no_volume_could_have_is_an_error_where_one_needs_it(tmp_path: Path) -> None:
    """botocore, ResourceConfig.VolumeKmsKeyId: refused with local storage, which is encrypted by itself."""
    key = {"kms_key": "1234abcd"}
    mixed = write(tmp_path, key, instance_types=[P5, "ml.c5.18xlarge"])
    assert found(mixed) == [("sagemaker.training-key", "error", "training.instance_types")]
    assert "VolumeKmsKeyId" not in request(mixed)["ResourceConfig"]
    assert found(write(tmp_path, key, instance_types=[P5, P4])) == []


def test_types_that_plans_offer_are_those_of_botocore() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    assert sorted(PLANNED_TYPES) == sorted(model.shape_for("ReservedCapacityInstanceType").enum)


def request(path: Path) -> dict[str, Any]:
    """What the job is asked for with."""
    return dict(training_resources(load(path), ACCOUNT)[-1].request)


@pytest.mark.parametrize(
    ("training", "config"),
    [
        ({**PLANNED, "instance_count": 2},
         {"InstanceType": P5, "InstanceCount": 2, "TrainingPlanArn": PLAN}),
        ({"instance_type": P5, "keep_alive_minutes": 30},
         {"InstanceType": P5, "InstanceCount": 1, "KeepAlivePeriodInSeconds": 1800}),
        ({"instance_types": [FIRST, P4], "instance_count": 3},
         {"InstancePreferences": [{"InstanceType": P5, "TrainingPlanArns": [PLAN]}, {"InstanceType": P4}],
          "InstanceCount": 3}),
        ({"instance_types": [P5, {"type": P4, "count": 2}]},
         {"InstancePreferences": [{"InstanceType": P5, "InstanceCount": 1}, {"InstanceType": P4, "InstanceCount": 2}]}),
    ],
)  # fmt: skip
def test_what_the_job_asks_for(tmp_path: Path, training: dict[str, Any], config: dict[str, Any]) -> None:
    assert request(write(tmp_path, **training))["ResourceConfig"] == {**config, "VolumeSizeInGB": 500}


def test_its_traffic_is_encrypted_if_it_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, encrypt_traffic=True, instance_count=2)
    assert request(path)["EnableInterContainerTrafficEncryption"] is True
    assert "EnableInterContainerTrafficEncryption" not in request(write(tmp_path, instance_count=2))


def test_encrypted_traffic_needs_rules_in_a_vpc(tmp_path: Path) -> None:
    path = write(tmp_path, encrypt_traffic=True)
    assert not any("UDP 500" in note for note in job_machines.notes(load(path)))
    path.write_text(f"{path.read_text()}network: {{subnets: [subnet-1], security_groups: [sg-1]}}\n")
    assert any("UDP 500 and protocol 50" in note for note in job_machines.notes(load(path)))


def usd(name: str) -> float:
    instance = lookup.instance(name)
    price = instance.price("us-west-2") if instance else None
    assert price
    return price.usd_per_hour


def test_a_training_plan_is_paid_in_advance(tmp_path: Path) -> None:
    path = write(tmp_path, **PLANNED)
    assert job_machines.price_per_hour(load(path)) is None
    cost = price(path)
    assert cost
    assert "at most 24 h; its price: ? $/h: reserved capacity is paid in advance" in cost
    assert any(note.startswith(f"{P5} of plan ours is paid in advance") for note in toolkit.train_plan(path).notes)


def test_of_several_types_the_dearest_on_demand_bounds_the_price(tmp_path: Path) -> None:
    both = write(tmp_path, {"region": "us-west-2"}, instance_types=[{"type": P4, "count": 2}, P5])
    assert job_machines.price_per_hour(load(both)) == max(2 * usd(P4), usd(P5))
    planned = write(tmp_path, {"region": "us-west-2"}, instance_types=[FIRST, P4])
    assert job_machines.price_per_hour(load(planned)) == usd(P4)
    assert any(f"first of {P5}, {P4} that has capacity" in note for note in job_machines.notes(load(planned)))


def test_a_type_without_a_price_makes_the_price_unknown(tmp_path: Path) -> None:
    unpriced = "ml.p6e-gb200.36xlarge"
    path = write(tmp_path, instance_types=[P5, unpriced])
    assert job_machines.price_per_hour(load(path)) is None
    assert job_machines.price_text(load(path)).startswith(f"? $/h: no price of {unpriced}")


def test_a_warm_pool_is_billed_while_it_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, {"region": "us-west-2"}, instance_type=P5, instance_count=2, keep_alive_minutes=30)
    (note,) = [note for note in job_machines.notes(load(path)) if "kept for 30 min" in note]
    assert f"billed, at most {usd(P5):.2f} $ more" in note


def test_the_least_disk_of_its_types_is_what_a_job_can_count_on(tmp_path: Path) -> None:
    path = write(tmp_path, instance_types=[P5, "ml.m5.4xlarge"], volume_gb=300)
    assert job_machines.disk(load(path)).free_bytes == 300e9
    disk = job_machines.disk(load(write(tmp_path, instance_types=[P5, P4])))
    assert (disk.free_bytes, disk.path) == (8000e9, "training.instance_types")


def test_one_key_says_what_a_job_runs_on(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="`instance_type` and `instance_types` both say what the job runs on"):
        load(write(tmp_path, instance_type=P5, instance_types=[P4]))


def test_the_smallest_of_its_types_must_have_the_memory(tmp_path: Path) -> None:
    def memory(**training: Any) -> list[str]:
        path = write(tmp_path, max_length=20_000_000, **training)
        return [f"{item.path}: {item.message}" for item in check(path).findings if item.code == "training.memory"]

    (found,) = memory(instance_types=[P5, "ml.g6.12xlarge"])
    assert found.startswith("training.instance_types: ")
    assert "and ml.g6.12xlarge has" in found


@pytest.mark.parametrize(("machines", "enough"), [(1, False), (4, True)])
def test_a_head_that_one_gpu_cannot_hold_several_divide(machines: int, enough: bool, tmp_path: Path) -> None:
    path = tmp_path / "divided.yaml"
    path.write_text(
        "name: divided\ntarget: {model: meta-llama/Llama-3.1-8B-Instruct}\nengine: {version: 0.31.0}\n"
        "speculation: {method: p-eagle, model: s3://ours/head/, num_speculative_tokens: 5}\n"
        "platform: {name: sagemaker, instance_types: [ml.g5.2xlarge]}\n"
        f"training: {{data: [hf://org/chats], instance_count: {machines}, partitions: 4}}\n"
    )
    target = known_model("meta-llama/Llama-3.1-8B-Instruct")
    recipe = load(path)
    assert recipe.training
    findings = check_training(recipe, recipe.training, target)
    found = [item.message for item in findings if item.code == "training.memory"]
    said = "training needs about 40 GiB on each accelerator (an estimate), and ml.g5.2xlarge has 22"
    assert found == ([] if enough else [said])
