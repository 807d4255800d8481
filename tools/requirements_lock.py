"""Write the hashes of every pinned package: `python -m tools.requirements_lock` after a change of a version.

What is pinned stands in requirements.lock itself: one `name==version` a line, with hashes or, where it is new, without.
The hashes are of all files that the index has of that version, so that the lock installs on every machine and Python.
Nothing is resolved: the lock is complete. torch's CPU build is on another index; requirements-torch.lock is written by
hand. The locks of PARTS are cut out of it: what `make demo` and CI install, which is far less than what tests take.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
PARTS: Mapping[str, Sequence[str]] = {
    "requirements-action.lock": ["kubernetes"],
    "requirements-demo.lock": ["local"],
    "requirements-docs.lock": ["docs"],
}
"""Locks for the toolkit with some of its extras, and for what builds its wheel."""
PYTHONS = ("3.11", "3.12", "3.13")
"""Every package of the lock has a wheel for them."""
ELSEWHERE = "torch"
"""In a lock of its own; what it asks for is in this one."""

PACKAGES: Mapping[str, tuple[str, Sequence[str]]] = {
    "requirements-uv.lock": ("uv, which installs the others", ["uv"]),
    "toolkit/platforms/sagemaker/staging-requirements.lock": (
        "what stages weights in an AWS account",
        ["boto3", "httpx", "huggingface-hub", "pydantic"],
    ),
}
"""Locks for some packages, with all that these need: what for, and which."""

_PIN = re.compile(r"[A-Za-z0-9][\w.-]*==[^\s\\]+")


def main() -> None:
    """Rewrite the lock: its comment, then its pins with their hashes. Then its parts."""
    LOCK.write_text(with_hashes(LOCK.read_text(encoding="utf-8")), encoding="utf-8")
    for name, extras in PARTS.items():
        (ROOT / name).write_text(part(LOCK.read_text(encoding="utf-8"), extras), encoding="utf-8")
    for name, (what, packages) in PACKAGES.items():
        (ROOT / name).write_text(cut(LOCK.read_text(encoding="utf-8"), packages, what), encoding="utf-8")


def part(text: str, extras: Sequence[str]) -> str:
    """Of a lock's text what the toolkit with these extras needs on Linux, by what installed packages say."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    optional = declared["project"]["optional-dependencies"]
    lists = [
        [*declared["build-system"]["requires"], "editables"],  # hatchling asks for it as it builds `-e .`
        declared["project"]["dependencies"],
        *(optional[of] for of in extras),
    ]
    wanted = [line for lines in lists for line in lines]
    return cut(text, wanted, f"the toolkit with {', '.join(extras)}")


def cut(text: str, lines: Sequence[str], what: str) -> str:
    """Of a lock's text these packages and all that they need; `what` is said in its comment."""
    entries = re.split(r"\n(?=[^\s#])", text.strip())
    by_name = {canonicalize_name(pin.split("==")[0]): entry for entry in entries for pin in pins(entry)}
    wanted = [Requirement(line) for line in lines]
    found: dict[NormalizedName, set[str]] = {}
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name not in by_name and name != ELSEWHERE:
            continue  # left out of the lock on purpose
        for extra in {"", *requirement.extras} - found.setdefault(name, set()):
            found[name].add(extra)
            wanted += [item for item in map(Requirement, requires(name) or ()) if is_needed(item, extra)]
    pythons = f"Python {PYTHONS[0]} to {PYTHONS[-1]}"
    comment = f"# Cut out of requirements.lock by `make lock`: {what}, Linux, {pythons}.\n"
    return comment + "".join(f"{by_name[name]}\n" for name in sorted(found.keys() - {ELSEWHERE}))


def is_needed(requirement: Requirement, extra: str = "") -> bool:
    """Whether a package that was asked for with that extra asks for it, on any of our Pythons."""
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({"extra": extra, "python_version": version, "python_full_version": f"{version}.0"})
        for version in PYTHONS
    )


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
