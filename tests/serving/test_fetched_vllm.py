"""A version of vLLM that is not installed is fetched, and asked: its Python code alone.

The index is a folder. Its wheel is made of the vLLM that is installed, under the version of a recipe for SageMaker.
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from test_asked_vllm import write

from toolkit.api.checking import check
from toolkit.checks.run import Report
from toolkit.engines.vllm import fetched

pytestmark = pytest.mark.serving

VERSION = "0.31.0"
TYPE = "ml.g6e.2xlarge"
SAYS, SAID = "Error: --sse-keep-alive-interval must be", "0.31.0 wants --sse-keep-alive-interval to be"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which alone pip looks."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def add_wheel(index: Path) -> None:
    spec = find_spec("vllm")
    assert spec
    assert spec.origin
    package, about = Path(spec.origin).parent, f"vllm-{VERSION}.dist-info"
    with zipfile.ZipFile(index / f"vllm-{VERSION}-cp38-abi3-manylinux_2_28_x86_64.whl", "w") as wheel:
        for path in package.rglob("*"):
            if path.suffix in {".py", ".json", ".jinja"}:
                text = path.read_text(encoding="utf-8").replace(SAYS, SAID)
                wheel.writestr(f"vllm/{path.relative_to(package)}", text)
        wheel.writestr("vllm/_C.abi3.so", b"compiled")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp38-abi3-manylinux_2_28_x86_64\n"
        )
        wheel.writestr(f"{about}/RECORD", "")


def recipe(root: Path, **args: object) -> Path:
    path = write(root, {name.replace("_", "-"): value for name, value in args.items()}, TYPE)
    path.write_text(path.read_text().replace("0.32.0", VERSION))
    return path


def why_not(report: Report) -> str:
    assert report.engine
    return report.engine.why_not


def test_what_is_fetched_is_asked_and_kept(tmp_path: Path, index: Path) -> None:
    assert why_not(check(recipe(tmp_path), ask=True)).endswith(" is installed here")
    add_wheel(index)
    refused = check(recipe(tmp_path, sse_keep_alive_interval=-1), ask="deep")
    (finding,) = [one for one in refused.findings if one.code == "engine.refused"]
    assert finding.path == "engine.args.sse-keep-alive-interval"
    assert finding.message.startswith(f"vLLM {VERSION} refuses this: {SAID}")
    kept = fetched.folder(VERSION)
    assert sorted(path.name for path in kept.parent.iterdir()) == [kept.name]
    assert not list(kept.rglob("*.so"))

    next(index.iterdir()).unlink()
    assert why_not(check(recipe(tmp_path, seed=5), ask=True)) == ""


def test_what_cannot_be_fetched_is_said_with_the_words_of_pip_and_leaves_nothing(tmp_path: Path, index: Path) -> None:
    report = check(recipe(tmp_path), ask="deep")
    assert f"No matching distribution found for vllm=={VERSION}" in why_not(report)
    (finding,) = [one for one in report.findings if one.code == "engine.not-asked"]
    assert finding.severity == "info"
    assert list(fetched.folder(VERSION).parent.iterdir()) == []
