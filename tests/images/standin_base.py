"""A base image with the layout of AWS's vLLM image, made in seconds from files of this machine.

It holds this machine's Python, where it is here, the libraries that Python and vLLM load, and a shell: about 30 MB
packed. `push_shell` leaves out Python: 1 MB for tests that only build.

/opt/venv is on PATH as in AWS's image; the vLLM in it is `standin_vllm.py`. A test that wants the real one mounts the
virtual environment that the tests run in over /opt/venv: same Python, same libraries, 2.3 GB that need not be pushed
and pulled.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from small_images import push_blob

from toolkit.images.manifest import CONFIG, LAYER, SCHEMA_2, Manifest, encode
from toolkit.images.registry import Registry

VENV = "/opt/venv"
ENVIRONMENT = {"PATH": f"{VENV}/bin:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}

_PROGRAMS = ("/usr/bin/sh", "/usr/bin/env", "/usr/bin/sleep", "/usr/bin/lscpu")  # vLLM asks lscpu for its cores
_VLLM_LOADS = ("libstdc++.so.6", "libgcc_s.so.1", "libnuma.so.1", "librt.so.1", "libdl.so.2", "libpthread.so.0")
_LEFT_OUT = {"test", "tests", "site-packages", "idlelib", "tkinter", "lib2to3", "turtledemo", "ensurepip"}
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
_SITE_PACKAGES = f"{VENV}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def push_standin(registry: Registry, repository: str) -> str:
    """Make it and push it; the reference, with tag and digest."""
    return _push(registry, repository, with_python=True)


def push_shell(registry: Registry, repository: str) -> str:
    """The same without Python."""
    return _push(registry, repository, with_python=False)


def _push(registry: Registry, repository: str, with_python: bool) -> str:
    packed, diff_id = _layer(with_python)
    layer = push_blob(registry, repository, LAYER, packed)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "Entrypoint": ["/usr/local/bin/sagemaker_entrypoint.sh"],
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "standin"}],
    }
    body = push_blob(registry, repository, CONFIG, encode(config))
    document = {"schemaVersion": 2, "mediaType": SCHEMA_2, "config": body.as_json(), "layers": [layer.as_json()]}
    manifest = Manifest(SCHEMA_2, encode(document))
    registry.put_manifest(repository, "sagemaker", manifest)
    return f"{registry.host}/{repository}:sagemaker@{manifest.digest}"


@cache
def _layer(with_python: bool) -> tuple[bytes, str]:
    """The layer, packed, and its digest unpacked."""
    content = tar_of_layer(with_python)
    return gzip.compress(content, 1, mtime=0), f"sha256:{hashlib.sha256(content).hexdigest()}"


@cache
def tar_of_layer(with_python: bool = True) -> bytes:
    """All that the base holds, not packed."""
    return _tar({**_files(_shell()), **(_files(_python_and_libraries()) if with_python else {})})


def _tar(files: dict[str, Path]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for folder in ("usr", *_LINKS.values(), "proc", "sys", "dev", "opt", "opt/ml", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for name, target in {**_LINKS, f"{VENV}/bin/python3".lstrip("/"): str(python())}.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
        for path, text in _texts().items():
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.size, entry.mode = len(text.encode()), 0o755 if path.endswith(".sh") else 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path, source in sorted(files.items()):
            archive.add(source.resolve(), path.lstrip("/"))
    return out.getvalue()


def _texts() -> dict[str, str]:
    vllm = f"{_SITE_PACKAGES}/vllm"
    return {
        "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "/usr/local/bin/sagemaker_entrypoint.sh": "#!/bin/sh\nexec python3 -m vllm.entrypoints.openai.api_server\n",
        f"{VENV}/pyvenv.cfg": f"home = {python().parent}\n",
        f"{_SITE_PACKAGES}/vllm-0.32.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n",
        f"{vllm}/__init__.py": "",
        f"{vllm}/entrypoints/openai/api_server.py": Path(__file__).with_name("standin_vllm.py").read_text(),
    }


def _files(files: list[Path]) -> dict[str, Path]:
    """Files and the libraries that they load, by their paths in the image."""
    binaries = [path for path in files if ".so" in path.name or path.parent.name == "bin"]
    return {_merged(path): path for path in (*files, *_loaded(binaries))}


def _shell() -> list[Path]:
    return list(map(Path, _PROGRAMS))


def _python_and_libraries() -> list[Path]:
    program = python()
    beside = next(path for path in _loaded([program]) if path.name == "libc.so.6").parent
    # a virtual environment may lead to any of its names
    programs = [program.with_name(name) for name in ("python3", program.name)]
    return [*programs, *_library(), *(beside / name for name in _VLLM_LOADS)]


def python() -> Path:
    """The program behind the virtual environment's links."""
    return Path(sys.executable).resolve()


def _library() -> Iterator[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in root.rglob("*"):
        parts = path.relative_to(root).parts
        is_wanted = not _LEFT_OUT & set(parts) and not parts[0].startswith("config-") and ".opt-" not in path.name
        if is_wanted and path.is_file() and not path.name.startswith("_tkinter"):
            yield path


def _loaded(files: list[Path]) -> set[Path]:
    said = subprocess.run(["ldd", *map(str, files)], capture_output=True, text=True, check=True).stdout
    return {Path(path) for path in re.findall(r"(/\S+) \(0x", said)}


def _merged(path: Path) -> str:
    """The path where /lib and its like are links into /usr, as in the image."""
    first, rest = path.parts[1], path.parts[2:]
    return "/" + "/".join((_LINKS.get(first, first), *rest))
