"""Pages that are documents of the repository: their links lead to pages where there is one, and are plain text else."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
DOCUMENTS = {
    "reference/recipes.md": "recipes/README.md",
    "reference/trainium.md": "recipes/trainium.md",
    "reference/container.md": "containers/vllm/README.md",
    "reference/images.md": "toolkit/images/README.md",
    "reference/tiny-models.md": "recipes/tiny/models/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")
_OTHERS = {
    "toolkit/checks/README.md": "reference/checks.md",
    "toolkit/apply/README.md": "reference/causes.md",
    "toolkit/recipe/recipe.schema.json": "reference/recipe.md",
    "README.md": "index.md",
}


def documents() -> dict[str, str]:
    """The documents' text by their path in the site."""
    return {page: _page(page, source) for page, source in DOCUMENTS.items()}


def _page(page: str, source: str) -> str:
    pages = {**{file: name for name, file in DOCUMENTS.items()}, **_OTHERS}
    folder = PurePosixPath(source).parent

    def link(found: re.Match[str]) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        target = os.path.normpath(folder / path)
        name = pages.get(target) or _page_of(PurePosixPath(target))
        if name is None:
            return words
        return f"[{words}]({os.path.relpath(name, PurePosixPath(page).parent)}{anchor})"

    return _LINK.sub(link, (ROOT / source).read_text(encoding="utf-8"))


def _page_of(path: PurePosixPath) -> str | None:
    """The page of a recipe, or of a document in `docs`."""
    if path.suffix == ".yaml" and path.parts[0] == "recipes" and (ROOT / path).is_file():
        return f"reference/recipes/{path.relative_to('recipes').with_suffix('.md')}"
    if path.parts[0] == "docs" and path.suffix == ".md":
        return str(path.relative_to("docs"))
    return None
