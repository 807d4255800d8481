"""Which generation of AWS's Neuron images is taken for which method, on which hardware."""

from __future__ import annotations

import re

import pytest

from toolkit.catalog import lookup, trainium
from toolkit.engines.neuron import generations as neuron
from toolkit.recipe.schema import EngineSection

ENGINES = ("vllm-neuron", "nxd-inference")


def chosen(method: str, family: str, engine: str = neuron.ANY_ENGINE) -> str:
    found = neuron.newest(engine, method, family)
    return f"{found.engine} {found.version}" if found else "none"


@pytest.mark.parametrize(
    ("method", "family", "generation"),
    [
        ("eagle3", "trn2", "vllm-neuron 0.29.0.1.2.0"),
        ("eagle3", "trn3", "vllm-neuron 0.29.0.1.2.0"),
        ("dflash", "trn2", "vllm-neuron 0.29.0.1.2.0"),
        ("draft-model", "trn1", "nxd-inference 0.9.1"),
        ("draft-model", "inf2", "nxd-inference 0.9.1"),
        ("none", "trn2", "vllm-neuron 0.29.0.1.2.0"),
        ("none", "trn1", "nxd-inference 0.13.0"),
    ],
)
def test_the_newest_that_drafts_so_on_that_hardware_is_taken(method: str, family: str, generation: str) -> None:
    assert chosen(method, family) == generation


def test_draft_models_go_to_the_fork_since_nothing_newer_has_them() -> None:
    assert chosen("draft-model", "trn2") == "nxd-inference 0.9.1"
    assert chosen("draft-model", "trn2", engine="vllm-neuron") == "none"


def test_draft_models_are_not_for_trn3_which_the_fork_does_not_know() -> None:
    assert chosen("draft-model", "trn3") == "none"


@pytest.mark.parametrize("family", ["trn1", "trn1n", "inf2"])
def test_heads_are_not_for_hardware_before_trn2_which_vllm_neuron_does_not_know(family: str) -> None:
    assert (chosen("eagle3", family), chosen("dflash", family)) == ("none", "none")


@pytest.mark.parametrize("method", ["p-eagle", "pard"])
def test_drafting_in_parallel_is_not_for_neuron(method: str) -> None:
    assert chosen(method, "trn2") == "none"


def test_a_baseline_of_a_named_engine_is_of_that_engine() -> None:
    assert chosen("none", "trn2", engine="nxd-inference") == "nxd-inference 0.16.0"


def test_each_engine_has_its_newest_first() -> None:
    for engine in ENGINES:
        versions = [found.version for found in neuron.generations() if found.engine == engine]
        assert versions == sorted(versions, key=lookup.version_key, reverse=True)


def test_every_generation_has_an_image() -> None:
    images = [image for engine in ENGINES for image in lookup.images("upstream", engine)]
    tags = {(image.engine, image.version): image.tag for image in images}
    for found in neuron.generations():
        assert f"-sdk{found.sdk}-" in tags[found.engine, found.version]


def test_an_unknown_version_is_of_no_generation() -> None:
    engine = EngineSection(name="vllm-neuron", version="0.9.1")
    assert neuron.generation_of(engine) is None
    assert neuron.generation_of(engine.edit(name="nxd-inference")) is not None


@pytest.mark.parametrize("instance_type", ["ml.trn2.48xlarge", "trn2.3xlarge"])
def test_the_family_of_an_instance_type(instance_type: str) -> None:
    assert trainium.family(instance_type) == "trn2"


@pytest.mark.parametrize(
    ("driver", "lowest", "enough"),
    [("2.19", "2.22", False), ("2.22", "2.22", True), ("2.31.7", "2.27", True), ("2.9", "2.22", False)],
)
def test_drivers_are_compared_by_number(driver: str, lowest: str, enough: bool) -> None:
    assert lookup.older(driver, lowest) is not enough


def test_sagemakers_documented_driver_is_too_old_for_every_generation_on_trn2() -> None:
    drivers = [found.drivers["trn2"] for found in neuron.generations()]
    assert all(lookup.older(neuron.facts().sagemaker_driver, lowest) for lowest in drivers)


def test_every_generation_knows_its_runtime_and_an_ami_for_each_family() -> None:
    for found in neuron.generations():
        assert re.fullmatch(r"2\.\d+\.\d+", found.runtime)
        assert all(neuron.ami_release(found, family) for family in found.families)


@pytest.mark.parametrize(
    ("version", "too_new", "release"),
    [("0.9.1", "2.29", "v20260625"), ("0.13.0", "2.29", "v20260625"), ("0.16.0", None, "v20260714")],
)
def test_images_with_an_old_runtime_need_an_ami_with_an_older_driver(
    version: str, too_new: str | None, release: str
) -> None:
    (found,) = [item for item in neuron.generations("nxd-inference") if item.version == version]
    assert neuron.too_new_driver(found) == too_new
    ami = neuron.ami_release(found, "trn2")
    assert ami
    assert ami.release == release


@pytest.mark.parametrize(
    ("driver", "fits"),
    [("2.21.37.0", False), ("2.22.2.0", True), ("2.28.0.0", True), ("2.29.0.0", False), ("2.31.7.0", False)],
)
def test_the_study_s_image_starts_on_drivers_of_a_range(driver: str, fits: bool) -> None:
    study = neuron.newest(neuron.ANY_ENGINE, "draft-model", "trn2")
    assert study
    assert neuron.driver_fits(study, "trn2", driver) is fits
