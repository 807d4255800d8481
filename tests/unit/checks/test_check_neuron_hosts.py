"""Recipes for Trainium and their hosts: drivers, ways to get chips, sizes that fit, and sampling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from neuron_recipes import (
    CLUSTER,
    DFLASH,
    DRAFT_MODEL,
    EAGLE3,
    Edit,
    all_findings,
    config,
    findings,
    on,
    tensor_parallel,
)

from toolkit.api.checking import check
from toolkit.findings import Finding


def of_driver(root: Path, *edits: Edit, text: str = CLUSTER) -> list[Finding]:
    return [finding for finding in all_findings(root, text, *edits) if finding.code == "neuron.driver"]


def test_a_runtime_that_current_nodes_are_too_new_for_is_a_warning_with_the_ami_to_choose(tmp_path: Path) -> None:
    (finding,) = of_driver(tmp_path)
    assert finding.severity == "warning"
    assert finding.message == (
        "nxd-inference 0.9.1 (Neuron SDK 2.26.1) has Neuron runtime 2.28.23, which does not start on nodes with driver "
        "2.29 or newer, such as those of EKS's current AMI"
    )
    assert finding.hint == (
        "Choose release v20260625 (driver 2.28.0.0) of EKS's AMI for Neuron for the nodes. "
        "Then write `kubernetes: {neuron_driver: 2.28.0.0}`."
    )


def test_following_the_hint_leaves_nothing_to_say(tmp_path: Path) -> None:
    (finding,) = of_driver(tmp_path)
    found = re.search(r"neuron_driver: [\d.]+", finding.hint)
    assert found
    assert of_driver(tmp_path, ("artifacts_bucket: mine", f"artifacts_bucket: mine, {found[0].rstrip('.')}")) == []


@pytest.mark.parametrize("driver", ["2.31.7.0", "2.29.0.0", "2.21.37.0"])
def test_a_driver_of_the_nodes_that_does_not_fit_is_an_error(tmp_path: Path, driver: str) -> None:
    (finding,) = of_driver(tmp_path, ("artifacts_bucket: mine", f"artifacts_bucket: mine, neuron_driver: {driver}"))
    assert (finding.severity, finding.path) == ("error", "platform.kubernetes.neuron_driver")
    assert finding.message.endswith(f"which needs driver 2.22 or newer, and older than 2.29, not {driver}")
    assert "v20260625" in finding.hint


def test_a_driver_of_the_nodes_that_fits_is_nothing_to_say(tmp_path: Path) -> None:
    assert of_driver(tmp_path, ("artifacts_bucket: mine", "artifacts_bucket: mine, neuron_driver: 2.28.0.0")) == []


def test_images_of_today_start_on_nodes_of_today(tmp_path: Path) -> None:
    text = CLUSTER.replace("draft-model", "eagle3").replace("max_num_seqs: 4", "max_num_seqs: 2")
    assert of_driver(tmp_path, text=text) == []


def test_the_driver_that_a_user_saw_on_sagemaker_is_mentioned(tmp_path: Path) -> None:
    (finding,) = of_driver(tmp_path, text=EAGLE3)
    assert "documents for its hosts is 2.19; a user saw 2.27.4 on ml.trn1.32xlarge" in finding.message


@pytest.mark.parametrize(("text", "is_said"), [(DRAFT_MODEL, True), (EAGLE3, True), (DFLASH, False)])
def test_greedy_sampling_is_said_whatever_the_lock_knows(tmp_path: Path, text: str, is_said: bool) -> None:
    found = [finding for finding in all_findings(tmp_path, text) if finding.code == "neuron.greedy-only"]
    assert [finding.severity for finding in found] == ["info"] * is_said
    assert all("whatever temperature a request has" in finding.message for finding in found)


@pytest.mark.parametrize("name", ["qwen3-32b/draft-model-trn2-eks", "gpt-oss-120b/eagle3-trn2"])
def test_shipped_recipes_say_that_they_sample_greedily(name: str) -> None:
    assert "neuron.greedy-only" in {finding.code for finding in check(name).findings}


def test_the_dra_driver_is_for_the_type_that_it_is_documented_for(tmp_path: Path) -> None:
    three = ("trn2.48xlarge", "trn2.3xlarge")
    dra = ("artifacts_bucket: mine", "artifacts_bucket: mine, neuron_devices: dra")
    assert "neuron.dra" not in {finding.code for finding in findings(tmp_path, CLUSTER, three)}
    assert "neuron.dra" not in {finding.code for finding in findings(tmp_path, CLUSTER, dra)}
    (finding,) = [item for item in findings(tmp_path, CLUSTER, three, dra) if item.code == "neuron.dra"]
    assert (finding.severity, finding.hint) == ("warning", "Write `neuron_devices: device-plugin`.")


@pytest.mark.parametrize(
    ("instance_type", "size", "hint"),
    [
        ("ml.inf2.24xlarge", 9, "Set it to 8, or to 12."),
        ("ml.trn2.48xlarge", 6, "Set it to 4, or to 8."),
        ("ml.trn1.2xlarge", 3, "The product must be 1 to 2."),
    ],
)
def test_sizes_that_are_advised_fit_the_type(tmp_path: Path, instance_type: str, size: int, hint: str) -> None:
    heads = config(num_attention_heads=size, num_key_value_heads=size, head_dim=1)
    edits = (tensor_parallel(size), on(instance_type))
    found = {item.code: item for item in findings(tmp_path, DRAFT_MODEL, *edits, target=heads)}
    assert found["neuron.tensor-parallel"].hint == hint


def test_heads_are_advised_no_more_cores_than_there_are(tmp_path: Path) -> None:
    heads = config(num_attention_heads=32, num_key_value_heads=8, head_dim=1)
    edits = (tensor_parallel(12), on("ml.inf2.24xlarge"))
    found = {item.code: item for item in findings(tmp_path, DRAFT_MODEL, *edits, target=heads)}
    assert found["neuron.heads"].hint == "Use one of 1, 2, 4, 8."


def test_the_driver_of_trn1_that_a_user_saw_is_mentioned_where_it_fits(tmp_path: Path) -> None:
    (finding,) = of_driver(tmp_path, on("ml.trn1.32xlarge"), text=DRAFT_MODEL)
    assert finding.severity == "info"
    assert "a user saw Neuron driver 2.27.4 on ml.trn1.32xlarge" in finding.message
    assert finding.message.endswith("works with it")
