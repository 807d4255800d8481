"""Recipes for Trainium that are good, and what an edit of them makes `check` say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pairs import write_hub_pair

from toolkit.api.checking import check
from toolkit.findings import Finding

DRAFT_MODEL = """\
name: trn
target: {model: org/target}
speculation:
  method: draft-model
  model: org/drafter
  num_speculative_tokens: 7
engine:
  name: neuron
  max_model_len: 1024
  max_num_seqs: 4
  args:
    tensor-parallel-size: 2
platform: {name: sagemaker, instance_types: [ml.trn2.48xlarge]}
"""
EAGLE3 = DRAFT_MODEL.replace("draft-model", "eagle3").replace("max_num_seqs: 4", "max_num_seqs: 2")
DFLASH = DRAFT_MODEL.replace("draft-model", "dflash").replace("max_num_seqs: 4", "max_num_seqs: 1")
BASELINE = DRAFT_MODEL.replace(
    "  method: draft-model\n  model: org/drafter\n  num_speculative_tokens: 7", "  method: none"
)
CLUSTER = DRAFT_MODEL.replace(
    "{name: sagemaker, instance_types: [ml.trn2.48xlarge]}",
    "{name: kubernetes, instance_types: [trn2.48xlarge], kubernetes: {artifacts_bucket: mine}}",
)
ALWAYS = {
    "neuron.support",
    "neuron.compiled-in",
    "neuron.last-tokens",
    "neuron.driver",
    "neuron.availability",
    "neuron.greedy-only",
}
Edit = tuple[str, str]


def all_findings(root: Path, text: str, *edits: Edit, **facts: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Findings on the hub's good pair with this recipe, edited."""
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = write_hub_pair(root, text.replace("dflash", "draft-model").replace("none", "draft-model"), **facts)
    if "none" in text:
        lock = path.with_suffix(".lock.json")
        lock.write_text(json.dumps({**json.loads(lock.read_text()), "drafter": None}))
    path.write_text(text)
    return check(path).findings


def findings(root: Path, text: str, *edits: Edit, **facts: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Those but for what there is to say of every recipe for Trainium."""
    every = all_findings(root, text, *edits, **facts)
    # Prices of the first Trainium and of Inferentia are from 2025.
    return tuple(finding for finding in every if finding.code not in {*ALWAYS, "catalogue.old"})


def config(**changes: Any) -> dict[str, Any]:
    return {"config": changes}


def args(text: str) -> Edit:
    return "    tensor-parallel-size: 2", f"    tensor-parallel-size: 2\n    {text}"


def env(text: str) -> Edit:
    return "  args:", f"  env: {{{text}}}\n  args:"


def tensor_parallel(size: int | str) -> Edit:
    return "tensor-parallel-size: 2", f"tensor-parallel-size: {size}"


def on(instance_type: str) -> Edit:
    return "ml.trn2.48xlarge", instance_type
