"""The part of the toolkit in the image that trains: complete without the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fakes import ACCOUNT
from pairs import write_pair

from toolkit.loading import load
from toolkit.platforms.sagemaker.rules.head_training import training_image
from toolkit.recipe.known import catalogue_dir

# An engine's image has pydantic, but no YAML that keeps comments.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
sys.modules["ruamel.yaml"] = None
from toolkit.engines import registry as engine_registry
from toolkit.training import job
engine = engine_registry.training_engine()
print(job.__file__, sys.modules[type(engine).__module__].__file__, engine.serve_command("p-eagle", 7), sep="\\n")
"""


def test_it_imports_by_itself(tmp_path: Path) -> None:
    image = training_image(load(write_pair(tmp_path / "recipe")), ACCOUNT)
    for name, file in image.files.items():
        _, in_library, path = name.partition("/library/")
        if in_library and file.content is not None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(file.content)
    assert (tmp_path / "toolkit" / "training" / "card.json").is_file(), "data files too"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    job, engine, command = done.stdout.splitlines()
    assert Path(job).is_relative_to(tmp_path)
    assert Path(engine).is_relative_to(tmp_path)
    assert command in (catalogue_dir() / "tiny/models/p-eagle/README.md").read_text()
