"""`python -m tools.tiny --out recipes/tiny/models`: train the tiny models, or write the prompts to measure with."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch

from tools.tiny.corpus import held_out_open_ended, held_out_structured
from tools.tiny.models import TINY, make_all

THREADS = 2


def write_prompts(folder: Path) -> None:
    """Write the prompts to measure with, one JSON object per line."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, held_out in (("structured", held_out_structured()), ("open-ended", held_out_open_ended())):
        lines = [json.dumps({"prompt": example.prompt}) for example in held_out]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.tiny", description="Make the tiny target and its drafters.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the models, recipes/tiny/models")
    parser.add_argument("--prompts", type=Path, help="also write the prompts to measure with to this folder")
    parser.add_argument(
        "--scratch", type=Path, default=Path("build/tiny"), help="folder of checkpoints and hidden states, 1.5 GB"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", THREADS)))
    if arguments.prompts:
        write_prompts(arguments.prompts)
    make_all(TINY, arguments.out, arguments.scratch)


if __name__ == "__main__":
    main()
