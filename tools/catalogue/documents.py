"""A folder of documents as they were published, and the facts that are kept by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

KEPT = Path(__file__).with_name("kept")
"""Facts that no document has, one file for each file of the catalogue."""


@dataclass(frozen=True)
class Documents:
    """Documents in a folder. Each is found by its path there; a document that is missing is an empty one.

    `date` is the day on which they were read.
    """

    folder: Path
    date: str

    def text(self, path: str) -> str:
        """A document's text."""
        file = self.folder / path
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def json(self, path: str) -> dict[str, Any]:
        """A JSON document."""
        found: dict[str, Any] = json.loads(self.text(path) or "{}")
        return found

    def yaml_files(self, folder: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Path and content of the YAML files in that folder with a name like that, sorted by path."""
        reader = YAML(typ="safe")
        for file in sorted((self.folder / folder).glob(name)):
            yield file.relative_to(self.folder).as_posix(), reader.load(file.read_text(encoding="utf-8"))


def documents_in(folder: Path) -> Documents:
    """The documents that `fetch` has put in that folder, with the day on which it did."""
    return Documents(folder, (folder / "date").read_text(encoding="utf-8").strip())


def kept(name: str) -> dict[str, Any]:
    """The facts that are kept by hand for that file of the catalogue."""
    found: dict[str, Any] = json.loads((KEPT / name).read_text(encoding="utf-8"))
    return found


def as_text(data: dict[str, Any]) -> str:
    """A file of the catalogue."""
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
