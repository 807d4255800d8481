"""`pip install` without an index: links what is installed here, and only what the requirements name with a hash."""

from __future__ import annotations

import argparse
import re
import sys
from importlib.metadata import distribution
from pathlib import Path

_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s\\;]+)(.*?)(?=^\S|\Z)", re.M | re.S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="pip")
    parser.add_argument("-m", choices=["pip"])
    parser.add_argument("command", choices=["install"])
    for option in ("--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"):
        parser.add_argument(option, action="store_true")
    for option in ("--only-binary", "--target", "--requirement"):
        parser.add_argument(option, required=True)
    asked = parser.parse_args()
    if not (asked.require_hashes and asked.no_deps and asked.only_binary == ":all:"):
        sys.exit("pip: what is installed is not pinned by its hashes")
    target = Path(asked.target)
    target.mkdir()
    for name, version, rest in _PIN.findall(Path(asked.requirement).read_text(encoding="utf-8")):
        if "--hash=sha256:" not in rest:
            sys.exit(f"pip: {name} has no hash")
        found = distribution(name)
        if found.version != version:
            sys.exit(f"pip: {name} {found.version} is installed here, not {version}")
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (target / top).exists():
                (target / top).symlink_to(Path(str(found.locate_file(top))).resolve())


main()
