"""The part of the toolkit in the image that trains: complete without the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fakes import ACCOUNT
from pairs import write_pair

from toolkit.platforms.training_image import training_image
from toolkit.recipe.resolve import load


def test_it_imports_by_itself(tmp_path: Path) -> None:
    image = training_image(load(write_pair(tmp_path / "recipe")), ACCOUNT)
    for name, file in image.files.items():
        _, in_library, path = name.partition("/library/")
        if in_library and file.content is not None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(file.content)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import toolkit.training.plan as p; print(p.__file__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
