"""Drafting without a drafter, on a real vLLM."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent

pytestmark = pytest.mark.serving


def test_ngram_is_on_lossless_and_accepted(endpoint: Endpoint) -> None:
    deployed = toolkit.deploy("tiny/ngram", progress=Silent())
    try:
        both = replace(deployed, baseline=endpoint.baseline, platform=endpoint.platform)
        proof = both.prove(requests=8, max_tokens=128, seconds=300)
    finally:
        deployed.destroy()

    holds = {verdict.claim: verdict.holds for verdict in proof.verdicts}
    assert [holds[claim] for claim in ("on", "accepted", "baseline", "lossless", "same-target")] == [True] * 5, proof
    on = next(verdict for verdict in proof.verdicts if verdict.claim == "on")
    steps, of_all = map(int, re.findall(r"(\d+) of (\d+) target steps", on.detail)[0])
    assert steps < of_all  # many a step has nothing to verify
    for arm in (arm for arm in proof.arms if arm.arm == "speculative"):
        assert arm.identical == 1
        assert arm.acceptance_length
        assert arm.acceptance_length > 1.05
