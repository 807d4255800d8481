"""The catalogue's files are what their generators make of the stored documents and of what is kept by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from toolkit.catalog.lookup import FOLDER
from tools.catalogue.__main__ import DOCUMENTS, write
from tools.catalogue.documents import Documents, documents_in
from tools.catalogue.generators import BY_HAND, GENERATORS
from tools.catalogue.listings import as_listing, with_version

FROM_VLLM = [name for name in GENERATORS if name.startswith("engines/vllm/")]
FROM_DOCUMENTS = [name for name in GENERATORS if name not in FROM_VLLM]


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    """A copy of the stored documents."""
    return documents_in(shutil.copytree(DOCUMENTS, tmp_path / "documents"))


def made(name: str, documents: Documents) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GENERATORS[name](documents))
    return found


@pytest.mark.parametrize("name", FROM_DOCUMENTS)
def test_the_stored_documents_make_the_shipped_file_byte_for_byte(name: str) -> None:
    assert GENERATORS[name](documents_in(DOCUMENTS)) == (FOLDER / name).read_text(encoding="utf-8")


def test_every_file_has_a_generator_or_a_reason_for_none() -> None:
    shipped = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.json")}
    assert {*GENERATORS, *BY_HAND} == shipped
    assert not {*GENERATORS} & {*BY_HAND}


def test_one_command_writes_a_file_and_shows_what_changed(tmp_path: Path, documents: Documents) -> None:
    shutil.copy(FOLDER / "registries.json", tmp_path)
    for file in (documents.folder / "sagemaker-core" / "image_uri_config").iterdir():
        file.write_text(file.read_text().replace("me-west-1", "me-north-9"))

    diff = write(["registries.json"], documents, tmp_path)

    changed = [line for line in diff.splitlines() if line[:1] in "+-" and line[1:2] == " "]
    assert sorted(changed) == ['+    "me-north-9": "124382933778",', '-    "me-west-1": "124382933778",']
    assert write(["registries.json"], documents, tmp_path) == ""


def test_a_new_image_of_aws_comes_with_what_is_known_of_its_day(documents: Documents) -> None:
    folder = documents.folder / "deep-learning-containers" / "docs" / "src" / "data" / "vllm"
    text = (folder / "0.31.0-gpu-sagemaker.yml").read_text()
    (folder / "0.34.0-gpu-sagemaker.yml").write_text(text.replace("0.31", "0.34"))

    new = next(image for image in made("images.json", documents)["images"] if image["version"] == "0.34.0")

    assert new["tag"] == "0.34.0-gpu-py312-cu130-ubuntu24.04-sagemaker"
    assert (new["entrypoint"], new["supervisor_quoting"], new["driver"]) == ("python", "fixed", "580")
    assert new["date"] == documents.date


def test_a_new_sdk_and_a_new_image_for_trainium_come_from_neurons_repository(documents: Documents) -> None:
    readme = documents.folder / "aws-neuron" / "README.md"
    row = readme.read_text().splitlines()[0]
    assert "0.24.0.1.1.0" in row
    patched = row.replace("2.32.0", "2.32.1")
    new = (
        row.replace("0.24.0", "0.35.0").replace("1.1.0", "1.3.0").replace("2.32.0", "2.34.0").replace("py313", "py314")
    )
    readme.write_text("\n".join([new, patched, readme.read_text()]))
    (documents.folder / "aws-neuron/vllm/inference/0.35.0.1.3.0").mkdir()
    (documents.folder / "aws-neuron/vllm/inference/0.35.0.1.3.0/Dockerfile.neuronx").write_text(
        "ARG PYTHON=python3.14\nARG NEURONX_RUNTIME_LIB_VERSION=2.36.4.0-abc\n"
    )

    generations = {item["version"]: item for item in made("engines/neuron.json", documents)["generations"]}
    images = {item["version"]: item for item in made("images.json", documents)["images"] if "neuron" in item["engine"]}

    assert generations["0.24.0.1.1.0"]["sdk"] == "2.32.1"
    assert generations["0.24.0.1.1.0"]["methods"]
    newest = generations["0.35.0.1.3.0"]
    assert (newest["engine"], newest["sdk"], newest["runtime"]) == ("vllm-neuron", "2.34.0", "2.36.4")
    assert (newest["families"], newest["drivers"]) == (["trn2", "trn3"], {"trn2": "2.27", "trn3": "2.27"})
    assert (newest["methods"], newest["note"]) == ({}, "new; its drafting methods were not looked at yet")
    assert images["0.35.0.1.3.0"]["tag"] == "0.35.0.1.3.0-neuronx-py314-sdk2.34.0-ubuntu24.04"


def test_which_drivers_work_is_read_in_neurons_release_notes(documents: Documents) -> None:
    notes = documents.folder / "aws-neuron" / "runtime.rst"
    notes.write_text(
        "* Neuron Driver 2.31 requires Neuron Runtime Library 2.36 or later.\n"
        "* Neuron Runtime Library 2.35 is not backward-compatible with Neuron Driver 2.28 or earlier.\n"
        + notes.read_text()
    )

    written = made("engines/neuron.json", documents)

    assert written["runtime_of_driver"] == {"2.31": "2.36", "2.29": "2.33"}
    drivers = {item["sdk"]: item["drivers"] for item in written["generations"]}
    assert (drivers["2.33.0"]["trn2"], drivers["2.32.0"]["trn2"], drivers["2.28.0"]) == (
        "2.29",
        "2.27",
        {"trn2": "2.22"},
    )


def test_the_last_release_of_an_ami_with_a_driver_is_read_in_its_changelog(documents: Documents) -> None:
    changelog = documents.folder / "amazon-eks-ami" / "CHANGELOG.md"
    newer = '# AMI Release v20261120\n      <td colspan="1">2.31.1.0-dkms</td>\n# AMI Release v20261101\n'
    changelog.write_text(f'{newer}      <td colspan="1">2.29.0.0-dkms</td>\n{changelog.read_text()}')

    releases = made("engines/neuron.json", documents)["eks_ami_releases"]

    assert [(item["release"], item["driver"]) for item in releases[:3]] == [
        ("v20261120", "2.31.1.0"),
        ("v20261101", "2.29.0.0"),
        ("v20260625", "2.28.0.0"),
    ]


def test_a_price_list_takes_the_place_of_prices_at_second_hand_in_its_region_only(documents: Documents) -> None:
    for service, usage, operation in (
        ("AmazonSageMaker", "EUC1-Host:ml.g6e.xlarge", "RunInstance"),
        ("AmazonEC2", "EUC1-BoxUsage:g6e.xlarge", "RunInstances"),
    ):
        file = documents.folder / "pricing" / service / "eu-central-1.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(price_list(usage, operation, "3.2642")))

    instances = {item["name"]: item for item in made("instances.json", documents)["instances"]}

    prices = instances["ml.g6e.xlarge"]["prices"]
    assert [(price["region"], price["usd_per_hour"]) for price in prices] == [
        ("us-west-2", 2.61),
        ("eu-central-1", 3.2642),
    ]
    ec2 = instances["ml.g6e.xlarge"]["ec2_prices"]
    assert [(price["region"], price["usd_per_hour"]) for price in ec2] == [
        ("us-east-1", 1.861),
        ("eu-central-1", 3.2642),
    ]
    assert prices[1]["quality"] == "good"
    assert prices[1]["source"].endswith("/AmazonSageMaker/current/eu-central-1/index.json")


def price_list(usage: str, operation: str, usd: str) -> dict[str, Any]:
    """In the form of AWS's price list; the figure is made up."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": usd}}
    return {
        "publicationDate": "2026-11-19T00:00:00Z",
        "products": {"A": {"attributes": {"usagetype": usage, "operation": operation}}},
        "terms": {"OnDemand": {"A": {"A.B": {"priceDimensions": {"C": dimension}}}}},
    }


def test_the_hub_gives_a_head_its_commit(documents: Documents) -> None:
    repo = "amazon/GPT-OSS-20B-P-EAGLE"
    file = documents.folder / "hub" / f"{repo}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"id": repo, "sha": "abc", "lastModified": "2026-05-01", "gated": "auto"}))
    file.with_name("GPT-OSS-20B-P-EAGLE.config.json").write_text(json.dumps({"max_position_embeddings": 131072}))

    head = next(head for head in made("heads.json", documents)["heads"] if head["repo"] == repo)

    assert (head["revision"], head["gated"], head["positions"], head["layers"]) == ("abc", True, 131072, 4)


@pytest.mark.parametrize("name", ["flags.json", "models.json"])
def test_a_listing_is_its_versions_put_together(name: str) -> None:
    """So that a version may be read again, or one after another, with the same result."""
    shipped = json.loads((FOLDER / "engines" / "vllm" / name).read_text())
    kinds = [kind for kind, value in shipped.items() if isinstance(value, dict)]
    again = {**shipped, "versions": [], **{kind: {} for kind in kinds}}
    for version in shipped["versions"]:
        again = with_version(again, version, {kind: having(shipped[kind], version, shipped) for kind in kinds})
    assert as_listing(again) == (FOLDER / "engines" / "vllm" / name).read_text()


def having(names: dict[str, list[str | None]], version: str, shipped: dict[str, Any]) -> list[str]:
    order = shipped["versions"].index
    return [
        name
        for name, (since, until) in names.items()
        if order(since) <= order(version) and (until is None or order(version) < order(until))
    ]


def test_a_name_that_went_and_came_again_is_refused() -> None:
    shipped = {"versions": ["0.1.0", "0.2.0"], "flags": {"a": ["0.1.0", "0.2.0"]}}
    with pytest.raises(ValueError, match=r"in 0.1.0 and 0.3.0, but not in 0.2.0"):
        with_version(shipped, "0.3.0", {"flags": ["a"]})
