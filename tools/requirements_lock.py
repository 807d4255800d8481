"""Write the hashes of every pinned package: `python -m tools.requirements_lock` after a change of a version.

What is pinned stands in requirements.lock itself: one `name==version` a line, with hashes or, where it is new, without.
The hashes are of all files that the index has of that version, so that the lock installs on every machine and Python.
Nothing is resolved: the lock is complete. torch's CPU build is on another index; requirements-torch.lock is written by
hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"

_PIN = re.compile(r"[A-Za-z0-9][\w.-]*==[^\s\\]+")


def main() -> None:
    """Rewrite the lock: its comment, then its pins with their hashes."""
    LOCK.write_text(with_hashes(LOCK.read_text(encoding="utf-8")), encoding="utf-8")


def with_hashes(text: str) -> str:
    """A lock's text with the hashes that the index has now. Raises CalledProcessError where it does not know a pin."""
    comment = [line for line in text.splitlines(keepends=True) if line.startswith("#")]
    done = subprocess.run(_command(), input="\n".join(pins(text)), stdout=subprocess.PIPE, text=True, check=True)
    return "".join(comment) + done.stdout


def pins(text: str) -> list[str]:
    """The pinned versions in a lock's text."""
    return [found[0] for line in text.splitlines() if (found := _PIN.match(line))]


def _command() -> Sequence[str]:
    # Neither a local configuration nor the index's address gets into the lock.
    options = ["--no-config", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    return [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        *options,
        "--no-deps",
        "--universal",
        "--generate-hashes",
        "-",
    ]


if __name__ == "__main__":
    main()
