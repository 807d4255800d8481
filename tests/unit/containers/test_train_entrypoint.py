"""The entrypoint of a training job: signals, and what SageMaker is told."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import signal
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

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
    (tmp_path / "output").mkdir()
    ready = tmp_path / "ready"
    program = (
        "import pathlib, signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); "
        f"pathlib.Path({str(ready)!r}).touch(); time.sleep(60)"
    )

    def stop() -> None:
        while not ready.exists():
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    thread = threading.Thread(target=stop)
    thread.start()
    try:
        assert train.run([sys.executable, "-c", program], tmp_path) == 143
    finally:
        thread.join()
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
