"""A package of an extra that is not installed: one line, and the command that installs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toolkit.cli.main import run


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("kubernetes.client", "kubernetes", ("status", "--platform", "kubernetes")),
        ("nacl.secret", "sign", ("build", "tiny/p-eagle", "--sign", "cosign.key")),
        ("altair", "bench", ("bench", "http://127.0.0.1:9/v1", "--html", "a.html")),
        ("pyarrow.parquet", "bench", ("prove", "http://127.0.0.1:9/v1", "--prompts", "a.parquet")),
    ],
)
def test_the_command_is_said(
    package: str,
    extra: str,
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("config", "a.parquet"):
        (tmp_path / name).touch()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    monkeypatch.setitem(sys.modules, package, None)
    for loaded in ("toolkit.measure.figures", "toolkit.images.signing"):  # by another test
        monkeypatch.delitem(sys.modules, loaded, raising=False)
    assert run([*command]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 2
    assert error.endswith(f"pip install 'peagle-toolkit[{extra}]'\n")
