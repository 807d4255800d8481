"""Whether an image could run, said before anything is sent: real registries, layers and pip."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from base_shapes import Files, tar_of
from faulty_transport import FaultyTransport
from small_images import OCI_LAYER, push_base, push_blob, spec

import toolkit
from toolkit.errors import BuildError
from toolkit.images.base import require_runnable
from toolkit.images.layer_files import read_layer
from toolkit.images.manifest import CONFIG, LAYER, SCHEMA_2, Blob, Manifest, encode
from toolkit.images.registry import Registry
from toolkit.images.spec import ContextFile, ImageSpec

SITE = "opt/venv/lib/python3.12/site-packages"
PATH = "PATH=/opt/venv/bin:/usr/bin"
DEBIAN: Files = {
    "usr/bin/env": b"",
    "usr/bin/python3.12": b"",
    "usr/bin/python3": "python3.12",
    "opt/venv/bin/python3": "/usr/bin/python3",
    "opt/venv/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.12.3\n",
    "usr/lib/x86_64-linux-gnu/libc.so.6": b"GNU C Library (Ubuntu GLIBC 2.28-0ubuntu3) stable release version 2.28.",
    "etc/passwd": b"root:x:0:0::/root:/bin/sh\nserver:x:7:7::/:/bin/sh\n",
}
ALPINE: Files = {
    "bin/busybox": b"",
    "usr/bin/env": "/bin/busybox",
    "usr/bin/python3": "python3.12",
    "usr/bin/python3.12": b"",
    "lib/ld-musl-x86_64.so.1": b"",
}

_LONG_HEADER = tarfile.TarInfo("b" * 2**21).tobuf(tarfile.PAX_FORMAT)


def package(name: str, version: str, *requires: str) -> Files:
    asked = "".join(f"Requires-Dist: {words}\n" for words in requires)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{asked}\nName: a description\n"
    return {f"{SITE}/{name}-{version}.dist-info/METADATA": text.encode()}


def push_layers(registry: Registry, repository: str, layers: Sequence[Files], env: str = PATH) -> str:
    """An image of these layers; a file is its content, or what the link points to. The reference, by digest."""
    blobs, names = [], []
    for files in layers:
        layer = tar_of(files)
        blobs.append(push_blob(registry, repository, LAYER, gzip.compress(layer, mtime=0)))
        names.append(f"sha256:{hashlib.sha256(layer).hexdigest()}")
    rootfs = {"type": "layers", "diff_ids": names}
    config = {"architecture": "amd64", "os": "linux", "config": {"Env": [env]}, "rootfs": rootfs}
    body = push_blob(registry, repository, CONFIG, encode(config))
    listed = {"schemaVersion": 2, "mediaType": SCHEMA_2, "config": body.as_json()}
    manifest = Manifest(SCHEMA_2, encode({**listed, "layers": [blob.as_json() for blob in blobs]}))
    registry.put_manifest(repository, "1", manifest)
    return f"{registry.host}/{repository}@{manifest.digest}"


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that pip finds, and a cache of our own."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def add_wheel(index: Path, *requires: str, tag: str = "py3-none-any", name: str = "little") -> None:
    notes = f"{name}-1.0.dist-info"
    asked = "".join(f"Requires-Dist: {words}\n" for words in requires)
    with zipfile.ZipFile(index / f"{name}-1.0-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{notes}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{asked}")
        wheel.writestr(f"{notes}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{notes}/RECORD", "")


def refusal(wanted: ImageSpec, builder: str = "append") -> BuildError:
    transport = FaultyTransport()
    with pytest.raises(BuildError) as caught:
        require_runnable(wanted, builder, partial(Registry, transport=transport), print, print)
    assert transport.writes() == []
    return caught.value


def said(wanted: ImageSpec, builder: str = "append") -> list[str]:
    """What is only said of an image that is let through."""
    lines: list[str] = []
    require_runnable(wanted, builder, Registry, print, lines.append)
    return lines


def test_a_package_that_neither_the_base_nor_a_wheel_has_is_named(registry: Registry, name: str, index: Path) -> None:
    base = push_layers(registry, name, [DEBIAN, package("there", "2.0")])
    add_wheel(index, "there>=1", "missing>=3", "never; sys_platform == 'win32'", "extra-only; extra == 'x'")
    error = refusal(spec(base, wheels=("little==1.0",)))
    assert error.message == f"little 1.0 asks for missing>=3, which neither {base} nor a wheel has [base.requirement]"
    assert error.hint == "Add missing==VERSION to `container.wheels`."
    add_wheel(index, name="missing")
    assert said(spec(base, wheels=("little==1.0", "missing==1.0"))) == [
        "warning: little 1.0 asks for missing>=3, and missing of the recipe is 1.0 [base.requirement]"
    ]


def test_what_the_users_own_instructions_may_install_is_only_warned_of(
    registry: Registry, name: str, index: Path
) -> None:
    base = push_layers(registry, name, [DEBIAN])
    add_wheel(index, "missing")
    (line,) = said(spec(base, wheels=("little==1.0",), dockerfile="FROM x\nRUN pip install missing\n"), "docker")
    assert line.startswith("warning: little 1.0 asks for missing")


def test_a_package_of_the_base_that_a_wheel_hides_is_said_with_who_minds(
    registry: Registry, name: str, index: Path
) -> None:
    base = push_layers(registry, name, [DEBIAN, package("Little", "0.9"), package("vllm", "0.32.0", "little<1.0,>0.1")])
    add_wheel(index)
    assert said(spec(base, wheels=("little==1.0",))) == [
        "warning: little 1.0 takes the place of the base's 0.9: vllm 0.32.0 asks for little<1.0,>0.1 [base.shadowed]"
    ]


def test_upper_layers_hide_what_lower_ones_hold(registry: Registry, name: str, index: Path) -> None:
    add_wheel(index, "there", "kept")
    metadata, others = package("there", "2.0"), package("kept", "1.0")
    folder = next(iter(metadata)).rpartition("/")[0]
    removed = {f"{SITE}/.wh.{folder.rpartition('/')[2]}": b""}
    base = push_layers(registry, name, [{**DEBIAN, **metadata, **others}, removed])
    assert "asks for there, which" in refusal(spec(base, wheels=("little==1.0",))).message
    base = push_layers(registry, name, [{**DEBIAN, **metadata}, {f"{SITE}/.wh..wh..opq": b"", **others}])
    assert "asks for there, which" in refusal(spec(base, wheels=("little==1.0",))).message
    base = push_layers(registry, name, [{**DEBIAN, **metadata, **others}, removed, metadata])
    assert said(spec(base, wheels=("little==1.0",))) == []


def test_packages_of_another_python_are_not_the_ones_that_count(registry: Registry, name: str, index: Path) -> None:
    add_wheel(index, "there")
    elsewhere = {"usr/lib/python3/dist-packages/there-1.0.dist-info/METADATA": b"Name: there\nVersion: 1.0\n"}
    base = push_layers(registry, name, [DEBIAN, elsewhere])
    assert "asks for there, which" in refusal(spec(base, wheels=("little==1.0",))).message
    base = push_layers(registry, name, [DEBIAN, elsewhere], env="PATH=/usr/bin")
    assert said(spec(base, wheels=("little==1.0",))) == []


def test_a_base_of_another_python_is_told_with_the_edit(registry: Registry, name: str, index: Path) -> None:
    add_wheel(index)
    error = refusal(spec(push_layers(registry, name, [DEBIAN]), wheels=("little==1.0",), python="3.11"))
    assert "has Python 3.12, and the wheels would be for 3.11 [base.python]" in error.message
    assert error.hint == "Write `container: {python: '3.12'}`."


@pytest.mark.parametrize("missing", ["usr/bin/python3", "usr/bin/env"])
def test_a_base_that_cannot_start_our_program_is_refused(registry: Registry, name: str, missing: str) -> None:
    base = push_layers(registry, name, [{path: text for path, text in DEBIAN.items() if path != missing}])
    assert f"has no {'python3 on its PATH' if 'python' in missing else '/usr/bin/env'}" in refusal(spec(base)).message


@pytest.mark.parametrize(
    ("layers", "tag", "found"),
    [
        (DEBIAN, "cp312-cp312-manylinux_2_34_x86_64", "glibc 2.28"),
        (DEBIAN, "cp312-cp312-manylinux_2_28_x86_64", None),
        (DEBIAN, "cp39-abi3-manylinux2014_x86_64", None),
        (ALPINE, "cp312-cp312-manylinux2014_x86_64", "musl"),
        (ALPINE, "py3-none-any", None),
    ],
)
def test_wheels_that_the_c_library_cannot_load_are_refused(
    registry: Registry, name: str, index: Path, layers: Files, tag: str, found: str | None
) -> None:
    add_wheel(index, tag=tag)
    wanted = spec(push_layers(registry, name, [layers]), wheels=("little==1.0",))
    if found is None:
        assert said(wanted) == []
    else:
        assert f"little-1.0-{tag}.whl does not run on" in (error := refusal(wanted)).message
        assert f"which has {found} [base.wheel]" in error.message


def test_a_user_whom_the_base_does_not_know_is_refused(registry: Registry, name: str) -> None:
    base = push_layers(registry, name, [DEBIAN])
    assert said(spec(base, dockerfile="FROM x\nUSER server:server\n"), "docker") == []
    error = refusal(spec(base, dockerfile="FROM x\nUSER nobody-here\n"), "docker")
    assert "has no user nobody-here, whom the Dockerfile names [base.user]" in error.message


def test_a_base_of_too_many_layers_is_refused_by_every_builder(registry: Registry, name: str) -> None:
    layers: list[Files] = [DEBIAN, *({f"etc/{number}": b""} for number in range(124))]
    base = push_layers(registry, name, layers)
    for builder in ("append", "buildah"):
        error = refusal(spec(base), builder)
        assert "has 125 layers, which makes 126 with ours: no container starts [base.layers]" in error.message
    assert said(spec(push_layers(registry, name, layers[:-1]))) == []
    two = {**spec(base).files, "/opt/weights": ContextFile(source=Path(__file__))}
    assert "makes 126" in refusal(spec(push_layers(registry, name, layers[:-1]), files=two)).message


def test_instructions_for_later_builds_are_for_builders_that_follow_them(
    registry: Registry, host: str, name: str
) -> None:
    push_base(registry, name, settings={"OnBuild": ["RUN make", "USER 7"], "Env": [PATH]})
    error = refusal(spec(f"{host}/{name}:1"))
    assert "has ONBUILD instructions, which builder `append` cannot follow: RUN make; USER 7" in error.message
    assert error.hint.startswith("Set `container.builder` to docker, buildah or codebuild")
    assert "ONBUILD" not in refusal(spec(f"{host}/{name}:1"), "docker").message  # which misses Python


def test_what_other_packing_holds_is_said_to_be_unknown(registry: Registry, host: str, name: str) -> None:
    push_base(registry, name, layer_type=f"{OCI_LAYER}+encrypted")
    (line,) = said(spec(f"{host}/{name}:1"), "docker")
    assert "is not known: it has layers that are packed in a way that is not read [base.unread]" in line


def test_a_base_that_only_an_engine_has_is_built_on_without_a_look(host: str, name: str) -> None:
    (line,) = said(spec(f"{host}/{name}:no-such"), "docker")
    assert "does not exist" in line
    assert "does not exist" in refusal(spec(f"{host}/{name}:no-such")).message


def test_each_layer_is_read_once_whatever_is_built_on_it(registry: Registry, name: str) -> None:
    transport = FaultyTransport()
    base = push_layers(registry, name, [DEBIAN, package("a", "1")])
    for _ in range(2):
        require_runnable(spec(base), "append", partial(Registry, transport=transport), print, print)
    blobs = [path for method, path in transport.requests if "/blobs/" in path]
    assert len(blobs) == len(set(blobs)) + 1  # only the configuration is read again


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (gzip.compress(b"\0" * 10240), "is not what its digest says"),
        (b"no gzip", "cannot be unpacked"),
        (gzip.compress(_LONG_HEADER), "a header of 20971\\d\\d bytes"),
    ],
    ids=["another", "not packed", "a header without end"],
)
def test_a_layer_that_cannot_be_read_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(BuildError, match=f"an-image: the layer sha256:0+ .*{why}"):
        read_layer("an-image", Blob(LAYER, f"sha256:{'0' * 64}", len(content)), iter([content]))


def test_check_repeats_what_a_build_found_without_a_network(
    registry: Registry, name: str, index: Path, tmp_path: Path
) -> None:
    base = push_layers(registry, name, [DEBIAN])
    add_wheel(index, "missing")
    path = tmp_path / "recipe.yaml"
    text = toolkit.load("tiny/p-eagle").path.read_text().replace("./", f"{toolkit.load('tiny/p-eagle').path.parent}/")
    run = "platform: {name: local, run: container}"
    path.write_text(
        text.replace("platform: {name: local}", f"{run}\ncontainer: {{base: '{base}', wheels: [little==1.0]}}")
    )
    codes = [finding.code for finding in toolkit.check(path).findings]
    assert "base.requirement" not in codes
    refusal(spec(base, wheels=("little==1.0",)))
    (finding,) = [finding for finding in toolkit.check(path).findings if finding.code.startswith("base.")]
    assert (finding.code, finding.path, finding.severity) == ("base.requirement", "container.wheels", "error")
    assert finding.line
