"""What speculation does, shown by a real vLLM: on, lossless, and accepted where the text can be foreseen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from forked_vllm import ForkedVllm
from safetensors.torch import load_file, save_file

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.measure.report import BenchReport
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.source import ModelSource

pytestmark = pytest.mark.serving


def holds(report: BenchReport) -> dict[str, bool | None]:
    """The verdicts that no machine's speed decides."""
    return {v.claim: v.holds for v in report.verdicts if v.claim not in ("pays", "expected")}


ALL_HOLD = dict.fromkeys(("on", "accepted", "baseline", "lossless", "same-target"), True)


def test_p_eagle_is_on_lossless_and_accepted(endpoint: Endpoint) -> None:
    proof = endpoint.prove(requests=4, seconds=300)

    assert holds(proof) == ALL_HOLD, proof
    speculative = {arm.workload: arm for arm in proof.arms if arm.arm == "speculative"}
    assert speculative["structured"].acceptance_length is not None
    assert speculative["structured"].acceptance_length >= 5
    assert {arm.identical for arm in speculative.values()} == {1.0}
    assert [arm.requests for arm in proof.arms] == [4] * 4


def test_without_a_baseline_neither_speed_nor_target_is_judged(endpoint: Endpoint) -> None:
    proof = replace(endpoint, baseline=None).prove(requests=2, seconds=300)

    assert holds(proof) == {"on": True, "accepted": True, "lossless": True, "same-target": None}, proof
    assert proof.speedups == ()


@pytest.mark.parametrize("method", ["eagle3", "draft-model"])
def test_other_drafters_give_the_targets_output(vllm: ForkedVllm, method: str) -> None:
    recipe = toolkit.load(f"tiny/{method}")
    structured, open_ended = (first_prompts(recipe.workloads[name]) for name in ("structured", "open-ended"))
    drafted = vllm.run("answer", arguments=llm_arguments(recipe), prompts=structured)
    rest = vllm.run("answer", arguments=llm_arguments(recipe), prompts=open_ended)
    target = vllm.run("answer", arguments=llm_arguments(recipe.baseline()), prompts=[*structured, *open_ended])

    assert [*drafted["tokens"], *rest["tokens"]] == target["tokens"]
    assert 1 + drafted["accepted"] / drafted["steps"] >= 2


def first_prompts(workload: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in workload.read_text().splitlines()[:3]]


def llm_arguments(recipe: Recipe) -> dict[str, Any]:
    """The flags of the recipe's server, as vLLM takes them without one."""
    arguments = {flag.replace("-", "_"): value for flag, value in recipe.flags.items()}
    if recipe.speculation:
        drafter = str(recipe.speculation.drafter.folder)
        arguments["speculative_config"] = {**arguments["speculative_config"], "model": drafter}
    return {**arguments, "model": str(recipe.target.folder), "disable_log_stats": False}


def test_a_head_whose_tokens_are_never_accepted_fails_the_proof(endpoint: Endpoint, tmp_path: Path) -> None:
    recipe = toolkit.load("tiny/p-eagle")
    assert recipe.speculation is not None
    assert recipe.speculation.drafter.folder
    head = _head_that_names_wrong_tokens(recipe.speculation.drafter.folder, tmp_path)
    wrong = replace(recipe.speculation, drafter=ModelSource("folder", str(head)))
    deployed = toolkit.deploy(replace(recipe, name="tiny-wrong", speculation=wrong), progress=Silent())
    try:
        proof = deployed.prove(requests=1, seconds=300)
    finally:
        deployed.destroy()

    assert not proof
    assert holds(proof)["accepted"] is False


def _head_that_names_wrong_tokens(head: Path, folder: Path) -> Path:
    """A copy of the head in which each row of the output layer stands for the next token's id."""
    tensors = load_file(head / "model.safetensors")
    output = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = output.roll(-1, dims=0)
    (folder / "wrong").mkdir()
    save_file(tensors, folder / "wrong" / "model.safetensors")
    (folder / "wrong" / "config.json").write_bytes((head / "config.json").read_bytes())
    return folder / "wrong"
