"""A product with an engine that it does not have: the package as it is, with one folder, one file and one container."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairs import write_pair

ROOT = Path(__file__).parents[1]
GROVE = Path(__file__).with_name("foreign_engine")
RECIPE = """\
name: grown
target: {model: ./target}
speculation: {method: eagle3, model: ./drafter, num_speculative_tokens: 3, topk: 4, draft_tokens: 16}
engine:
  name: grove
  max_model_len: 512
  max_num_seqs: 8
platform: {name: local}
"""


@dataclass(frozen=True)
class Product:
    """The toolkit in `folder`, as a command of another process."""

    folder: Path
    home: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "TOOLKIT_HOME": str(self.home), "COLUMNS": "200"}
        command = [sys.executable, "-m", "toolkit", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=self.folder)

    def json(self, *arguments: str, status: Sequence[int] = (0,)) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode in status, done.stdout + done.stderr
        return json.loads(done.stdout)

    def recipe(self, text: str = RECIPE) -> str:
        path = write_pair(self.folder / "recipe", "eagle3")
        path.write_text(text)
        path.with_suffix(".lock.json").unlink(missing_ok=True)
        return str(path)


def product_with_grove(folder: Path) -> Product:
    """Links to everything of the product, and beside it what CONTRIBUTING.md asks of a new engine."""
    for part in ("toolkit", "toolkit/engines", "toolkit/catalog", "toolkit/catalog/engines", "containers"):
        (folder / part).mkdir()
        for path in (ROOT / part).iterdir():
            if not (folder / part / path.name).exists() and path.name != "__pycache__" and not _is_parted(part, path):
                (folder / part / path.name).symlink_to(path)
    (folder / "recipes").symlink_to(ROOT / "recipes")
    shutil.copytree(GROVE / "engine", folder / "toolkit" / "engines" / "grove")
    shutil.copy(GROVE / "grove.json", folder / "toolkit" / "catalog" / "engines")
    shutil.copytree(GROVE / "container", folder / "containers" / "grove")
    return Product(folder, folder / "home")


def _is_parted(part: str, path: Path) -> bool:
    return f"{part}/{path.name}" in ("toolkit/engines", "toolkit/catalog", "toolkit/catalog/engines")
