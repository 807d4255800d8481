"""Old facts are named; what the catalogue does not know is a warning where the recipe says so, else an error."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

import toolkit
from toolkit.api.checking import check
from toolkit.catalog import lookup
from toolkit.catalog.updates import Update, write
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.recipe.known import catalogue_dir

RECIPE = (catalogue_dir() / "gpt-oss-20b" / "p-eagle.yaml").read_text(encoding="utf-8")
LOCK = (catalogue_dir() / "gpt-oss-20b" / "p-eagle.lock.json").read_text(encoding="utf-8")
NEW_TYPE = "ml.p9.48xlarge"


def recipe(folder: Path, text: str, unlisted: str = "") -> Path:
    """The catalogue's recipe in another wording; `unlisted` is the key's value."""
    (folder / "p-eagle.lock.json").write_text(LOCK)
    path = folder / "p-eagle.yaml"
    path.write_text(f"{text}\nunlisted: {unlisted}\n" if unlisted else text)
    return path


def codes(path: Path, today: date = date(2026, 11, 22)) -> dict[str, Finding]:
    findings = check(path, today=today).findings
    return {f"{finding.severity} {finding.code}": finding for finding in findings if finding.code != "lock.partial"}


def with_type(name: str) -> str:
    return RECIPE.replace("instance_types: [ml.g7e.2xlarge, ", f"instance_types: [{name}, ")


def test_a_type_that_the_catalogue_does_not_know_is_an_error_that_says_the_key(tmp_path: Path) -> None:
    found = codes(recipe(tmp_path, with_type(NEW_TYPE)))
    assert f"`unlisted: [{NEW_TYPE}]`" in found["error sagemaker.instance-type"].hint


def test_with_the_key_it_is_a_warning_and_can_be_planned(tmp_path: Path) -> None:
    path = recipe(tmp_path, with_type(NEW_TYPE), f"[{NEW_TYPE}]")
    found = codes(path)
    assert not [name for name in found if name.startswith("error")]
    warning = found["warning catalogue.unlisted"]
    assert warning.message.startswith(f"the catalogue does not know {NEW_TYPE}: memory, ")
    assert warning.path == "unlisted.0"
    config = next(action for action in toolkit.plan(path).actions if action.kind == "EndpointConfig")
    assert NEW_TYPE in str(config.request)


def test_a_typing_error_beside_the_key_is_still_an_error(tmp_path: Path) -> None:
    found = codes(recipe(tmp_path, with_type("ml.p9.48xlarg"), f"[{NEW_TYPE}]"))
    assert "error sagemaker.instance-type" in found
    assert found["info catalogue.listed"].hint == "Remove it."


def test_a_version_without_an_image_is_an_error_that_says_the_key(tmp_path: Path) -> None:
    found = codes(recipe(tmp_path, RECIPE.replace("version: 0.29.0", "version: 0.99.0")))
    assert "`unlisted: [0.99.0]`" in found["error container.image"].hint


def test_a_version_under_the_key_gets_an_image_named_like_the_newest(tmp_path: Path) -> None:
    path = recipe(tmp_path, RECIPE.replace("version: 0.29.0", "version: 0.99.0"), "[0.99.0]")
    image = load(path).image
    assert image
    newest = lookup.images("sagemaker", "vllm")[0]
    assert image.tag == newest.tag.replace(newest.version, "0.99.0")
    assert (image.registry, image.entrypoint, image.ami) == (newest.registry, newest.entrypoint, newest.ami)
    assert image.tag in codes(path)["warning catalogue.unlisted"].message


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("vllm:server-sagemaker-cuda-v9.9", "763104351884.dkr.ecr.eu-west-1.amazonaws.com/vllm:server-sagemaker-cuda-v9.9"),  # noqa: E501
        ("r.example/team/vllm:mine", "r.example/team/vllm:mine"),
    ],
)  # fmt: skip
def test_an_image_under_the_key_is_run(tmp_path: Path, written: str, address: str) -> None:
    text = RECIPE.replace("{name: sagemaker, ", "{name: sagemaker, region: eu-west-1, ")
    path = recipe(tmp_path, text, f"['{written}']")
    assert written in codes(path)["warning catalogue.unlisted"].message
    model = next(action for action in toolkit.plan(path).actions if action.kind == "Model")
    assert address in str(model.request)


def test_a_node_of_an_unknown_type_needs_a_known_one_beside_it(tmp_path: Path) -> None:
    cluster = RECIPE.partition("platform:")[0] + "platform: {name: kubernetes, instance_types: [p9.48xlarge%s]}\n"
    assert "error kubernetes.instance-type" in codes(recipe(tmp_path, cluster % "", "[p9.48xlarge]"))
    both = codes(recipe(tmp_path, cluster % ", g6e.12xlarge", "[p9.48xlarge]"))
    assert "error kubernetes.instance-type" not in both
    assert "warning catalogue.unlisted" in both


def test_facts_over_90_days_old_are_named_once_in_check_and_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(tmp_path, RECIPE)
    assert "info catalogue.old" not in codes(path, date(2026, 11, 22))
    told = codes(path, date(2027, 3, 1))["info catalogue.old"].message
    assert "images.json (2026-11-22)" in told
    assert "the price of ml.g7e.2xlarge (2026-09-01)" in told

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1803859200")  # 2027-03-01
    notes = [note for note in toolkit.plan(path).notes if note.startswith("Catalogue: ")]
    assert notes == [f"Catalogue: {told}. To renew prices, heads and images: toolkit catalog update"]


@pytest.mark.parametrize(
    ("platform", "command"),
    [
        ("platform: {name: sagemaker, region: us-west-2, ", "toolkit catalog update --region us-west-2"),
        ("platform: {name: kubernetes, ", "toolkit catalog update --ec2"),
    ],
)
def test_the_way_on_reads_the_prices_of_this_recipe(tmp_path: Path, platform: str, command: str) -> None:
    text = RECIPE[: RECIPE.index("platform:")] + platform + "instance_types: [g6e.2xlarge]}\n"
    if "sagemaker" in platform:
        text = text.replace("g6e.", "ml.g6e.")
    found = codes(recipe(tmp_path, text), date(2027, 3, 1))["info catalogue.old"]
    assert "g6e.2xlarge (2026-09" in found.message
    assert found.hint == f"Run: {command}. What it does not renew comes with a newer toolkit."


def test_what_the_user_has_read_since_is_not_old(tmp_path: Path) -> None:
    path = recipe(tmp_path, RECIPE)
    price = lookup.Price(4.1, "us-east-1", "2027-02-27", "a test", "good")
    types = {"ml.g7e.2xlarge": price, "ml.p5.4xlarge": price}
    days = dict.fromkeys(("prices in us-east-1", "heads on the hub", "images of AWS"), date(2027, 2, 28))
    write(Update(read=days, prices={"us-east-1": types}))
    told = codes(path, date(2027, 3, 1))["info catalogue.old"].message
    assert "the price" not in told
    assert not [name for name in ("images.json", "heads.json", "instances.json") if name in told]
    assert "methods.json" in told


def test_weights_that_a_gpu_is_too_old_for_do_not_fit_whatever_memory_it_has(tmp_path: Path) -> None:
    """gpt-oss is stored in MXFP4, which vLLM refuses on a T4 (compute capability 7.5)."""
    path = recipe(tmp_path, RECIPE.replace("[ml.g7e.2xlarge, ml.p5.4xlarge]", "[ml.g4dn.12xlarge]"))
    found = codes(path)["error memory.does-not-fit"]
    assert "mxfp4 weights need a GPU of compute capability 8.0 or newer" in found.message
    assert "g4dn" not in found.hint
