"""One file on its way to S3, by many threads: its parts, what an upload that was killed left of them, its digests."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from toolkit.errors import PlatformError
from toolkit.platforms.sagemaker.aws_errors import has_code, is_denied, unless
from toolkit.platforms.sagemaker.stored import sha256_of
from toolkit.recipe.content import PART_BYTES, part_bytes

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import CompletedPartTypeDef, PartTypeDef

    from toolkit.platforms.sagemaker.clients import Clients

RANGE_BYTES = 32 * 1024**2
"""What one connection is asked for at a time."""

# Another command finished or removed the same upload meanwhile.
_IS_GONE = has_code("NoSuchUpload")


@dataclass(frozen=True)
class File:
    """A file to send: its name under the prefix, its size in bytes, and what reads a range of it, in pieces.

    `sha256` is its ContentHash, None for one of the hub, where only sending it tells; `hub` is the hub's digest of it.
    One that is not `in_ranges` is read once, from its beginning to its end. `label` is its name in errors.
    """

    name: str
    size: int
    read: Callable[[int, int], Iterator[bytes]]
    label: str
    sha256: str | None = None
    hub: str = ""
    in_ranges: bool = True


@dataclass(frozen=True)
class Target:
    """Where files go: `encryption` are parameters of S3's calls."""

    clients: Clients
    bucket: str
    prefix: str
    encryption: Mapping[str, Any]

    def unfinished(self) -> dict[str, str]:
        """By key, the upload in parts that was begun last and never completed; none where one may not look."""
        pages = self.clients.uploads.get_paginator("list_multipart_uploads")
        ask = partial(list[Any], pages.paginate(Bucket=self.bucket, Prefix=self.prefix))
        listed = [one for page in unless(self.clients, ask, is_denied) or [] for one in page.get("Uploads", [])]
        ours = [one for one in listed if one.get("ChecksumAlgorithm") == "SHA256"]
        return {one["Key"]: one["UploadId"] for one in sorted(ours, key=lambda one: one["Initiated"])}


class Upload:
    """A file on its way, with the parts of an `unfinished` upload of it. All of its methods raise PlatformError."""

    def __init__(self, target: Target, file: File, unfinished: str = "") -> None:
        self.file = file
        self.is_small = file.size < PART_BYTES
        self._part = part_bytes(file.size)
        self.room = threading.Semaphore(max(1, RANGE_BYTES // self._part))
        """Of a file that is not in ranges: how many of its parts may still be held."""
        self._target, self._id = target, unfinished
        self._where: Mapping[str, Any] = {"Bucket": target.bucket, "Key": target.prefix + file.name}
        self._s3 = target.clients.uploads
        self._lock = threading.Lock()
        self._is_begun = self._is_discarded = False
        self._there: Mapping[int, PartTypeDef] = {}
        self._sent: dict[int, CompletedPartTypeDef] = {}
        self._digests: dict[int, bytes] = {}
        self._digest = _DigestInOrder(file)

    @property
    def parts(self) -> int:
        """How many parts it is sent in."""
        return max(1, -(-self.file.size // self._part))

    def ranges(self) -> Iterator[tuple[int, int]]:
        """What to read of it, each a number of whole parts."""
        size = self.file.size
        step = max(RANGE_BYTES, self._part) if self.file.in_ranges else max(size, 1)
        return ((start, min(start + step, size)) for start in range(0, max(size, 1), step))

    def read(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The parts of a range, with their numbers, as they come."""
        if self.file.size == 0:
            yield 1, b""
            return
        pieces, missing = list[bytes](), min(self._part, end - start)
        for piece in self.file.read(start, end):
            rest = piece
            while rest:
                pieces.append(rest[:missing])
                rest = rest[missing:]
                missing -= len(pieces[-1])
                if not missing:
                    part = b"".join(pieces)
                    pieces.clear()
                    start += len(part)
                    yield (start - 1) // self._part + 1, part
                    missing = min(self._part, end - start)
        if start < end:
            self.discard()
            found = start + min(self._part, end - start) - missing
            message = f"{self.file.label} ends after {found} of {self.file.size} bytes"
            raise PlatformError(message, hint="Wait until it is complete, then plan and deploy again.")

    def put(self, data: bytes) -> str:
        """Send all of a small file; S3's SHA-256 of it."""
        sha256 = hashlib.sha256(data)
        self._digest.add(1, data)
        self._must_be_the_file(sha256.hexdigest())
        checksum = base64.b64encode(sha256.digest()).decode()
        self._s3.put_object(
            **self._where,
            **_checked(checksum),
            Body=data,
            **self._target.encryption,
        )
        return self._arrived(sha256.hexdigest())

    def send(self, number: int, data: bytes) -> None:
        """Send a part that S3 does not have."""
        if not self._begin():
            return
        self._digests[number] = hashlib.sha256(data).digest()
        checksum, there = base64.b64encode(self._digests[number]).decode(), self._there.get(number, {})
        etag = there.get("ETag", "")
        if there.get("ChecksumSHA256") != checksum:
            what = {**self._where, **_checked(checksum), "UploadId": self._id, "PartNumber": number}
            ask = partial(self._s3.upload_part, **what, Body=data)
            answer = unless(self._target.clients, ask, _IS_GONE)
            etag = answer["ETag"] if answer else ""
        self._sent[number] = {"PartNumber": number, "ETag": etag, "ChecksumSHA256": checksum}

    def let_go(self, number: int, data: bytes) -> list[int]:
        """Take a part, once it was sent, into the digest; sizes of those that nothing needs any more."""
        return self._digest.add(number, data)

    def is_sent(self) -> bool:
        """Whether all parts were."""
        return self._digest.taken == self.file.size

    def complete(self) -> str:
        """Make the parts an object; S3's SHA-256 of it."""
        numbers = sorted(self._sent)
        sha256 = hashlib.sha256(b"".join(self._digests[number] for number in numbers)).hexdigest()
        self._must_be_the_file(sha256)
        parts: Any = {"Parts": [self._sent[number] for number in numbers]}
        ask = partial(self._s3.complete_multipart_upload, **self._where, UploadId=self._id, MultipartUpload=parts)
        unless(self._target.clients, ask, _IS_GONE)  # and what is there instead may be the same
        return self._arrived(sha256)

    def discard(self) -> None:
        """Remove what was sent: it is of no use for another attempt."""
        with self._lock:
            self._is_discarded = True
            if self._id:
                ask = partial(self._s3.abort_multipart_upload, **self._where, UploadId=self._id)
                unless(self._target.clients, ask, _IS_GONE)

    def _begin(self) -> bool:
        """Look at the parts that an unfinished upload has, or begin one; False where it was discarded."""
        with self._lock:
            if self._is_begun or self._is_discarded:
                return not self._is_discarded
            if self._id:
                pages = self._s3.get_paginator("list_parts").paginate(**self._where, UploadId=self._id)
                found = unless(self._target.clients, partial(list[Any], pages), is_denied, _IS_GONE)
                self._there = {part["PartNumber"]: part for page in found or [] for part in page.get("Parts", [])}
                if found is None:
                    self._id = ""
            if not self._id:
                begun = self._s3.create_multipart_upload(
                    **self._where,
                    ChecksumAlgorithm="SHA256",
                    **self._target.encryption,
                )
                self._id = begun["UploadId"]
            self._is_begun = True
            return True

    def _must_be_the_file(self, sha256: str) -> None:
        """Raises PlatformError unless it is what was planned, or what the hub says, and leaves nothing of it."""
        file = self.file
        if problem := self._digest.problem():
            self.discard()
            hint = "Try again; if it stays so, what lies in between changes files."
            raise PlatformError(f"{file.label} arrived with {problem}", hint=hint)
        if file.sha256 not in (None, sha256):
            self.discard()
            self._refuse(f"SHA-256 {sha256}, not {file.sha256}")

    def _arrived(self, sha256: str) -> str:
        stored = sha256_of(self._target.clients, self._target.bucket, self._where["Key"])
        if stored != sha256:
            self._s3.delete_object(**self._where)
            self._refuse(f"S3 has SHA-256 {stored or None}, not {sha256}")
        return sha256

    def _refuse(self, found: str) -> NoReturn:
        message = f"{self.file.label} changed after it was planned, or on its way: {found}"
        raise PlatformError(message, hint="Plan and deploy again.")


class _DigestInOrder:
    """The digest that the hub has of a file, over its bytes in order. Parts that come before their turn wait for it."""

    def __init__(self, file: File) -> None:
        self._kind, _, self._said = file.hub.partition(":")
        blob = b"blob %d\0" % file.size
        self._hash = hashlib.sha256() if self._kind == "sha256" else hashlib.sha1(blob, usedforsecurity=False)
        self._waiting: dict[int, bytes] = {}
        self._next = 1
        self.taken = 0

    def add(self, number: int, data: bytes) -> list[int]:
        """Sizes of the parts whose turn has come with this one; all at once where the hub says nothing."""
        if not self._said:
            self.taken += len(data)
            return [len(data)]
        self._waiting[number] = data
        sizes = []
        while (part := self._waiting.pop(self._next, None)) is not None:
            self._hash.update(part)
            self._next += 1
            sizes.append(len(part))
        self.taken += sum(sizes)
        return sizes

    def problem(self) -> str:
        """What is wrong with the file, empty where nothing is."""
        found = self._hash.hexdigest()
        wrong = self._said not in ("", found)
        return f"another {self._kind} digest than the hub says: {found}" if wrong else ""


def _checked(checksum: str) -> dict[str, Any]:
    """S3 refuses what arrives with another SHA-256."""
    return {"ChecksumAlgorithm": "SHA256", "ChecksumSHA256": checksum}
