"""`python -m tools.catalogue [NAME …] [--documents DIR] [--fetch]` writes files of the catalogue.

It shows what changed. Without names all of them that have a generator. `--fetch` reads the documents anew first.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from toolkit.catalog.lookup import FOLDER
from tools.catalogue.documents import Documents, documents_in
from tools.catalogue.generators import GENERATORS

DOCUMENTS = Path(__file__).parents[2] / "tests" / "documents"


def write(names: Sequence[str], documents: Documents, folder: Path = FOLDER) -> str:
    """Write those files into the folder. Returns what changed, as a unified diff."""
    changes: list[str] = []
    for name in names or GENERATORS:
        file = folder / name
        before = file.read_text(encoding="utf-8") if file.is_file() else ""
        after = GENERATORS[name](documents)
        file.write_text(after, encoding="utf-8")
        changes += difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"old/{name}", f"new/{name}")
    return "".join(changes)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.catalogue", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(GENERATORS)}")
    parser.add_argument("--documents", type=Path, default=DOCUMENTS, help="folder of the documents")
    parser.add_argument("--fetch", action="store_true", help="read the documents anew, over the network")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in GENERATORS]:
        parser.error(f"no generator of {unknown[0]}; see tools/catalogue/generators.py")
    if given.fetch:
        from tools.catalogue.fetch import fetch

        fetch(given.documents)
    sys.stdout.write(write(given.names, documents_in(given.documents)) or "nothing changed\n")


if __name__ == "__main__":
    main()
