"""What is known of a training before it runs: whether the target fits its GPUs, and how long it may take."""

from __future__ import annotations

import json
import re
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.api.checking import check
from toolkit.api.context import read_lock_of
from toolkit.api.training import train_plan
from toolkit.checks.training_fit import states_room
from toolkit.checks.training_needs import expected
from toolkit.engines.vllm.job_arguments import job_arguments, tensor_parallel
from toolkit.errors import ToolkitError
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.rules import Disk
from toolkit.recipe.trained import as_compared
from toolkit.training.job import TrainingJob
from toolkit.training.plan import section, training_settings
from toolkit.training.split import sizes

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


def test_a_target_that_no_gpu_of_the_job_holds_is_refused_until_the_engine_divides_it(recipe: Path) -> None:
    (found,) = findings(recipe, "training.target-memory")
    assert found.severity == "error"
    assert found.path == "training.instance_type"
    assert "take 65.9 GiB on one accelerator (ml.g6e.12xlarge), and there they can have 37.6" in found.message
    begin, _, names = found.hint.rpartition(": ")
    assert begin.startswith("Write `states: engine`")
    assert names.startswith("ml.g6e.12xlarge, "), "what the recipe has comes first"
    edit(recipe, states="engine")
    for name in names.rstrip(".").split(", "):
        edit(recipe, instance_type=name)
        assert not findings(recipe, "training.target-memory"), name


def test_with_one_gpu_that_does_not_hold_it_the_engine_has_nothing_to_divide(recipe: Path) -> None:
    edit(recipe, states="engine", instance_type="ml.g6e.2xlarge")
    (found,) = findings(recipe, "training.target-memory")
    assert found.hint.startswith("Set `training.instance_type` to a type with enough memory: ml.")


@pytest.mark.parametrize(
    ("method", "states", "warns"),
    [("mxfp4", "transformers", True), ("mxfp4", "engine", False), ("compressed-tensors", "transformers", False)],
)
def test_a_quantized_target_that_transformers_may_not_read_is_told_of(
    recipe: Path, method: str, states: str, warns: bool
) -> None:
    lock = recipe.with_name("recipe.lock.json")
    lock.write_text(lock.read_text().replace('"quant_method": "mxfp4"', f'"quant_method": "{method}"'))
    edit(recipe, states=states)
    found = findings(recipe, "training.quantized")
    assert [(one.severity, one.path) for one in found] == [("warning", "training.states")] * warns


@pytest.mark.parametrize(
    ("heads", "kv_heads", "expected"),
    [
        (32, 8, [1, 2, 4, 8]),
        (28, 4, [1, 2, 4]),
        (14, 2, [1, 2]),
        (48, 3, [1, 3, 6]),
        (64, 1, [1, 2, 4, 8]),
    ],
)
def test_a_target_is_divided_as_vllm_can(heads: int, kv_heads: int, expected: list[int]) -> None:
    assert sizes(heads, kv_heads, 1, 8) == expected


def test_the_job_divides_its_target_as_the_check_says(tmp_path: Path) -> None:
    """Over as few GPUs as hold it, and at least as many as serve it; where none do, over all that can be."""
    config = {"model_type": "qwen2", "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 56}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    job = TrainingJob(name="x", method="p-eagle", target=str(tmp_path), target_name="x", data=())
    assert [tensor_parallel(job, 8, size) for size in (1200, 1000, 400, 10)] == [1, 2, 4, 4]
    served = job.model_copy(update={"engine_args": {"tensor-parallel-size": 2}})
    assert tensor_parallel(served, 8, 1200) == 2
    assert tensor_parallel(served, 1, 1200) == 1


def test_the_key_has_what_the_engine_computes_with_only_where_it_reads_the_states(recipe: Path) -> None:
    def settings(version: str, **args: object) -> dict[str, Any]:
        document = yaml.safe_load(recipe.read_text())
        document["engine"] |= {"version": version, "args": args}
        recipe.write_text(yaml.safe_dump(document))
        return training_settings(load(recipe))

    plain = settings("0.32.0")
    assert not {"states", "states_gb", "engine", "engine_args"} & set(plain)
    assert settings("0.31.0", quantization="fp8") == plain
    edit(recipe, states="engine")
    engines = settings("0.32.0")
    assert engines == plain | {"engine": {"version": "0.32.0"}}
    for flag in ("quantization", "hf-overrides", "kv-cache-dtype", "moe-backend", "attention-backend"):
        assert settings("0.32.0", **{flag: "x"}) == plain | {"engine": {"version": "0.32.0", flag: "x"}}
    assert settings("0.32.0", **{"gpu-memory-utilization": 0.8}) == engines


def test_norms_are_in_the_key_only_where_a_head_has_them(recipe: Path) -> None:
    plain = training_settings(load(recipe))
    edit(recipe, norms=True)
    normed = load(recipe)
    assert training_settings(normed) == plain
    for methods in (("eagle3",), ("p-eagle", "eagle3")):
        assert training_settings(as_compared(normed, methods))["norms"] is True


def test_overrides_reach_the_jobs_engine_also_as_text_and_only_where_it_reads_the_states(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    memory = {"kv-cache-memory-bytes": 10_000_000}  # else by what is free, which is another figure a moment later
    args = {"hf-overrides": '{"rope_theta": 5}', "quantization": "fp8", "load-format": "runai_streamer", **memory}
    job = TrainingJob(name="x", method="p-eagle", target=str(tmp_path), target_name="x", data=(), engine_args=args)
    plain, engines = job_arguments(job), job_arguments(job.model_copy(update={"states": "engine"}))
    assert engines == plain | {"hf_overrides": {"rope_theta": 5}, "quantization": "fp8"}
    assert plain["load_format"] == "runai_streamer"
    assert "quantization" not in plain


def test_an_engine_that_tells_no_logits_of_a_prompt_is_refused(recipe: Path) -> None:
    document = yaml.safe_load(recipe.read_text())
    document["engine"]["version"] = "0.25.1"
    recipe.write_text(yaml.safe_dump(document))
    assert not findings(recipe, "engine.version")
    edit(recipe, states="engine")
    (found,) = findings(recipe, "engine.version")
    assert found.message == "`training.states: engine` needs vllm 0.26.0 or newer"


def test_states_that_may_take_more_than_the_disk_has_are_told_and_stand_in_no_ones_way(recipe: Path) -> None:
    """The volume has the target, too: 61 GiB, or 65 GB, of 160."""
    edit(recipe, states_gb=90, volume_gb=160, instance_type="ml.p4d.24xlarge")
    own = findings(recipe, "training.states")
    assert not own, "that type has disks of its own"
    edit(recipe, instance_type="ml.g5.2xlarge", volume_gb=160)
    edit(recipe, states_gb=9000)
    (found,) = findings(recipe, "training.states")
    assert found.severity == "warning"
    assert "`states_gb` is 9000, and " in found.message


def test_the_volume_has_room_for_the_target_too(recipe: Path) -> None:
    target = load(recipe)
    locked = read_lock_of(target)
    assert locked
    taken = 160e9 - states_room(target, Disk("the volume", round(160e9), "", "", empty=True), locked.target)
    beside = 160e9 - states_room(target, Disk("the disk", round(160e9), "", "", empty=False), locked.target)
    assert taken - beside == pytest.approx(65e9, rel=0.01)


@pytest.mark.parametrize("free", [0, 10, 4 * 1024**3])
def test_a_disk_without_room_for_a_step_is_told(free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 0, free))
    document = yaml.safe_load((catalogue_dir() / "tiny" / "train-p-eagle.yaml").read_text())
    document["target"] = {"model": str(catalogue_dir() / "tiny" / "models" / "target")}
    document["speculation"]["model"] = "./trained"
    document["training"] = {"data": ["./chats.jsonl"], "preset": "tiny"}
    (tmp_path / "chats.jsonl").write_text('{"prompt": "How many days has a year?"}\n')
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(document))
    found = findings(tmp_path / "recipe.yaml", "training.states")
    assert [one.severity for one in found] == (["warning"] if free < 1000 else [])
    assert all("more than fit" in one.message and "has 0.0 GB" in one.message for one in found)


def test_a_recipe_for_trainium_trains_no_head(recipe: Path) -> None:
    document = yaml.safe_load(recipe.read_text())
    document["engine"] = {"name": "neuron"}
    document["speculation"] |= {"method": "eagle3", "num_speculative_tokens": 3}
    document["platform"] |= {"instance_types": ["ml.trn2.48xlarge"]}
    document["training"] = {"data": ["./chats.jsonl"]}
    recipe.write_text(yaml.safe_dump(document))
    (found,) = findings(recipe, "training.engine")
    assert found.severity == "error"
    assert "heads are trained by `vllm`" in found.message
    with pytest.raises(ToolkitError, match="heads are trained by `vllm`"):
        train_plan(recipe)


def test_a_plan_says_how_long_it_may_take_and_what_the_states_take(recipe: Path) -> None:
    def told() -> tuple[str, str]:
        notes = train_plan(recipe).notes
        hours = next(note for note in notes if note.startswith("May take"))
        return hours, next(note for note in notes if note.startswith("The hidden states"))

    def most(hours: str) -> float:
        return float(re.search(r"to ([\d.]+) h", hours)[1])  # type: ignore[index]

    edit(recipe, states="engine")
    hours, states = told()
    assert " $) for up to 1," in hours
    assert hours.endswith("tokens on 4 L40S: by arithmetic, unverified")
    assert states.endswith("computed once")
    once = most(hours)
    edit(recipe, epochs=10, states_gb=5)
    hours, states = told()
    slow = most(hours)
    assert slow > 2 * once
    assert "parts, in each epoch again" in states
    edit(recipe, instance_count=4)
    hours, _ = told()
    assert once < most(hours) < slow
    assert "tokens on 4 machines of 4 L40S" in hours
    edit(recipe, max_hours=once)
    hours, _ = told()
    assert most(hours) == once
    assert re.search(r"and up to \d+ without `max_hours`", hours)


def test_states_in_parts_are_computed_anew_for_each_head_that_is_compared(recipe: Path) -> None:
    edit(recipe, states="engine", epochs=3)
    facts = read_lock_of(load(recipe))
    assert facts

    def hours(methods: tuple[str, ...]) -> float:
        compared = as_compared(load(recipe), methods)
        found = expected(compared, section(compared), facts.target)
        assert found
        return found.most

    both, once = ("p-eagle", "dflash"), hours(("p-eagle", "dflash"))
    whole = [hours((method,)) for method in both]
    edit(recipe, states_gb=5)
    parts = [hours((method,)) - one for method, one in zip(both, whole, strict=True)]
    assert parts[0] == pytest.approx(parts[1])
    assert hours(both) - once > 2 * parts[0]


def test_without_data_or_machine_a_plan_says_nothing_of_time(recipe: Path) -> None:
    edit(recipe, data=["s3://ours/chats/"], states="engine")
    assert not [note for note in train_plan(recipe).notes if note.startswith("May take")]
