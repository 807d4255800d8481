"""What `make` installs: every version is pinned with its hashes, and a bill of materials names it with its licence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.requirements_lock import (
    ELSEWHERE,
    LOCK,
    PACKAGES,
    PARTS,
    PYTHONS,
    cut,
    is_needed,
    part,
    pins,
)

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-torch.lock")
TOMLKIT = "tomlkit"
"""Hatchling asks for it, and uses it in commands of its own only."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
DECLARED = [PROJECT["dependencies"], *EXTRAS.values()]


@cache
def locked() -> dict[str, str]:
    """The pinned versions of both locks, by canonical name."""
    found = [pin.split("==") for name in LOCKS for pin in pins((ROOT / name).read_text())]
    return {canonicalize_name(name): version for name, version in found}


@pytest.mark.parametrize("name", [*LOCKS, *PARTS, *PACKAGES])
def test_every_pin_has_its_hashes_and_no_line_names_an_index(name: str) -> None:
    text = (ROOT / name).read_text()
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.M).strip())
    assert len(entries) == len(pins(text))
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.+!]+( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry


@pytest.mark.parametrize("requirement", [Requirement(line) for lines in DECLARED for line in lines], ids=str)
def test_what_the_project_asks_for_is_pinned(requirement: Requirement) -> None:
    assert requirement.specifier.contains(locked()[canonicalize_name(requirement.name)], prereleases=True)


@pytest.mark.parametrize("name", PARTS)
def test_what_the_demo_and_ci_install_is_cut_out_of_the_lock(name: str) -> None:
    assert (ROOT / name).read_text() == part(LOCK.read_text(), PARTS[name]), "make lock"


@pytest.mark.parametrize("name", PACKAGES)
def test_what_installs_the_others_and_what_a_job_takes_are_cut_out_of_the_lock(name: str) -> None:
    what, packages = PACKAGES[name]
    assert (ROOT / name).read_text() == cut(LOCK.read_text(), packages, what), "make lock"


@pytest.mark.parametrize("name", PARTS)
def test_nothing_is_missing_in_what_the_demo_and_ci_install(name: str) -> None:
    """Of each package there all that it asks for is there too, for the extras that were asked for."""
    found = {canonicalize_name(pin.split("==")[0]) for pin in pins((ROOT / name).read_text())}
    asked = [*PROJECT["dependencies"], *(line for extra in PARTS[name] for line in EXTRAS[extra])]
    needed = [item for package in found for item in map(Requirement, requires(package) or ()) if is_needed(item)]
    missing = {canonicalize_name(item.name) for item in [*map(Requirement, asked), *needed]} - found
    assert {name for name in missing if name in locked()} <= {ELSEWHERE}
    assert name == "requirements-demo.lock" or missing <= {TOMLKIT}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_package_has_a_wheel_for_each_python(python: str) -> None:
    """Of Linux with glibc 2.31 or newer. Asks the package index, of which CI has installed all of it."""
    options = ["--no-config", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", python]
    command = [sys.executable, "-m", "uv", "pip", "compile", *options, "--python-platform", "x86_64-manylinux_2_31"]
    done = subprocess.run([*command, str(LOCK), "-o", os.devnull], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_make_installs_nothing_without_its_hash_but_the_project_itself() -> None:
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^INSTALL := .* --no-deps --require-hashes$", text, re.M)
    without = [line for line in re.findall(r"pip install (.*)", text) if "--no-deps --require-hashes" not in line]
    assert without == ["-q --no-deps --no-build-isolation -e ."]


def test_each_of_makes_targets_has_commands() -> None:
    text = (ROOT / "Makefile").read_text()
    (declared,) = re.findall(r"^\.PHONY: (.+)$", text, re.M)
    for target in declared.split():
        assert re.search(rf"^{target}:.*\n\t\S", text, re.M), target


def test_a_pin_is_read_with_and_without_hashes() -> None:
    text = "# a comment\nsix==1.17.0 \\\n    --hash=sha256:abc\nboolean.py==5.0\ntorch==2.13.0+cpu\n"
    assert pins(text) == ["six==1.17.0", "boolean.py==5.0", "torch==2.13.0+cpu"]


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The bill of materials, as `make sbom` has it made."""
    out = tmp_path_factory.mktemp("sbom") / "sbom.json"
    options = ["--pyproject", "pyproject.toml", "--gather-license-texts", "--output-reproducible"]
    command = [sys.executable, "-m", "cyclonedx_py", "environment", *options, "--output-file", str(out), sys.executable]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return {canonicalize_name(item["name"]): item for item in json.loads(out.read_text())["components"]}


def test_the_bill_of_materials_names_what_is_installed_with_its_version(components: dict[str, Any]) -> None:
    versions = {name: item["version"] for name, item in components.items()}
    for line in PROJECT["dependencies"]:
        name = canonicalize_name(Requirement(line).name)
        assert versions[name] == locked()[name]


def test_every_part_of_it_has_a_licence(components: dict[str, Any]) -> None:
    """Of these the metadata says none: cedarpy, oss-harmony are Apache-2.0, promql-parser, setuptools are MIT."""
    silent = {name for name, item in components.items() if not item.get("licenses")}
    assert silent <= {"cedarpy", "oss-harmony", "promql-parser", "setuptools"}
