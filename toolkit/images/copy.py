"""Copy blobs to another repository: mounted within a registry, streamed between two registries."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from toolkit.errors import BuildError
from toolkit.images import manifest as manifests
from toolkit.images.reference import Reference
from toolkit.images.registry import Registry
from toolkit.images.upload import Read, Upload

Connect = Callable[[str], Registry]
"""Opens a registry by its host. The caller closes it."""
Log = Callable[[str], None]

_THREADS = 4
_LOG_SECONDS = 5.0
_MOST_LISTS = 4  # a list of lists of images is allowed, one without end is not


@dataclass(frozen=True)
class Image:
    """An image of a registry, for linux/amd64."""

    name: str
    manifest: manifests.Manifest
    parts: manifests.Parts
    config: manifests.ImageConfig

    def as_schema_2(self) -> manifests.Manifest:
        """Its manifest as Docker schema 2. Raises BuildError for layers that schema 2 does not support."""
        is_so = self.manifest.media_type == manifests.SCHEMA_2
        return self.manifest if is_so else manifests.schema_2(self.parts, self.name)


@dataclass(frozen=True)
class Part:
    """A blob to copy: how to read it, and a repository of the same registry that has it, if any."""

    blob: manifests.Blob
    read: Read
    origin: str | None = None


def find_image(registry: Registry, image: Reference) -> Image:
    """The image of a reference; for a multi-platform image, the one for linux/amd64. Raises BuildError."""
    name = str(image)
    manifest = registry.find_manifest(image.repository, image.selector)
    for _ in range(_MOST_LISTS):
        if manifest is None or manifest.media_type not in manifests.INDEXES:
            break
        manifest = registry.find_manifest(image.repository, manifests.for_our_platform(manifest, name))
    if manifest is None:
        hint = "Check registry, repository and tag, and that you may pull from there."
        raise BuildError(f"image {name} does not exist", hint=hint)
    listed = manifests.parts(manifest, name)
    body = registry.small_blob(image.repository, listed.config)
    return Image(name, manifest, listed, manifests.read_config(body, name, listed.layers))


def parts_of(blobs: Iterable[manifests.Blob], origin: Registry, source: Reference, target: Registry) -> list[Part]:
    """Blobs of a repository, for `send` to `target`."""
    mountable = source.repository if origin is target else None
    return [Part(blob, partial(origin.read_blob, source.repository, blob), mountable) for blob in blobs]


def send(
    registry: Registry, repository: str, wanted: Sequence[Part], what: str, log: Log, every: float = _LOG_SECONDS
) -> None:
    """Upload the blobs that a repository lacks; `log` gets a progress line about `what` every so many seconds.

    The first failure stops the others. Raises BuildError.
    """
    tally = _Tally(what, {part.blob.digest: part for part in wanted}.values())
    pool = ThreadPoolExecutor(_THREADS, "blob")
    try:
        waiting: set[Future[None]] = {pool.submit(_send_one, registry, repository, part, tally) for part in tally.parts}
        while waiting:
            done, waiting = wait(waiting, timeout=every, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            if waiting:
                log(tally.line())
    finally:
        tally.stop.set()
        pool.shutdown(cancel_futures=True)
    log(tally.line())


def _send_one(registry: Registry, repository: str, part: Part, tally: _Tally) -> None:
    blob = part.blob
    if registry.has_blob(repository, blob.digest):
        tally.add("there already", blob.size)
        return
    location = registry.mount(repository, blob.digest, part.origin) if part.origin else None
    if part.origin and location is None:
        tally.add("mounted", blob.size)
        return
    Upload(registry, repository, blob, part.read, location, tally.count).run()
    tally.add("sent")


class _Tally:
    """Progress of a copy, counted by many threads."""

    def __init__(self, what: str, parts: Iterable[Part]) -> None:
        self.stop = threading.Event()
        self.parts = tuple(parts)
        self._what = what
        self._total = sum(part.blob.size for part in self.parts)
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._ways = Counter[str]()
        self._reused_bytes = self._sent_bytes = 0

    def count(self, size: int) -> None:
        """Add to the bytes sent (negative if they must be sent again). Raises BuildError if the copy was stopped."""
        if self.stop.is_set():
            raise BuildError(f"{self._what}: stopped")
        with self._lock:
            self._sent_bytes += size

    def add(self, way: str, size: int = 0) -> None:
        """Count a finished blob; `size` is how many of its bytes need not be sent."""
        with self._lock:
            self._ways[way] += 1
            self._reused_bytes += size

    def line(self) -> str:
        with self._lock:
            ways, sent, reused = Counter(self._ways), self._sent_bytes, self._reused_bytes
        by_way = ", ".join(f"{number} {way}" for way, number in sorted(ways.items()))
        rate = f", {sent / 1e6 / (time.monotonic() - self._started):.0f} MB/s" if sent else ""
        blobs = f"{ways.total()} of {len(self.parts)} blobs" + (f" ({by_way})" if by_way else "")
        return f"{self._what}: {blobs}, {(sent + reused) / 1e6:.1f} of {self._total / 1e6:.1f} MB{rate}"
