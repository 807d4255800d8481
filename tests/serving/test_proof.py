"""What speculation does, shown by a real vLLM: on, lossless, and accepted where the text can be foreseen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import toolkit
from toolkit.apply.progress import Silent
from toolkit.endpoint.handle import Endpoint
from toolkit.recipe.source import ModelSource

pytestmark = pytest.mark.serving


def test_p_eagle_is_on_lossless_and_accepted(endpoint: Endpoint) -> None:
    proof = endpoint.prove(requests=4)

    assert proof.ok, proof
    speculative = {arm.workload: arm for arm in proof.arms if arm.arm == "speculative"}
    assert speculative["structured"].acceptance_length is not None
    assert speculative["structured"].acceptance_length >= 5
    assert {arm.identical for arm in speculative.values()} == {4}


def test_the_target_itself_is_the_judge_without_a_baseline(endpoint: Endpoint) -> None:
    proof = replace(endpoint, baseline=None).prove(requests=1)

    assert proof.ok, proof
    assert [arm.speedup for arm in proof.arms] == [None, None]


@pytest.mark.parametrize(("method", "at_least"), [("eagle3", 2.0), ("draft-model", 2.0)])
def test_other_drafters_give_the_baselines_output(endpoint: Endpoint, method: str, at_least: float) -> None:
    other = toolkit.deploy(f"tiny/{method}", progress=Silent())
    try:
        proof = replace(other, baseline=endpoint.baseline).prove(requests=3)
    finally:
        other.destroy()

    assert proof.ok, proof
    assert proof.arms[0].acceptance_length is not None
    assert proof.arms[0].acceptance_length >= at_least


def test_a_head_whose_tokens_are_never_accepted_fails_the_proof(endpoint: Endpoint, tmp_path: Path) -> None:
    recipe = toolkit.load("tiny/p-eagle")
    assert recipe.speculation is not None
    assert recipe.speculation.drafter.folder
    head = _head_that_names_wrong_tokens(recipe.speculation.drafter.folder, tmp_path)
    wrong = replace(recipe.speculation, drafter=ModelSource("folder", str(head)))
    deployed = toolkit.deploy(replace(recipe, name="tiny-wrong", speculation=wrong), progress=Silent())
    try:
        proof = deployed.prove(requests=1)
    finally:
        deployed.destroy()

    assert not proof
    assert next(verdict.claim for verdict in proof.verdicts if not verdict.holds) == "drafts are accepted"


def _head_that_names_wrong_tokens(head: Path, folder: Path) -> Path:
    """A copy of the head in which each row of the output layer stands for the next token's id."""
    tensors = load_file(head / "model.safetensors")
    output = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = output.roll(-1, dims=0)
    (folder / "wrong").mkdir()
    save_file(tensors, folder / "wrong" / "model.safetensors")
    (folder / "wrong" / "config.json").write_bytes((head / "config.json").read_bytes())
    return folder / "wrong"
