"""Runs notebooks and keeps their outputs, without this machine's folders: `python -m tools.notebooks [NAME...]`.

Each has a home of its own and runs in a copy of its folder, so that nothing else of what it writes stays.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

from toolkit.platforms.local import daemon

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
SHOWN = "/home/me/toolkit"
"""Stands in the outputs for the folder of the repository."""


def run(name: str) -> None:
    """Run the notebook of that name to its end, and write it with its outputs."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    with TemporaryDirectory() as folder:
        home = os.environ["TOOLKIT_HOME"] = f"{folder}/home"
        copy = shutil.copytree(NOTEBOOKS, f"{folder}/notebooks")
        client = NotebookClient(notebook, timeout=1800, record_timing=False, resources={"metadata": {"path": copy}})
        try:
            client.execute()
        finally:
            daemon.stop(Path(home) / "local")
    text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    text = text.replace(f"{folder}/notebooks", f"{SHOWN}/notebooks").replace(str(ROOT), SHOWN)
    (NOTEBOOKS / f"{name}.ipynb").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        run(each)
