"""Python packages for our layer, as their makers built them: fetched by pip for the image's Python, and installed.

What they depend on is not fetched: the base has it, or it is another pin.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from toolkit import documents
from toolkit.children import PIP, own_variables, python_command, start_process
from toolkit.errors import BuildError
from toolkit.images.kept import keep_facts, kept_facts
from toolkit.images.manifest import at, parsed
from toolkit.images.spec import OTHER_BUILDERS, ContextFile, on_disk

# The oldest C library of the catalogue's bases is Amazon Linux 2023's, 2.34; a wheel for an older one runs on a newer
# one. The first that fits is taken: above 2.28 last, for bases that the catalogue does not know, and as locks have it.
_MINORS = [*range(28, 16, -1), *range(16, 4, -1), *range(29, 35)]
_PLATFORMS = ["manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in _MINORS)]
_PIN = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?==[\w.!+]+( --hash=sha256:[0-9a-f]{64})?", re.ASCII)
_MOST_UNPACKED = 32 * 1024**3  # bytes of one wheel; torch with CUDA has 4 GB
_HASH = " --hash="


def fetch_wheels(pins: Sequence[str], python: str, folder: Path, most: int = _MOST_UNPACKED) -> dict[str, ContextFile]:
    """The packages' files by their paths in the image, installed under `folder`. Raises BuildError.

    A pin may have the hash of its wheel, as pip writes it: `name==version --hash=sha256:…`; another wheel is refused.
    """
    if not pins:
        return {}
    from toolkit.images.installed import install_wheel  # loads what only a build needs, in 50 ms

    fetched, files = folder / "wheels", dict[str, ContextFile]()
    download_wheels([pin for pin in pins if _HASH in pin], python, fetched)
    download_wheels([pin for pin in pins if _HASH not in pin], python, fetched)
    try:
        with on_disk("unpack wheels"):
            for wheel in sorted(fetched.iterdir()):
                _add(files, install_wheel(wheel, folder / "installed" / wheel.stem, most))
    except zipfile.BadZipFile as error:
        hint = "Try again: the index, or a proxy before it, may have sent a part of a file."
        raise BuildError(f"cannot unpack wheels: {error}", hint=hint) from error
    return files


@dataclass(frozen=True)
class Wheel:
    """What the index says of a wheel: its file, and what it asks for in the words of its metadata."""

    name: str
    version: str
    file: str
    sha256: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Item:
    name: Annotated[str, at("metadata", "name")]
    version: Annotated[str, at("metadata", "version")]
    url: Annotated[str, at("download_info", "url")]
    sha256: Annotated[str, at("download_info", "archive_info", "hashes", "sha256")] = ""
    requires: Annotated[tuple[str, ...], at("metadata", "requires_dist")] = ()


@dataclass(frozen=True)
class _Report:
    """What pip would install."""

    install: tuple[_Item, ...]


def describe_wheels(pins: Sequence[str], python: str) -> list[Wheel]:
    """The wheels that exact pins mean now, most of them without fetching them; kept. Raises BuildError."""
    if not pins:
        return []
    plain = [pin.partition(_HASH)[0] for pin in pins]
    with tempfile.TemporaryDirectory(prefix="toolkit-wheels-") as name:
        folder = Path(name)
        report = folder / "report.json"
        options = ("--dry-run", "--ignore-installed", "--target", name, "--report", str(report))
        _ask_pip(plain, python, folder, "install", *options)
        items = parsed(_Report, documents.read_file(report), "pip's report on wheels").install
    files = [unquote(posixpath.basename(urlsplit(item.url).path)) for item in items]
    wheels = [
        Wheel(item.name, item.version, file, item.sha256, item.requires)
        for item, file in zip(items, files, strict=True)
    ]
    keep_facts(wheels_key(plain, python), {"wheels": [asdict(wheel) for wheel in wheels]})
    return wheels


def kept_wheels(pins: Sequence[str], python: str) -> list[Wheel] | None:
    """What `describe_wheels` said of these pins the last time, None where it was not asked."""
    if not pins:
        return []
    content = kept_facts(wheels_key([pin.partition(_HASH)[0] for pin in pins], python))
    try:
        return documents.parse(_Kept, content).wheels if content else None
    except documents.Unfit:
        return None


@dataclass(frozen=True)
class _Kept:
    wheels: list[Wheel]


def wheels_key(pins: Sequence[str], python: str) -> str:
    """Under which facts of these pins are kept."""
    return "wheels-" + hashlib.sha256("\n".join([python, *sorted(pins)]).encode()).hexdigest()


def find_wheel(pin: str, python: str) -> str:
    """The hash of the wheel that an exact pin means now, as `sha256:…`. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="toolkit-wheel-") as folder:
        download_wheels([pin], python, Path(folder))
        (wheel,) = Path(folder).glob("*.whl")
        with wheel.open("rb") as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def with_hash(pin: str, digests: Mapping[str, str]) -> str:
    """The pin as `fetch_wheels` takes it, with its hash where that is known."""
    return f"{pin}{_HASH}{digests[pin]}" if pin in digests else pin


def download_wheels(pins: Sequence[str], python: str, folder: Path, also: Sequence[str] = ()) -> None:
    """The wheels of exact pins into that folder, with pip, from its indexes. Raises BuildError.

    They are for the bases of images, or for one of the platforms `also`.
    """
    if not pins:
        return
    folder.mkdir(parents=True, exist_ok=True)
    more = [option for platform in also for option in ("--platform", platform)]
    _ask_pip(pins, python, folder, "download", "--dest", str(folder), *more)


def _ask_pip(pins: Sequence[str], python: str, folder: Path, *words: str) -> None:
    """Run pip with these words on the pins' wheels for the image."""
    for pin in pins:
        if not _PIN.fullmatch(pin):
            raise BuildError(f"{pin!r} is not an exact pin", hint="Write name==version.")
    wanted = folder / "requirements.txt"  # pip takes hashes from a file only
    wanted.write_text("\n".join(pins), encoding="utf-8")
    command = python_command("-m", "pip", *words, "--quiet", "--no-input", "--disable-pip-version-check")
    target = [option for platform in _PLATFORMS for option in ("--platform", platform)]
    target += ["--implementation", "cp", "--python-version", python]
    command += [*target, "--only-binary", ":all:", "--no-deps", "--requirement", str(wanted)]
    with start_process(command, folder, own_variables(*PIP)) as process:
        try:
            said = process.communicate()[0].decode(errors="replace")
        finally:
            process.kill()  # else it goes on where we are interrupted
    wanted.unlink()
    if process.returncode:
        raise _pip_failure(said, python)


def _pip_failure(said: str, python: str) -> BuildError:
    if "No module named pip" in said:
        message = f"{sys.executable} has no pip, which is needed to download wheels"
        return BuildError(message, hint="Run: python -m ensurepip")
    if "THESE PACKAGES DO NOT MATCH THE HASHES" in said:
        message = "a wheel is not the one that the lock pins: an index sends another file under the same version"
        return BuildError(message, hint="If you trust it, pin it anew: toolkit lock RECIPE")
    if "connection broken by" in said:
        message = "cannot download wheels: the package index does not answer"
        return BuildError(message, hint="Check that it can be reached from here, or name another: PIP_INDEX_URL.")
    errors = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR: ")]
    why = errors[-1] if errors else said.strip()[-300:]
    message = f"cannot download wheels for Python {python} on Linux x86-64: {why}"
    return BuildError(message, hint=f"Pin a version that has such a wheel, {OTHER_BUILDERS}.")


def _add(files: dict[str, ContextFile], more: Mapping[str, ContextFile]) -> None:
    """Several packages may hold the same file, such as an empty __init__.py; one that differs would be lost."""
    for path in files.keys() & more.keys():
        if _content(files[path]) != _content(more[path]):
            hint = f"Leave one of the packages out, {OTHER_BUILDERS}."
            raise BuildError(f"two packages of `container.wheels` hold another {path}", hint=hint)
    files.update(more)


def _content(file: ContextFile) -> bytes:
    assert file.source is not None
    return file.source.read_bytes()
