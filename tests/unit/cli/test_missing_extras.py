"""A package of an extra that is not installed: one line, and the command that installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("kubernetes.client", "kubernetes", ("status", "--platform", "kubernetes")),
        ("nacl.secret", "sign", ("build", "tiny/p-eagle", "--sign", "cosign.key")),
        ("altair", "bench", ("bench", "http://127.0.0.1:9/v1", "--html", "a.html")),
        ("pyarrow.parquet", "bench", ("prove", "http://127.0.0.1:9/v1", "--prompts", "a.parquet")),
    ],
)
def test_the_command_is_said(package: str, extra: str, command: tuple[str, ...], tmp_path: Path) -> None:
    for name in ("config", "a.parquet"):
        (tmp_path / name).touch()
    missing = {package.partition(".")[0]: None, package: None}
    program = (
        f"import sys; sys.modules.update({missing}); from toolkit.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *command],
        cwd=tmp_path,
        env={**os.environ, "KUBECONFIG": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 2
    assert ended.stderr.endswith(f"pip install 'peagle-toolkit[{extra}]'\n")
