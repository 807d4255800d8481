"""What of a layer says what an image is: metadata of packages, programs called python3, links, what it removes.

It is read as it comes from the registry and kept nowhere but in this summary: a layer may have many gigabytes.
"""

from __future__ import annotations

import hashlib
import io
import posixpath
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from toolkit.errors import BuildError
from toolkit.images.manifest import OTHER_CONTENT, ZSTD_LAYER, Blob

_PLAIN, _GZIP = "tar", ("tar.gzip", "tar+gzip")
_BUFFER_BYTES = 1024**2
_MOST_UNPACKED = 2**38
_MOST_ENTRIES = 100_000  # that are kept; a distribution's whole image has a few thousand links
_MOST_TEXT = 4 * 1024**2
_MOST_LIBRARY = 16 * 1024**2
_MOST_HEADER = 1024**2
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)

_METADATA = re.compile(r".*/(site|dist)-packages/[^/]+\.(dist-info/METADATA|egg-info/PKG-INFO)")
_TEXT = re.compile(r"/etc/passwd|.*/pyvenv\.cfg")
_LIBRARY = re.compile(r"(/usr)?/lib(64)?/([^/]+/)?libc(\.so\.6|-2\.\d+\.so)")
_NAMED = re.compile(r".*/bin/python3?(\.\d+)?|/usr/bin/env|(/usr)?/lib(64)?/ld-musl-[^/]+")
_GLIBC = re.compile(rb"GNU C Library .{0,80}? version (\d+\.\d+)")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


@dataclass(frozen=True)
class LayerFiles:
    """The summary of a layer, by absolute paths.

    Fields:
        files: texts, cut to what is read of them; empty for a file of which only the name matters.
        links: what symbolic and hard links point to.
        removed: what the layer takes away from those below it; with a slash at its end, only what lies in that folder.
    """

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)


def is_readable(blob: Blob) -> bool:
    """Whether the layer is packed in a way that is read here: with gzip, with zstd, or not at all."""
    return blob.media_type.endswith((_PLAIN, *_GZIP)) or blob.media_type == ZSTD_LAYER


def read_layer(name: str, blob: Blob, pieces: Iterator[bytes]) -> LayerFiles:
    """Read all of a layer, and check it against its digest; `name` is its image's. Raises BuildError."""
    is_gzip = blob.media_type.endswith(_GZIP)
    stream = _Unpacked(pieces, zstd.ZstdDecompressor if blob.media_type == ZSTD_LAYER else _Gunzip if is_gzip else None)
    what = f"{name}: the layer {blob.digest}"
    found = LayerFiles()
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BUFFER_BYTES, tarinfo=_Entry) as archive:
            for entry in archive:
                _take(found, archive, entry)
                archive.members = []  # type: ignore[attr-defined]  # of which it would remember every one
                if len(found.files) + len(found.links) + len(found.removed) > _MOST_ENTRIES:
                    message = f"{what} has more links and packages than an image can use"
                    raise BuildError(message, hint="Use another base image.")
        while stream.read(_BUFFER_BYTES):
            pass
    except (tarfile.TarError, zlib.error, zstd.ZstdError, EOFError, UnicodeError, ValueError) as error:
        raise BuildError(f"{what} cannot be unpacked: {error}", hint=OTHER_CONTENT) from error
    if stream.digest != blob.digest:
        raise BuildError(f"{what} is not what its digest says", hint=OTHER_CONTENT)
    return found


def _take(found: LayerFiles, archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    path = posixpath.normpath(f"/{entry.name}")
    folder, name = posixpath.split(path)
    if name == _OPAQUE:
        found.removed.append(f"{folder.rstrip('/')}/")
    elif name.startswith(_WHITEOUT):
        found.removed.append(f"{folder.rstrip('/')}/{name.removeprefix(_WHITEOUT)}")
    elif entry.issym():
        if not path.startswith("/usr/share/"):
            found.links[path] = entry.linkname
    elif entry.islnk():
        if _NAMED.fullmatch(path) or _LIBRARY.fullmatch(path):
            found.links[path] = posixpath.normpath(f"/{entry.linkname}")
    elif entry.isfile() and (text := _text(path, archive, entry)) is not None:
        found.files[path] = text


def _text(path: str, archive: tarfile.TarFile, entry: tarfile.TarInfo) -> str | None:
    """What is kept of a file, None for one that says nothing."""
    if _METADATA.fullmatch(path):
        return _header(_content(archive, entry, _MOST_TEXT).decode(errors="replace"))
    if _TEXT.fullmatch(path):
        return _content(archive, entry, _MOST_TEXT).decode(errors="replace")
    if _LIBRARY.fullmatch(path):
        version = _GLIBC.search(_content(archive, entry, _MOST_LIBRARY))
        return version[1].decode() if version else ""
    return "" if _NAMED.fullmatch(path) else None


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo, most: int) -> bytes:
    stream = archive.extractfile(entry)
    assert stream is not None  # of files only
    return stream.read(most)


def _header(metadata: str) -> str:
    """Without the description, which is most of it."""
    wanted = ("name:", "version:", "requires-dist:")
    lines = metadata.partition("\n\n")[0].splitlines()
    return "".join(f"{line}\n" for line in lines if line.lower().startswith(wanted))


class _Entry(tarfile.TarInfo):
    """An entry whose long name or further header is no longer than any real one: it is read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Entry:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _HEADERS and entry.size > _MOST_HEADER:
            raise tarfile.ReadError(f"a header of {entry.size} bytes")
        return entry


class _Gunzip:
    """zlib's decompressor with the manners of all the others: it keeps what it has not unpacked yet."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def decompress(self, packed: bytes, most: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + packed, most)

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data


class _Unpacked(io.RawIOBase):
    """The bytes of a layer unpacked, and the digest of the packed ones. Without an unpacker they are the same."""

    def __init__(self, pieces: Iterator[bytes], unpacker: type[_Gunzip | zstd.ZstdDecompressor] | None) -> None:
        self._pieces = pieces
        self._hash = hashlib.sha256()
        self._new_unpacker = unpacker
        self._unpacker = unpacker() if unpacker else None
        self._rest = b""  # packed bytes behind the end of a stream
        self._ready = b""
        self._size = 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def read(self, size: int = -1) -> bytes:
        """The next bytes, as many as are asked for unless it ends."""
        parts, missing = [], size
        while missing:
            if not self._ready and not self._fill():
                break
            part, self._ready = self._ready[:missing], self._ready[missing:]
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _fill(self) -> bool:
        """Unpack some more. False at the end."""
        while not self._ready:
            packed, self._rest = self._rest, b""
            if not packed and (self._unpacker is None or self._unpacker.eof or self._unpacker.needs_input):
                packed = next(self._pieces, b"")
                if not packed:
                    return False
                self._hash.update(packed)
            self._ready = self._unpack(packed)
        self._size += len(self._ready)
        if self._size > _MOST_UNPACKED:
            raise tarfile.ReadError(f"more than {_MOST_UNPACKED} bytes")
        return True

    def _unpack(self, packed: bytes) -> bytes:
        if self._unpacker is None or self._new_unpacker is None:
            return packed
        if self._unpacker.eof:  # several streams in a row are one
            self._unpacker = self._new_unpacker()
        unpacked = self._unpacker.decompress(packed, _BUFFER_BYTES)
        if self._unpacker.eof:
            self._rest = self._unpacker.unused_data
        return unpacked
