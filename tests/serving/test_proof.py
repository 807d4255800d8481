"""What speculation does, shown by a real vLLM: on, lossless, and accepted where the text can be foreseen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.measure.design import Cache
from toolkit.measure.report import BenchReport

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
    assert speculative["structured"].acceptance_length >= 7
    assert {arm.identical for arm in speculative.values()} == {1.0}
    assert [arm.requests for arm in proof.arms] == [4] * 4


@pytest.mark.parametrize(("cache", "least", "most"), [("cold", 0.0, 0.0), ("warm", 0.3, 1.0)])
def test_a_prompt_that_is_asked_again_is_read_anew_or_found_in_the_cache(
    endpoint: Endpoint, tmp_path: Path, cache: Cache, least: float, most: float
) -> None:
    prompts = tmp_path / "long.jsonl"
    prompts.write_text(json.dumps({"prompt": "Count from 105 to 130. " * 20}) + "\n")
    report = toolkit.bench(
        endpoint, workloads=[str(prompts)], concurrency=(1,), requests=4, max_tokens=4, cache=cache, progress=Silent()
    )
    shares = [arm.cached_share for arm in report.arms]
    assert len(shares) == 2
    assert all(share is not None and least <= share <= most for share in shares), shares
    assert report.setting["cache"] == cache


def test_without_a_baseline_neither_speed_nor_target_is_judged(endpoint: Endpoint) -> None:
    proof = replace(endpoint, baseline=None).prove(requests=6, seconds=300)

    assert holds(proof) == {"on": True, "accepted": True, "lossless": True, "same-target": None}, proof
    assert proof.speedups == ()


def test_a_head_whose_tokens_are_never_accepted_fails_the_proof(endpoint: Endpoint, tmp_path: Path) -> None:
    recipe = toolkit.load("tiny/p-eagle")
    assert recipe.speculation is not None
    assert recipe.speculation.drafter.folder
    head = _head_that_names_wrong_tokens(recipe.speculation.drafter.folder, tmp_path)
    wrong = recipe.speculation.edit(model=str(head))
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
