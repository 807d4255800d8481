"""What is known of a training before it runs: whether the target fits its GPUs, and how long it may take."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from toolkit.api.checking import check
from toolkit.api.training import train_plan
from toolkit.findings import Finding
from toolkit.recipe.known import catalogue_dir

BIG = catalogue_dir() / "gpt-oss-120b"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Trains a head for gpt-oss-120b, whose lock knows its size."""
    document = yaml.safe_load((BIG / "p-eagle.yaml").read_text())
    del document["evidence"]
    document["speculation"]["model"] = "./trained"
    document["platform"]["role"] = "create"
    document["training"] = {"data": ["./chats.jsonl"], "preset": "quick", "instance_type": "ml.g6e.12xlarge"}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(document))
    shutil.copy(BIG / "p-eagle.lock.json", tmp_path / "recipe.lock.json")
    (tmp_path / "chats.jsonl").write_text('{"prompt": "How many days has a year that is divisible by four?"}\n' * 1000)
    return tmp_path / "recipe.yaml"


def edit(recipe: Path, **training: object) -> None:
    document = yaml.safe_load(recipe.read_text())
    document["training"] |= training
    recipe.write_text(yaml.safe_dump(document))


def findings(recipe: Path, code: str) -> list[Finding]:
    return [finding for finding in check(recipe).findings if finding.code == code]


def test_a_target_that_the_gpus_of_the_job_cannot_hold_is_refused_with_types_that_can(recipe: Path) -> None:
    assert not findings(recipe, "training.target-memory")  # 66 GiB over four GPUs of 48 GB
    edit(recipe, instance_type="ml.g6e.2xlarge")
    (found,) = findings(recipe, "training.target-memory")
    assert found.severity == "error"
    assert found.path == "training.instance_type"
    assert "66 GiB of each accelerator that the job divides them over (1 of ml.g6e.2xlarge), and 41" in found.message
    for name in found.hint.partition(": ")[2].rstrip(".").split(", "):
        edit(recipe, instance_type=name)
        assert not findings(recipe, "training.target-memory"), name


def test_transformers_divide_no_target(recipe: Path) -> None:
    edit(recipe, states="transformers")
    (found,) = findings(recipe, "training.target-memory")
    assert "or `states: engine`" in found.hint


def test_states_that_may_take_more_than_the_disk_has_are_refused(recipe: Path) -> None:
    edit(recipe, states_gb=90, volume_gb=100, instance_type="ml.p4d.24xlarge")
    assert not findings(recipe, "training.states")
    edit(recipe, states_gb=9000)
    (found,) = findings(recipe, "training.states")
    assert "`states_gb` is 9000, and " in found.message


def test_a_plan_says_how_long_it_may_take_and_what_the_states_take(recipe: Path) -> None:
    def told() -> tuple[str, str]:
        notes = train_plan(recipe).notes
        hours = next(note for note in notes if note.startswith("May take"))
        return hours, next(note for note in notes if note.startswith("The hidden states"))

    hours, states = told()
    assert " $) for up to 1," in hours
    assert hours.endswith("tokens on 4 L40S: by arithmetic, unverified")
    assert states.endswith("computed once")
    once = float(hours.split()[4])
    edit(recipe, epochs=10, states_gb=5)
    hours, states = told()
    assert float(hours.split()[4]) > 2 * once
    assert "parts, in each epoch again" in states


def test_without_data_or_machine_a_plan_says_nothing_of_time(recipe: Path) -> None:
    edit(recipe, data=["s3://ours/chats/"])
    assert not [note for note in train_plan(recipe).notes if note.startswith("May take")]
