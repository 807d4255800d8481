"""`toolkit explain`: exit code 0 when a cause is named, 1 when not, 2 for what cannot be read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from toolkit.cli.main import run

DISK = "OSError: [Errno 28] No space left on device"


class Stdin:
    """Stdin with bytes that are no UTF-8."""

    buffer = io.BytesIO(b"\xff\xfe\n" + DISK.encode())


def test_a_named_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "container.log"
    path.write_text(f"loading\n{DISK}\n")
    assert run(["explain", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"disk-full: {DISK}\n  The disk is full")


def test_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "container.log"
    path.write_text(f"loading\n{DISK}\n")
    assert run(["explain", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {**document, "hint": ""} == {"cause": "disk-full", "message": DISK, "evidence": [DISK], "hint": ""}


def test_a_reason_alone(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert run(["explain", "--reason", reason, "--platform", "kubernetes"]) == 0
    assert capsys.readouterr().out.startswith("gpu-devices: ")


def test_stdin_whatever_bytes_it_has(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", Stdin())
    assert run(["explain", "-"]) == 0
    assert capsys.readouterr().out.startswith("disk-full: ")


@pytest.mark.parametrize("first", ["starting", "{", '{"message": "starting"}'])
def test_a_log_that_is_larger_than_any_document(first: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cause stands on its second line, behind which are 64 MB that end in the middle of a line."""
    path = tmp_path / "container.log"
    with path.open("wb") as log:
        log.write(f"{first}\n{DISK}\n".encode())
        log.truncate(64 * 1024**2 + 1)
    assert run(["explain", str(path)]) == 0
    assert capsys.readouterr().out.startswith("disk-full: ")


def test_what_is_not_known_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "container.log"
    path.write_text("KeyError: 'layers.7'\n")
    assert run(["explain", str(path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["cause"], document["evidence"]) == (None, ["KeyError: 'layers.7'"])


@pytest.mark.parametrize("arguments", [["nothing.log"], ["."], [], ["--reason", "x", "--platform", "moon"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", *arguments, "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"] == "UsageError"
    assert captured.err
