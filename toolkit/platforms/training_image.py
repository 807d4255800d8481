"""The image that trains heads: the recipe's base image, with containers/train and the toolkit's own code on it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from toolkit.home import containers_dir
from toolkit.images.spec import ContextFile, ImageSpec
from toolkit.planning.resources import Account
from toolkit.platforms.image import ROOT, render
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.schema import ContainerSection

PROGRAM = "train"
"""The folder in containers/, and the program in the image."""

# The part of the toolkit that runs in the job: what toolkit.training may import, and the engine that it asks for.
_PACKAGES = ("training", "engines", "recipe", "catalog")
_MODULES = (
    "__init__",
    "display",
    "documents",
    "errors",
    "files",
    "findings",
    "frames",
    "home",
    "registry",
    "text",
    "version",
)
_PIN = re.compile(r"^[A-Za-z0-9][\w.-]*==[\w.!+]+", re.M)


def training_image(recipe: Recipe, account: Account) -> ImageSpec:
    """All that makes the image. It has the same base as the recipe's own, and no drafter. Raises UsageError."""
    section = recipe.container or ContainerSection()
    wheels = [*pins(), *section.wheels]
    image = replace(recipe, container=section.model_copy(update={"wheels": wheels, "bake_drafter": False}))
    return render(image, account, program=PROGRAM, more=_library())


def pins() -> list[str]:
    """The packages that training adds to the base image, as name==version."""
    return _PIN.findall((containers_dir() / PROGRAM / "requirements.txt").read_text(encoding="utf-8"))


def _library() -> dict[str, ContextFile]:
    package = Path(__file__).parents[1]
    paths = [package / f"{name}.py" for name in _MODULES]
    paths += [path for name in _PACKAGES for path in (package / name).rglob("*") if path.suffix in (".py", ".json")]
    return {
        f"{ROOT}/library/toolkit/{path.relative_to(package).as_posix()}": ContextFile(content=path.read_bytes())
        for path in sorted(paths)
    }
