"""The entrypoint of a training job: signals, and what SageMaker is told."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[3] / "containers" / "train" / "train"


@pytest.fixture(scope="module")
def train() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("train_entrypoint", str(PROGRAM))
    spec = importlib.util.spec_from_loader("train_entrypoint", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_failure_is_told_in_the_jobs_own_words(train: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "output").mkdir()
    program = (
        "import sys; print('noise'); print('error: chats.jsonl:3 has no turn'); print('  Remove it.'); sys.exit(2)"
    )
    assert train.run([sys.executable, "-c", program], tmp_path) == 2
    assert (tmp_path / "output" / "failure").read_text() == "chats.jsonl:3 has no turn\n  Remove it."


def test_what_a_signal_has_ended_has_the_exit_code_of_a_shell(train: ModuleType, tmp_path: Path) -> None:
    """As when memory runs out: that is no error in the job's own words."""
    (tmp_path / "output").mkdir()
    assert train.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], tmp_path) == 137
    assert not (tmp_path / "output" / "failure").exists()


def test_what_trains_imports_nothing_of_the_working_folder(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    monkeypatch.chdir(tmp_path)
    assert train.run([sys.executable, "-c", "import json"], tmp_path) == 0


def test_sigterm_reaches_what_trains(train: ModuleType, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = (
        "import pathlib, signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    )

    def stop() -> None:
        while not ready.exists():
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    assert train.run([sys.executable, "-c", program], tmp_path) == 143
    thread.join()


def test_sigterm_while_it_starts_reaches_it_too(
    train: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedAtStart(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # whoever takes it too late has lost it, and no test dies of it
    monkeypatch.setattr(subprocess, "Popen", StoppedAtStart)
    assert train.run([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path) == 128 + signal.SIGTERM
