"""Look at a base image before anything is put on it: what it holds is read from its layers, and kept by their digests.

A layer is one packed stream that can only be read from its beginning, so each is read once, all of it, without a file.
"""

from __future__ import annotations

import posixpath
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from email.parser import HeaderParser
from itertools import takewhile
from typing import Any

from toolkit import documents
from toolkit.catalog import lookup
from toolkit.errors import BuildError
from toolkit.images.copy import Connect, find_image
from toolkit.images.kept import KEPT_LIMITS, keep_facts, kept_facts
from toolkit.images.layer_files import LayerFiles, is_readable, read_layer
from toolkit.images.manifest import ZSTD_LAYER, Blob
from toolkit.images.preflight import PUT_TOGETHER, Addition, Base, BaseFacts, Distribution, find
from toolkit.images.reference import Reference, parse
from toolkit.images.registry import Registry
from toolkit.images.spec import ImageSpec
from toolkit.images.wheels import describe_wheels

_THREADS = 4
_MOST_LINKS = 40  # as Linux follows
# Of an image that names none, as container runtimes have it.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = re.compile(r"python(3\.\d+)")
_VENV_VERSION = re.compile(r"^version(?:_info)? *= *(3\.\d+)", re.M)


Log = Callable[[str], None]


def require_runnable(spec: ImageSpec, builder: str, connect: Connect, log: Log, say: Log) -> None:
    """Raises BuildError for an image that would not run; what only may go wrong is said.

    A base that only the builder itself can ask for, as one of an engine's own store, is built on without a look.
    """
    large = any(file.source is not None for file in spec.files.values())
    addition = Addition(spec.wheels, spec.python, builder, spec.dockerfile, large)
    try:
        base = _look(parse(spec.base), addition, connect, log)
    except BuildError as error:
        if builder in PUT_TOGETHER:
            raise
        say(f"what {spec.base} holds is not known: {error.message}")
        return
    found = list(find(base, addition, describe_wheels(spec.wheels, spec.python)))
    for finding in found:
        if finding.severity != "error":
            say(f"{finding.severity}: {finding.message} [{finding.code}]")
    errors = [finding for finding in found if finding.severity == "error"]
    if errors:
        hints = dict.fromkeys(finding.hint for finding in errors)
        raise BuildError("\n  ".join(f"{one.message} [{one.code}]" for one in errors), hint=" ".join(hints))


def read_base(
    registry: Registry, image: Reference, layers: Sequence[Blob], env: Sequence[str], log: Log
) -> BaseFacts | None:
    """The facts of an image with these layers and variables; None where a layer is packed in a way we cannot read.

    Raises BuildError.
    """
    if not all(map(is_readable, layers)):
        return None
    kept = {blob.digest: _kept(blob.digest) for blob in layers}
    missing = {blob.digest: blob for blob in layers if kept[blob.digest] is None}
    size = sum(blob.size for blob in missing.values())
    if missing:
        log(f"reading what the base holds, once: {len(missing)} layers, {size / 1e9:.1f} GB")
    stop = threading.Event()

    def read(blob: Blob) -> LayerFiles:
        pieces = registry.read_blob(image.repository, blob)
        return read_layer(str(image), blob, takewhile(lambda _: not stop.is_set(), pieces))

    with ThreadPoolExecutor(_THREADS, "layer") as pool:
        reading = {pool.submit(read, blob): blob for blob in missing.values()}
        try:
            for number, done in enumerate(as_completed(reading), 1):
                digest = reading[done].digest
                kept[digest] = done.result()
                keep_facts(digest, asdict(done.result()))
                log(f"read {number} of {len(missing)} layers of the base")
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return facts_of([found for blob in layers if (found := kept[blob.digest])], env)


def facts_of(layers: Sequence[LayerFiles], env: Sequence[str]) -> BaseFacts:
    """What is there when the layers lie on each other, the first at the bottom."""
    tree = _Tree(layers)
    variables = dict(variable.partition("=")[::2] for variable in env)
    folder = next((path for path in (variables.get("PATH") or _PATH).split(":") if tree.find(f"{path}/python3")), "")
    python = _python(tree, folder)
    return BaseFacts(
        python=python,
        libc=_libc(tree),
        has_env=tree.has("/usr/bin/env"),
        users=tuple(line.partition(":")[0] for line in tree.text("/etc/passwd").splitlines() if ":" in line),
        distributions=tuple(_distributions(tree, _search(tree, folder, python or "", variables.get("PYTHONPATH", "")))),
    )


class _Tree:
    """The files of all layers by their absolute paths: texts, links, and files of which only the name matters."""

    def __init__(self, layers: Sequence[LayerFiles]) -> None:
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        for layer in layers:
            for gone in layer.removed:
                self._remove(gone)
            for path in (*layer.files, *layer.links):
                self.files.pop(path, None)
                self.links.pop(path, None)
            self.files |= layer.files
            self.links |= layer.links

    def _remove(self, gone: str) -> None:
        """A path and what is below it; of one that ends with a slash only that."""
        below = gone if gone.endswith("/") else f"{gone}/"
        for known in (self.files, self.links):
            for path in [path for path in known if path == gone or path.startswith(below)]:
                del known[path]

    def resolve(self, path: str) -> str:
        """The path without links, whether or not there is such a file."""
        found, rest, followed = "", path.split("/")[::-1], 0
        while rest:
            if (part := rest.pop()) in ("", "."):
                continue
            found = posixpath.dirname(found) if part == ".." else f"{found.rstrip('/')}/{part}"
            if (target := self.links.get(found)) is not None and followed < _MOST_LINKS:
                followed += 1
                rest += target.split("/")[::-1]
                found = "" if target.startswith("/") else posixpath.dirname(found)
        return found or "/"

    def find(self, path: str) -> str | None:
        """Where the file really lies, None without one."""
        found = self.resolve(path)
        return found if found in self.files else None

    def has(self, path: str) -> bool:
        """Whether it is there, be it a link to what is not known."""
        there = f"{self.resolve(posixpath.dirname(path))}/{posixpath.basename(path)}"
        return there in self.files or there in self.links

    def text(self, path: str) -> str:
        return self.files.get(self.resolve(path), "")


def _python(tree: _Tree, folder: str) -> str | None:
    program = tree.find(f"{folder}/python3") if folder else None
    if program is None:
        return None
    named = _PYTHON.fullmatch(posixpath.basename(program))
    config = _VENV_VERSION.search(tree.text(f"{posixpath.dirname(folder)}/pyvenv.cfg"))
    found = named or config
    return found[1] if found else ""


def _libc(tree: _Tree) -> str:
    found = {posixpath.basename(path): text for path, text in tree.files.items()}
    versions = [text for name, text in found.items() if text and name.startswith(("libc.so.6", "libc-2."))]
    if versions:
        return f"glibc {versions[0]}"
    is_musl = any(posixpath.basename(path).startswith("ld-musl-") for path in (*tree.files, *tree.links))
    return "musl" if is_musl else ""


def _search(tree: _Tree, folder: str, python: str, more: str) -> list[str]:
    """The folders in which the Python of that PATH folder looks for packages, the first first."""
    own, program = posixpath.dirname(folder), tree.find(f"{folder}/python3") or ""
    config = tree.text(f"{own}/pyvenv.cfg")
    system = posixpath.dirname(posixpath.dirname(program))
    is_alone = bool(config) and not re.search(r"^include-system-site-packages *= *true", config, re.M)
    prefixes = [own] if config else []
    if not is_alone:
        prefixes += ["/usr/local", system] if system == "/usr" else [system]
    names = (f"{lib}/python{python}/{kind}" for lib in ("lib", "lib64") for kind in ("site-packages", "dist-packages"))
    below = [*names, *([] if is_alone else ["lib/python3/dist-packages"])]
    places = [*more.split(":"), *(f"{prefix}/{name}" for prefix in prefixes for name in below)]
    return list(dict.fromkeys(tree.resolve(place) for place in places if place))


def _distributions(tree: _Tree, search: Sequence[str]) -> Iterator[Distribution]:
    """Of two of the same name the one that is found first."""
    from packaging.utils import canonicalize_name

    found: dict[str, Distribution] = {}
    order = {place: number for number, place in enumerate(search)}
    notes = [(path, text) for path, text in tree.files.items() if path.endswith(("/METADATA", "/PKG-INFO"))]
    lying = [(order.get(posixpath.dirname(posixpath.dirname(path))), text) for path, text in notes]
    for _, text in sorted((place, text) for place, text in lying if place is not None):
        said = HeaderParser().parsestr(text)
        if (name := said["Name"]) and (version := said["Version"]):
            requires = tuple(map(str, said.get_all("Requires-Dist") or ()))
            found.setdefault(canonicalize_name(str(name)), Distribution(str(name), str(version), requires))
    yield from found.values()


def _kept(digest: str) -> LayerFiles | None:
    content = kept_facts(digest)
    try:
        return documents.parse(LayerFiles, content, KEPT_LIMITS) if content else None
    except documents.Unfit:
        return None


def _look(image: Reference, addition: Addition, connect: Connect, log: Log) -> Base:
    """The base, from its registry; its layers only where what they hold is asked for."""
    with connect(image.registry) as registry:
        found = find_image(registry, image)
        settings: Mapping[str, Any] = found.config.get("config") or {}
        listed = found.parts.layers
        # Who builds with CodeBuild may have a slow network of his own.
        wanted = addition.builder != "codebuild" and (bool(addition.wheels) or not _is_an_engines(image))
        holds = read_base(registry, image, listed, settings.get("Env") or [], log) if wanted else None
    triggers, has_zstd = tuple(settings.get("OnBuild") or ()), any(one.media_type == ZSTD_LAYER for one in listed)
    base = Base(str(image), len(listed), triggers, holds, wanted and holds is None, has_zstd)
    if image.digest:
        keep_facts(image.digest, asdict(base))
    return base


def _is_an_engines(image: Reference) -> bool:
    """Whether AWS or the engine's own makers made the image: it has what our programs need."""
    account = image.registry.partition(".")[0]
    at = f"{image.registry}/{image.repository}"
    return account in lookup.registries().values() or at in lookup.repositories()
