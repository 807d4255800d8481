"""`toolkit train` on this machine with the real trainer, killed in the middle: called again, it goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from private_files import open_to_others

from tests.unit.training.heads import save_target
from tests.unit.training.job_process import kept_curve
from toolkit.cli.main import run
from toolkit.training import progress
from toolkit.training.__main__ import main
from toolkit.training.job import read_job

STEPS, KILLED_AT = 100, 20
FOLDERS = {"checkpoints": "checkpoints", "work": "work", "head": "head", "states_gb": None}
RECIPE = """\
name: killed
target: {{model: {target}}}
training:
  {{data: [./chats.jsonl], responses: keep, held_out: 0.2, layers: 1, depth: 3, max_length: 64, steps: {steps},
   batch_tokens: 100, learning_rate: 0.003, states_gb: 0.0003}}
speculation: {{method: p-eagle, model: ./head, num_speculative_tokens: 2}}
engine: {{version: 0.32.0, max_model_len: 256, max_num_seqs: 4, max_num_batched_tokens: 512}}
platform: {{name: local}}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its hidden states are on the disk in parts; test_train_job.py kills a training that has all of them there."""
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # sums in another order are other sums
    rows = [{"prompt": f"Count to {n}.", "response": "1 2 3 " * n} for n in range(4, 24)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "killed.yaml"
    path.write_text(RECIPE.format(target=save_target(tmp_path / "target"), steps=STEPS))
    return path


def curve(text: str) -> list[tuple[int, bool, float | None]]:
    found = map(progress.parse, text.splitlines())
    return [(line.done, line.held_out, line.loss) for line in found if line and line.stage == "train"]


def kill_in_the_middle(jobs: Path, ended: threading.Event) -> None:
    """SIGKILL for the process that trains, once it has done some steps; nothing where the training has ended."""
    while not ended.wait(0.005):
        for log in jobs.glob("*/log.txt"):
            if any(done >= KILLED_AT for done, _, _ in curve(log.read_text())):
                os.kill(int((log.parent / "pid").read_text()), signal.SIGKILL)
                return


def test_killed_in_the_middle_it_goes_on_and_ends_as_if_nothing_had_been(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "home" / "training"
    ended = threading.Event()
    killer = threading.Thread(target=kill_in_the_middle, args=(jobs, ended))
    killer.start()
    try:
        code = run(["train", str(recipe)])
    finally:
        ended.set()
    killer.join()
    assert code == 3
    assert "it was killed" in capsys.readouterr().err
    (job,) = (path.parent for path in jobs.glob("*/job.json"))
    assert not (tmp_path / "head").exists()

    assert run(["train", str(recipe)]) == 0

    first = curve((job / "log.txt").read_text())[0][0]
    assert 1 < first <= KILLED_AT + 20, "it goes on from a checkpoint"
    assert (tmp_path / "head" / "config.json").is_file()
    whole = tmp_path / "whole"
    read_job(job).model_copy(update=FOLDERS).write(whole)
    assert main(whole) == 0
    assert kept_curve(job) == kept_curve(whole)
    assert open_to_others(tmp_path / "home") == [], "nothing of the data and the head is for other users"
