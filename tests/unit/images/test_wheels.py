"""Packages for our layer. pip is the real one; it finds wheels in a folder only."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolkit.errors import BuildError
from toolkit.images.layer import write_layer
from toolkit.images.wheels import fetch_wheels, find_wheel, with_hash

SITE = "/opt/toolkit/site-packages"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip finds."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(index: Path, tag: str = "py3-none-any", files: Mapping[str, str] | None = None) -> None:
    with zipfile.ZipFile(index / f"little-1.0-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("little-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: little\nVersion: 1.0\n")
        wheel.writestr("little-1.0.dist-info/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        for name, text in {"little-1.0.dist-info/RECORD": "", **(files or {})}.items():
            wheel.writestr(name, text)


def test_a_package_is_unpacked_without_commands_and_headers(index: Path, tmp_path: Path) -> None:
    data = "little-1.0.data"
    add_wheel(
        index,
        files={
            "little/__init__.py": "",
            f"{data}/purelib/more.py": "",
            f"{data}/scripts/little": "#!python",
            f"{data}/headers/little.h": "",
        },
    )
    assert sorted(fetch_wheels(["little==1.0"], "3.12", tmp_path)) == [
        f"{SITE}/little-1.0.dist-info/METADATA",
        f"{SITE}/little-1.0.dist-info/RECORD",
        f"{SITE}/little-1.0.dist-info/WHEEL",
        f"{SITE}/little/__init__.py",
        f"{SITE}/more.py",
    ]


def test_fetched_twice_it_is_the_same_layer(index: Path, tmp_path: Path) -> None:
    add_wheel(index, files={"little/__init__.py": "x = 1\n"})
    one, two = (
        write_layer(fetch_wheels(["little==1.0"], "3.12", tmp_path / name), tmp_path / f"{name}.tar.gz")
        for name in "ab"
    )
    assert one.blob == two.blob


@pytest.mark.parametrize(
    "tag", ["cp312-cp312-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_17_x86_64", "cp39-abi3-manylinux2014_x86_64"]
)
def test_wheels_for_the_images_python_and_system_are_taken_whatever_runs_here(
    index: Path, tmp_path: Path, tag: str
) -> None:
    add_wheel(index, tag)
    assert fetch_wheels(["little==1.0"], "3.12", tmp_path)


@pytest.mark.parametrize("tag", ["cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64"])
def test_without_a_wheel_that_runs_there_the_package_is_named(index: Path, tmp_path: Path, tag: str) -> None:
    add_wheel(index, tag)
    with pytest.raises(BuildError, match=r"wheels for Python 3\.12 on Linux x86-64: .* little==1\.0") as caught:
        fetch_wheels(["little==1.0"], "3.12", tmp_path)
    assert "docker, buildah or codebuild" in caught.value.hint


@pytest.mark.parametrize("pin", ["little", "little>=1", "little==1.0 --index-url=http://x", "--pre", "git+https://x"])
def test_what_is_no_exact_pin_never_reaches_pip(pin: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="is not an exact pin"):
        fetch_wheels([pin], "3.12", tmp_path)


def test_a_wheel_that_leads_out_of_its_folder_is_refused(index: Path, tmp_path: Path) -> None:
    add_wheel(index, files={"little-1.0.data/purelib/../../../../escaped": ""})
    with pytest.raises(BuildError, match="leads out of its folder"):
        fetch_wheels(["little==1.0"], "3.12", tmp_path)


def test_no_wheels_are_no_work(tmp_path: Path) -> None:
    assert fetch_wheels([], "3.12", tmp_path / "never made") == {}


def test_a_wheel_of_another_hash_than_the_pins_is_refused(index: Path, tmp_path: Path) -> None:
    """The index sends other bytes under the same name and version."""
    add_wheel(index)
    pin = with_hash("little==1.0", {"little==1.0": find_wheel("little==1.0", "3.12")})
    assert fetch_wheels([pin], "3.12", tmp_path / "before")
    add_wheel(index, files={"little/__init__.py": "import attack"})
    with pytest.raises(BuildError, match="not the one that the lock pins"):
        fetch_wheels([pin], "3.12", tmp_path / "after")


def test_a_small_wheel_that_unpacks_to_much_is_refused(index: Path, tmp_path: Path) -> None:
    add_wheel(index, files={"little/data": "0" * 10**6})
    with pytest.raises(BuildError, match="unpacks to more than 500000 bytes"):
        fetch_wheels(["little==1.0"], "3.12", tmp_path, most=500_000)
