"""Every shape of a base on every registry: built, pushed, pulled by podman, run, and its packages imported.

`make test` takes two shapes on Debian's registry and one on each stand-in; `make test-exhaustive` takes all of them.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from base_shapes import PYTHON, RUNNABLE, push_shape
from build_tools import container, our_image, own_storage, tool
from faulty_transport import FaultyTransport
from pulp_registry import LOGIN, running_pulp
from refusing_registry import REFUSALS, refusing
from small_images import config_of

import toolkit
from toolkit.errors import BuildError
from toolkit.images.append import AppendBuilder
from toolkit.images.base import require_runnable
from toolkit.images.buildah import BuildahBuilder
from toolkit.images.copy import find_image
from toolkit.images.docker import DockerBuilder
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.platforms.local.taking import take

ALL = "TOOLKIT_EVERY_BASE" in os.environ
REGISTRIES = ("debian", *REFUSALS, "pulp")
SAMPLE = ("ngc", "no-passwd")
PAIRS = [
    pytest.param(shape, place, id=f"{shape}-{place}")
    for place in REGISTRIES
    for shape in RUNNABLE
    if ALL or (shape in SAMPLE if place == "debian" else shape == "nested" and place != "pulp")
]
TAKEN = "localhost/toolkit/shape:1"


@dataclass(frozen=True)
class Place:
    """A registry under test, how it is logged in to, and what it refused so far."""

    host: str
    login: tuple[str, str] | None = None
    refused: list[str] | None = None

    def connect(self, host: str) -> Registry:
        return Registry(host, lambda _: self.login)


@pytest.fixture(scope="module", autouse=True)
def _tools() -> Iterator[None]:
    """An engine, four wheels and nothing else that pip finds, and a cache of our own."""
    with TemporaryDirectory() as storage, own_storage(Path(storage)), TemporaryDirectory() as name:
        folder = Path(name)
        add_wheel(folder, "little")
        add_wheel(folder, "there")
        add_wheel(folder, "wants", asked="missing>=3")
        add_wheel(folder, "native", tag=f"cp{PYTHON.replace('.', '')}-abi3-manylinux2014_x86_64")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("PIP_NO_INDEX", "1")
            environment.setenv("PIP_FIND_LINKS", str(folder))
            environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))
            yield


@pytest.fixture(scope="module")
def pulp() -> Iterator[str]:
    with TemporaryDirectory() as folder, running_pulp(Path(folder)) as host:
        yield host


@pytest.fixture
def place(request: pytest.FixtureRequest, host: str, closing: ExitStack) -> Place:
    wanted = request.param
    if wanted == "pulp":
        there = Place(request.getfixturevalue("pulp"), LOGIN)
        tool("podman", "login", "--tls-verify=false", "--username", LOGIN[0], "--password", LOGIN[1], there.host)
        return there
    if wanted == "debian":
        return Place(host)
    address, refused = closing.enter_context(refusing(wanted, host))
    return Place(address, ("robot", "x"), refused)


def add_wheel(folder: Path, name: str, asked: str = "", tag: str = "py3-none-any") -> None:
    notes = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "")
        wheel.writestr(
            f"{notes}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + (f"Requires-Dist: {asked}\n" if asked else ""),
        )
        wheel.writestr(f"{notes}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{notes}/RECORD", "")


def answer(image: str, folder: Path, *options: str) -> dict[str, Any]:
    """What the stand-in for vLLM says in a container that is started, asked and ended."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with container(image, {}, [*options, "--volume", f"{model}:/opt/ml/model:ro"]) as running:
        running.wait_for_ping(60)
        said = dict(running.request("/invocations", {"prompt": "x", "import": "little"}).json())
        assert running.stop(20) == 0, running.logs()
    return said


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("shape", "place"), PAIRS, indirect=["place"])
def test_an_image_is_built_pushed_pulled_run_and_imports(
    shape: str, place: Place, name: str, tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.connect(place.host) as registry:
        base = push_shape(shape, registry, f"{name}-base")
    spec = our_image(base, wheels=("little==1.0",), python=PYTHON)
    require_runnable(spec, "append", place.connect, lines.append, pytest.fail)
    digest = AppendBuilder(place.connect).build(spec, f"{place.host}/{name}:1", lines.append)

    options = ["--user", "1000:1000"] if shape == "no-passwd" else []
    said = answer(f"{place.host}/{name}@{digest}", tmp_path, *options)
    if ALL:  # so that the next registry is asked for every layer
        tool("podman", "rmi", "--all", "--force")
    assert said["imported"] == "/opt/toolkit/site-packages/little/__init__.py"
    assert said["user"] == (1000 if options else 0)

    later = time.time() + 400 * 86_400
    with monkeypatch.context() as another_day:
        another_day.setattr(time, "time", lambda: later)
        another_day.setenv("TZ", "Asia/Tokyo")
        again = AppendBuilder(place.connect).build(spec, f"{place.host}/{name}:1", lines.append)
        elsewhere = AppendBuilder(place.connect).build(spec, f"{place.host}/{name}-again:1", lines.append)
    assert {again, elsewhere} == {digest}
    assert place.refused is None or place.refused


FOUND: dict[str, tuple[str, str, dict[str, Any]]] = {
    "base.layers": ("127 layers", "append", {}),
    "base.onbuild": ("onbuild", "append", {}),
    "base.zstd": ("zstd", "append", {}),
    "base.python": ("distroless", "append", {}),
    "base.user": ("no-passwd", "docker", {"dockerfile": "FROM base\nUSER server\n"}),
    "base.wheel": ("alpine", "append", {"wheels": ("native==1.0",)}),
    "base.requirement": ("aws", "append", {"wheels": ("wants==1.0",)}),
    "base.shadowed": ("packages", "append", {"wheels": ("there==1.0",)}),
    "base.unread": ("encrypted", "docker", {}),
}
"""What is found in a shape, by the builder and with what is put on it."""


def test_each_finding_on_a_base_is_met_by_a_shape() -> None:
    known = json.loads((Path(toolkit.__file__).parent / "checks" / "codes.json").read_text())
    assert FOUND.keys() == {code for code, about in known.items() if "preflight.py" in about["source"]}


@pytest.mark.parametrize("code", FOUND)
def test_what_a_shape_lacks_is_said_before_anything_is_sent(
    code: str, registry: Registry, name: str, lines: list[str]
) -> None:
    shape, builder, changes = FOUND[code]
    base, transport = push_shape(shape, registry, name), FaultyTransport()
    wanted = our_image(base, **{"python": PYTHON, **changes})
    try:
        require_runnable(wanted, builder, partial(Registry, transport=transport), print, lines.append)
    except BuildError as error:
        lines.append(error.message)
    assert transport.writes() == []
    assert [line for line in lines if line.endswith(f"[{code}]")], lines


@pytest.mark.parametrize("shape", ["zstd", "onbuild"])
def test_what_append_cannot_build_on_is_built_by_buildah_and_taken_here(
    shape: str, registry: Registry, other_host: str, name: str, tmp_path: Path, lines: list[str]
) -> None:
    """Of a zstd base the very layers: podman takes what SageMaker would not. buildah sends them packed anew, but to a
    registry that has them already."""
    spec = our_image(push_shape(shape, registry, f"{name}-base"), wheels=("little==1.0",), python=PYTHON)
    with pytest.raises(BuildError, match="base.zstd" if shape == "zstd" else "base.onbuild"):
        require_runnable(spec, "append", Registry, lines.append, lines.append)
    require_runnable(spec, "buildah", Registry, lines.append, pytest.fail)
    try:
        digest = BuildahBuilder().build(spec, f"{other_host}/{name}:1", lines.append)
        tool("buildah", "rmi", "--all", "--force")
        said = answer(f"{other_host}/{name}@{digest}", tmp_path)
        assert said["imported"] == "/opt/toolkit/site-packages/little/__init__.py"
        tool("podman", "rmi", "--all", "--force")
        take(spec, TAKEN, lines.append, pytest.fail)
        layers = json.loads(tool("podman", "image", "inspect", "--format", "{{json .RootFS.Layers}}", TAKEN))
        assert layers[: len(base_layers(registry, spec.base))] == base_layers(registry, spec.base)
        shell = ["podman", "run", "--rm", "--network", "none", "--entrypoint", "/usr/bin/sh", TAKEN, "-c"]
        if shape == "onbuild":
            assert said["environment"]["TRIGGERED"] == "yes"
            assert tool(*shell, "read line < /opt/triggered; echo $line") == "triggered"
        assert tool(*shell, "echo runs") == "runs"
    finally:
        tool("podman", "rmi", "--all", "--force")


def test_instructions_for_later_builds_are_followed_alike_and_not_handed_on(
    engine: None, registry: Registry, host: str, name: str, lines: list[str]
) -> None:
    spec, seen = our_image(push_shape("onbuild", registry, f"{name}-base")), []
    for builder in (BuildahBuilder(), DockerBuilder()):
        digest = builder.build(spec, f"{host}/{name}:{builder.name}", lines.append)
        settings = config_of(registry, name, digest)["config"]
        assert not settings.get("OnBuild")
        assert "TRIGGERED=yes" in settings["Env"]
        seen.append([settings.get(key) for key in ("Env", "Entrypoint", "Cmd", "User")])
    assert seen[0] == seen[1]


def base_layers(registry: Registry, base: str) -> list[str]:
    return list(find_image(registry, parse(base)).config["rootfs"]["diff_ids"])
