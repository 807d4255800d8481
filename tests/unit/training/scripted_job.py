"""Stands in for `python -m toolkit.training`: reads job.json, learns for some steps, and leaves the head it was given.

Its behaviour is in script.json beside job.json's folder: the head to leave, the steps, and what goes wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from toolkit.training.job import read_job
from toolkit.training.progress import TrainingProgress, report

folder = Path(sys.argv[1])
script = json.loads((folder.parent / "script.json").read_text())
job = read_job(folder)
checkpoint = Path(job.checkpoints) / "step"


def save(*_: object) -> None:
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write_text(str(step))
    sys.exit(143)


step = int(checkpoint.read_text()) if checkpoint.exists() else 0
signal.signal(signal.SIGTERM, save)
print(f"starts at step {step}", flush=True)
while step < script["steps"]:
    step += 1
    report(TrainingProgress("train", step, script["steps"], loss=2.0 / step, accuracy=(0.9, 0.5)), folder)
    if step == script.get("waits_at"):
        (folder / "waits").touch()
        time.sleep(60)
    if step == script.get("fails_at"):
        print("error: conversations.jsonl:3 has no turn of the assistant\n  Remove it.", file=sys.stderr)
        sys.exit(2)
    if step == script.get("dies_at"):
        os.kill(os.getpid(), signal.SIGKILL)
heads = [Path(job.head, one.method) for one in job.compare] or [Path(job.head)]
for head in heads:
    shutil.copytree(script["heads"][head.name] if job.compare else script["head"], head, copy_function=shutil.copyfile)
    measured = script["reports"][head.name] if job.compare else {"held_out_loss": 1.25, "accuracy": [0.9, 0.5]}
    (head / "report.json").write_text(json.dumps(measured))
