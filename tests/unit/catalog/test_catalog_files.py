"""The data files: complete, dated, sourced, in order, and in AWS's own words."""

from __future__ import annotations

import json
import re
from typing import Any

import botocore.session
import pytest

from toolkit.catalog import lookup, methods
from toolkit.catalog.lookup import FOLDER, version_key
from toolkit.engines.vllm import facts

FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.json"))
DATED = [name for name in FILES if name != "platforms.json"]  # whose entries say their date in their source
ENTRIES = {"heads.json": "heads", "images.json": "images", "instances.json": "instances"}


def read(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return data


def sagemaker_enum(shape: str) -> set[str]:
    model = botocore.session.get_session().get_service_model("sagemaker")
    return set(model.shape_for(shape).enum)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", DATED)
def test_every_file_is_dated_and_sourced(name: str) -> None:
    data = read(name)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["date"])
    assert data.get("sources") or data.get("source")


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_files_that_are_refreshed_are_in_the_format_that_refresh_writes(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"


def test_instances_and_heads_are_sorted() -> None:
    names = [instance.name for instance in lookup.instances()]
    repos = [head.repo.lower() for head in lookup.heads()]
    assert names == sorted(set(names))
    assert repos == sorted(set(repos))


def test_instances_are_hostable_where_botocore_says_so() -> None:
    known = sagemaker_enum("ProductionVariantInstanceType")
    assert {i.name: i.hostable for i in lookup.instances()} == {i.name: i.name in known for i in lookup.instances()}


def test_every_accelerated_instance_type_of_today_is_there() -> None:
    """Families older than Volta and Inferentia2 are left out."""
    families = re.compile(r"ml\.(g4dn|g[5-9]e?|gr6|p[3-9][a-z]*|p6-b\d+|p6e-gb\d+|trn\d\w*|inf2)\.")
    wanted = {name for name in sagemaker_enum("ProductionVariantInstanceType") if families.match(name)}
    assert wanted <= {instance.name for instance in lookup.instances()}


@pytest.mark.parametrize("instance", lookup.instances(), ids=lambda instance: instance.name)
def test_an_instance_has_memory_for_its_accelerators_and_a_price_with_a_source(instance: lookup.Instance) -> None:
    accelerated = bool(instance.accelerator)
    neuron = instance.accelerator.startswith(("Trainium", "Inferentia"))
    assert accelerated == (instance.accelerator_count > 0) == (instance.memory_per_accelerator_mib > 0)
    assert bool(instance.compute_capability) == (accelerated and not neuron)
    assert (instance.neuron_cores > 0) == (instance.neuron_cores_logical > 0) == neuron
    assert bool(instance.interconnect) == (instance.accelerator_count > 1)
    assert instance.vcpus > 0
    assert instance.host_memory_gib > 0
    assert instance.architecture in ("x86_64", "arm64")
    for price in (*instance.prices, *instance.ec2_prices):
        assert price.usd_per_hour > 0
        assert re.fullmatch(r"\d{4}-\d\d(-\d\d)?", price.date)
        assert price.source.startswith(("https://", "github ", "AWS Price List"))
        assert price.quality


def test_a_type_without_a_price_says_why_and_where_to_look() -> None:
    for instance in lookup.instances():
        hosting = [instance.no_price] if instance.hostable and not instance.prices else []
        for why in (*hosting, *([] if instance.ec2_prices else [instance.no_ec2_price])):
            assert why, instance.name
            assert why.reason
            assert why.address.startswith("https://")


def test_every_image_is_dated_and_sourced_and_named_once() -> None:
    images = read("images.json")["images"]
    assert len({(image["registry"], image["repository"], image["tag"]) for image in images}) == len(images)
    for image in images:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", image["date"]), image["tag"]
        assert image["source"], image["tag"]
        assert image["entrypoint"] in ("python", "bash-loop", "own")
        assert image["supervisor_quoting"] in ("broken", "fixed", "unknown")
        assert version_key(image["version"])


def test_images_ask_for_an_ami_that_sagemaker_has() -> None:
    amis = sagemaker_enum("ProductionVariantInferenceAmiVersion")
    images = [image for image in read("images.json")["images"] if image["platform"] == "sagemaker"]
    assert {image["ami"] for image in images if "arm64" not in image["engine"]} <= amis


def test_every_fact_of_an_engine_names_its_source() -> None:
    data = read("engines/vllm.json")
    sourced = {name for name in data["sources"] if not name.startswith("methods.")}
    assert {*data["facts"], "metrics", "own_flags"} == sourced


@pytest.mark.parametrize("head", lookup.heads(), ids=lambda head: head.repo)
def test_a_head_drafts_by_a_method_of_the_engine_with_flags_that_it_takes(head: lookup.Head) -> None:
    method = methods.method(head.method).engines["vllm"]
    assert head.source
    assert head.context in ("", "short", "long")
    assert not head.min_engine or version_key(head.min_engine) >= version_key(method.since)
    assert head.card_k is None or head.trained_depth is None or head.card_k <= head.trained_depth
    assert [flag for flag in head.card_flags if not facts.flag_known("0.30.0", flag)] == []
    for measured in head.acceptance:
        assert 1 <= measured.acceptance_length <= measured.k + 1
        assert measured.date
        assert measured.source


@pytest.mark.parametrize(("name", "kinds"), [("flags", ["flags"]), ("models", ["targets", "drafters"])])
def test_versions_of_flags_and_models_are_in_order(name: str, kinds: list[str]) -> None:
    data = read(f"engines/vllm/{name}.json")
    assert data["versions"] == sorted(data["versions"], key=version_key)
    for kind in kinds:
        assert list(data[kind]) == sorted(data[kind])
        for since, until in data[kind].values():
            assert since in data["versions"]
            assert until is None or (until in data["versions"] and version_key(since) < version_key(until))


def test_what_takes_heads_is_also_a_known_target() -> None:
    data = read("engines/vllm/models.json")
    assert set(data["eagle3_targets"]) <= set(data["targets"])


def test_every_head_names_where_it_stands() -> None:
    """A page, a repository, a card or documentation that a reader can open."""
    address = re.compile(
        r"https?://|huggingface\.co/|github \S+/|vllm-project/|awsdocs|card|vLLM (tests|sources|blog)|AWS .*blog|post"
    )
    assert [head.repo for head in lookup.heads() if not address.search(head.source)] == []
