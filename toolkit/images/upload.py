"""Upload a blob of any size, resuming after a lost connection or an expired login.

Registries differ (sources read 2026-11-21):

* Docker's registry 2.8 keeps only what arrived in complete requests. If one is cut off, it forgets the upload, which
  then starts anew (its blobupload.go; tried); if the connection ends between two, the upload goes on.
* ECR answers each piece with 201 and a range that stays that of the first piece, though it keeps all of them
  (aws/containers-roadmap#2831); if it expects another byte, it says which (apple/containerization#790). So a piece that
  it accepted counts as kept, whatever the range says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

import httpx

from toolkit.errors import BuildError
from toolkit.images.manifest import OTHER_CONTENT, Blob
from toolkit.images.registry import LoginExpired, Registry, asked_wait, is_passing, status_text

# A multiple of 10 and of 20 MiB, the parts that ECR keeps blobs in: a part before the last has at least 5 MiB there.
CHUNK_BYTES = 60 * 1024**2

# The answers of registries that only take whole blobs.
_NO_PIECES = (
    httpx.codes.METHOD_NOT_ALLOWED,
    httpx.codes.LENGTH_REQUIRED,
    httpx.codes.UNSUPPORTED_MEDIA_TYPE,
    httpx.codes.NOT_IMPLEMENTED,
)

_RECEIVED_RANGE = re.compile(r"(?:bytes=)?0-(\d{1,15})")
_EXPECTED_BYTE = re.compile(r"instead of (\d{1,15})")

Read = Callable[[int], Iterator[bytes]]
"""The bytes of a blob from an offset on, in pieces."""


@dataclass(eq=False)
class _InterruptedError(Exception):
    """A request failed, but the upload can be resumed.

    `offset`: the byte that the registry expects next; `gone`: it does not know this upload any more; `spoilt`: it got
    wrong bytes; `login`: it needs a new login; `wait`: the seconds that it asks for before the next try.
    """

    why: str
    offset: int | None = None
    gone: bool = False
    spoilt: bool = False
    login: bool = False
    wait: float = 0

    def __str__(self) -> str:
        return self.why


@dataclass
class Upload:
    """Sends what `read` gives, to `location` if the registry has named one already.

    `count` gets the number of further bytes that were sent; it is negative if some have to be sent again.
    """

    registry: Registry
    repository: str
    blob: Blob
    read: Read
    location: str | None = None
    count: Callable[[int], None] = lambda _bytes: None
    chunk: int = CHUNK_BYTES
    offset: int = field(default=0, init=False)
    counted: int = field(default=0, init=False)

    def run(self) -> None:
        """Send all of it. Raises BuildError."""
        failures = refusals = spoilt = furthest = 0
        while True:
            try:
                self._send_rest()
                return
            except _InterruptedError as error:
                if self.offset > furthest:
                    failures, refusals, furthest = 0, 0, self.offset
                failures += not error.login
                refusals += error.login
                spoilt += error.spoilt
                what = f"{self.registry.host}/{self.repository}: upload of {self.blob.digest}"
                if spoilt > 1:
                    raise BuildError(f"{what} failed twice: {error}", hint=OTHER_CONTENT) from error
                self.registry.check_refusals(refusals, self.repository)
                if failures:
                    self.registry.pause(failures, f"{what} broke off at byte {self.offset}: {error}", error.wait)
                if self._has_arrived(error):
                    return
                self._find_offset(error)

    def _has_arrived(self, error: _InterruptedError) -> bool:
        """Whether only the answer to the last bytes was lost."""
        if not (error.gone and self.registry.has_blob(self.repository, self.blob.digest)):
            return False
        self._go_on_from(self.blob.size)
        return True

    def _send_rest(self) -> None:
        if self.location is None:
            self.location, self.offset = self.registry.start_upload(self.repository), 0
        pieces = _Pieces(self.read(self.offset))
        while not self._send_chunk(pieces):
            pass

    def _send_chunk(self, pieces: _Pieces) -> bool:
        """Send the next bytes, and say whether they were the last. Raises _InterruptedError."""
        size = min(self.chunk, self.blob.size - self.offset)
        end = self.offset + size
        is_last = end == self.blob.size
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        if 0 < size < self.blob.size:
            headers["Content-Range"] = f"{self.offset}-{end - 1}"
        url = self._named() if is_last else str(self.location)
        try:
            body = self._counting(pieces.take(size))
            verb = "PUT" if is_last else "PATCH"
            answer = self.registry.exchange(verb, url, self.repository, headers=headers, content=body)
        except LoginExpired as error:
            raise _InterruptedError("the login expired", login=True) from error
        except httpx.RequestError as error:
            raise _InterruptedError(repr(error)) from error
        if verb == "PATCH" and answer.status_code in _NO_PIECES:
            self.chunk = self.blob.size
            raise _InterruptedError(status_text(answer), gone=True)
        if answer.status_code not in (httpx.codes.ACCEPTED, httpx.codes.CREATED, httpx.codes.NO_CONTENT):
            raise self._interruption(answer)
        self.location, self.offset = self.registry.location(answer), end
        return is_last

    def _named(self) -> str:
        """Where the last bytes go, with the name that the registry compares with what it got."""
        separator = "&" if "?" in str(self.location) else "?"
        return f"{self.location}{separator}digest={quote(self.blob.digest)}"

    def _counting(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            self.counted += len(piece)
            self.count(len(piece))

    def _interruption(self, answer: httpx.Response) -> _InterruptedError:
        """What an answer other than yes means. Raises BuildError when it is final."""
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            expected = _EXPECTED_BYTE.search(answer.text)
            return _InterruptedError(status_text(answer), offset=int(expected[1]) if expected else _next_byte(answer))
        if is_passing(answer):
            return _InterruptedError(status_text(answer), wait=asked_wait(answer))
        if answer.status_code == httpx.codes.NOT_FOUND:
            return _InterruptedError(status_text(answer), gone=True)
        if answer.status_code == httpx.codes.BAD_REQUEST:
            return _InterruptedError(status_text(answer), spoilt=True)
        self.registry.expect(answer)
        raise AssertionError("expect() of no status raises")

    def _find_offset(self, error: _InterruptedError) -> None:
        """Continue where the registry says. If it does not say, send again all that it has not confirmed."""
        offset = self.offset if error.offset is None else error.offset
        if not (error.gone or error.spoilt) and error.offset is None and self.location is not None:
            answer = self.registry.request("GET", self.location, self.repository)
            if answer.is_success:
                self.location = self.registry.location(answer)
                offset = max(offset, _next_byte(answer) or 0)
        if error.gone or error.spoilt or offset > self.blob.size:
            self.location, offset = None, 0
        self._go_on_from(offset)

    def _go_on_from(self, offset: int) -> None:
        self.offset = offset
        self.count(offset - self.counted)
        self.counted = offset


def _next_byte(answer: httpx.Response) -> int | None:
    """The next byte by the Range header. `0-0` stands for an upload that has no bytes yet."""
    received = _RECEIVED_RANGE.fullmatch(answer.headers.get("Range", ""))
    if received is None:
        return None
    last = int(received[1])
    return last + 1 if last else 0


class _Pieces:
    """Pieces of any length, given out as so many bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def take(self, size: int) -> Iterator[bytes]:
        """The next `size` bytes. Raises BuildError when there are fewer."""
        while size:
            piece = self._rest or next(self._pieces, b"")
            if not piece:
                raise BuildError(f"what is uploaded ended {size} bytes early")
            yield piece[:size]
            self._rest = piece[size:]
            size -= min(size, len(piece))
