"""Packages for our layer. pip is the real one; it finds wheels in a folder only."""

from __future__ import annotations

import os
import posixpath
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import until

from toolkit.errors import BuildError
from toolkit.images.append import write_layer
from toolkit.images.spec import ContextFile
from toolkit.images.wheels import download_wheels, fetch_wheels, find_wheel, with_hash

SITE = "/opt/toolkit/site-packages"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip finds."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(
    index: Path, tag: str = "py3-none-any", files: Mapping[str, str] | None = None, name: str = "little"
) -> None:
    notes = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(index / f"{name}-1.0-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(f"{notes}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{notes}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        for path, text in {f"{notes}/RECORD": "", **(files or {})}.items():
            wheel.writestr(path, text)


def test_a_package_lies_there_as_pip_lays_it_in_a_folder(index: Path, tmp_path: Path) -> None:
    data = "little-1.0.data"
    add_wheel(
        index,
        files={
            "little/__init__.py": "",
            "little.pth": "import little\n",
            f"{data}/purelib/more.py": "",
            f"{data}/scripts/little": "#!python\nprint('script')\n",
            f"{data}/headers/little.h": "",
            f"{data}/data/share/little.txt": "",
            "little-1.0.dist-info/entry_points.txt": "[console_scripts]\nlittle-run = little:main.run\n",
        },
    )
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(tmp_path / "pip")]
    subprocess.run([*pip, "little==1.0"], check=True)
    notes = ("INSTALLER", "REQUESTED")
    theirs = {str(path.relative_to(tmp_path / "pip")) for path in (tmp_path / "pip").rglob("*") if path.is_file()}
    theirs = {path for path in theirs if not path.endswith((*notes, ".h"))} | {"include/little/little.h"}
    ours = {
        path.removeprefix(f"{SITE}/"): file for path, file in fetch_wheels(["little==1.0"], "3.12", tmp_path).items()
    }
    assert ours.keys() == theirs
    first = {name: read(ours[f"bin/{name}"]).splitlines()[0] for name in ("little", "little-run")}
    assert first == dict.fromkeys(first, "#!/usr/bin/env python3")
    assert ours["bin/little-run"].mode == 0o755
    record = {posixpath.normpath(line.split(",")[0]) for line in read(ours["little-1.0.dist-info/RECORD"]).splitlines()}
    assert record == ours.keys()


def read(file: ContextFile) -> str:
    assert file.source is not None
    return file.source.read_text()


def test_a_file_that_two_packages_hold_is_refused_where_it_differs(index: Path, tmp_path: Path) -> None:
    add_wheel(index, files={"shared/__init__.py": ""})
    add_wheel(index, files={"shared/__init__.py": ""}, name="other")
    assert f"{SITE}/shared/__init__.py" in fetch_wheels(["little==1.0", "other==1.0"], "3.12", tmp_path / "same")
    add_wheel(index, files={"shared/__init__.py": "x = 1\n"}, name="other")
    with pytest.raises(BuildError, match=f"two packages .* hold another {SITE}/shared/__init__.py"):
        fetch_wheels(["little==1.0", "other==1.0"], "3.12", tmp_path / "differs")


def test_an_entry_point_that_names_no_function_is_refused(index: Path, tmp_path: Path) -> None:
    add_wheel(index, files={"little-1.0.dist-info/entry_points.txt": "[console_scripts]\nlittle = little\n"})
    with pytest.raises(BuildError, match=r"little-1\.0-py3-none-any\.whl cannot be installed"):
        fetch_wheels(["little==1.0"], "3.12", tmp_path)


def test_fetched_twice_it_is_the_same_layer(index: Path, tmp_path: Path) -> None:
    add_wheel(index, files={"little/__init__.py": "x = 1\n"})
    one, two = (
        write_layer(fetch_wheels(["little==1.0"], "3.12", tmp_path / name), tmp_path / f"{name}.tar.gz")
        for name in "ab"
    )
    assert one.blob == two.blob


def test_wheels_for_the_images_python_and_system_are_taken_whatever_runs_here(index: Path, tmp_path: Path) -> None:
    tags = [f"cp312-cp312-manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 5)]
    for number, tag in enumerate([*tags, "cp39-abi3-manylinux2014_x86_64"]):
        add_wheel(index, tag, {f"little{number}/__init__.py": ""}, name=f"little{number}")
    found = fetch_wheels([f"little{number}==1.0" for number in range(5)], "3.12", tmp_path)
    assert {f"{SITE}/little{number}/__init__.py" for number in range(5)} <= found.keys()


def test_without_a_wheel_that_runs_there_the_package_is_named(index: Path, tmp_path: Path) -> None:
    for tag in (
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp312-cp312-manylinux_2_28_aarch64",
        "cp312-cp312-manylinux_2_35_x86_64",
    ):
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
    with pytest.raises(BuildError, match="outside of the target directory"):
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


def test_compiled_files_of_a_wheel_stay_out_without_a_word_and_headers_lie_below_the_name_that_pip_gives_them(
    index: Path, tmp_path: Path
) -> None:
    """numpy 2.3 has some that are compiled. The installer would warn of each."""
    add_wheel(index, files={"little/__init__.py": "", "little/__pycache__/__init__.cpython-311.pyc": "x"})
    add_wheel(index, name="little_one", files={"little_one-1.0.data/headers/a.h": ""})
    found = fetch_wheels(["little==1.0", "little_one==1.0"], "3.12", tmp_path)
    assert {f"{SITE}/little/__init__.py", f"{SITE}/include/little-one/a.h"} <= found.keys()
    assert not [path for path in found if "__pycache__" in path]
    record = found[f"{SITE}/little-1.0.dist-info/RECORD"].source
    assert record is not None
    assert "__pycache__" not in record.read_text()


def test_who_is_interrupted_leaves_no_pip_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_NO_INDEX")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.create_server(("127.0.0.1", 0)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{index.getsockname()[1]}/simple")

        main, number = threading.get_ident(), threading.get_native_id()

        def interrupt() -> None:
            """While it sleeps: a signal just before does not wake it."""
            with index.accept()[0]:
                until(lambda: " S " in Path(f"/proc/self/task/{number}/stat").read_text())
                signal.pthread_kill(main, signal.SIGINT)

        with ThreadPoolExecutor(1) as threads:
            interrupting = threads.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                download_wheels(["nothing==1"], "3.11", tmp_path)
            interrupting.result()
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in commands if str(tmp_path).encode() in command]


def test_an_index_that_does_not_answer_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(BuildError, match="the package index does not answer"):
        download_wheels(["nothing==1"], "3.11", tmp_path)
