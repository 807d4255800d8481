"""Instance types and images that AWS does not offer in `platform.region`, found without an account."""

from __future__ import annotations

from pathlib import Path

from pairs import HUB_RECIPE, write_recipe

from toolkit.api.checking import check
from toolkit.findings import Finding


def found(root: Path, instance_type: str, region: str, version: str = "0.30.0") -> list[Finding]:
    text = HUB_RECIPE.replace("ml.g6.xlarge]", f"{instance_type}], region: {region}").replace("0.30.0", version)
    return [finding for finding in check(write_recipe(root, text)).findings if finding.code == "sagemaker.region"]


def test_a_type_that_is_not_in_the_region(tmp_path: Path) -> None:
    (finding,) = found(tmp_path, "ml.g7e.2xlarge", "eu-west-1")
    assert (finding.severity, finding.path) == ("warning", "platform.instance_types.0")
    assert "no price for ml.g7e.2xlarge endpoints in eu-west-1" in finding.message
    assert not found(tmp_path, "ml.g7e.2xlarge", "us-west-2")


def test_an_image_newer_than_those_listed_for_govcloud(tmp_path: Path) -> None:
    newer = [item for item in found(tmp_path, "ml.g5.xlarge", "us-gov-west-1") if item.path == "engine.version"]
    assert "lists images for us-gov-west-1 up to vllm 0.28.0, not 0.30.0" in newer[0].message
    listed = found(tmp_path, "ml.g5.xlarge", "us-gov-west-1", "0.28.0")
    assert not [item for item in listed if item.path == "engine.version"]


def test_a_region_without_images(tmp_path: Path) -> None:
    findings = [item for item in found(tmp_path, "ml.g6.xlarge", "us-isob-east-1") if item.path == "platform.region"]
    assert findings[0].severity == "error"
