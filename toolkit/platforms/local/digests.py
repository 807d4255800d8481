"""What a request to S3 says of its own body, held against the body."""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import IO, Any

from toolkit.platforms.local.sigv4 import AccessError

_PIECE = 1024**2


class _Crc32:
    def __init__(self) -> None:
        self._value = 0

    def update(self, piece: bytes) -> None:
        self._value = zlib.crc32(piece, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


_MD5 = "content-md5"
# CRC32C and CRC64NVME are not looked at: Python has neither.
_DIGESTS: Mapping[str, Callable[[], Any]] = {
    _MD5: lambda: hashlib.md5(usedforsecurity=False),
    "x-amz-checksum-crc32": _Crc32,
    "x-amz-checksum-sha1": lambda: hashlib.sha1(usedforsecurity=False),
    "x-amz-checksum-sha256": hashlib.sha256,
}


def must_match(headers: Mapping[str, str], file: IO[bytes], *, is_content: bool) -> None:
    """Raise AccessError where a header contradicts the body, or is no digest, in S3's words (its error responses).

    Of other bodies than an object's only the MD5 counts: CompleteMultipartUpload has the checksum of the object.
    """
    for name, digest in _DIGESTS.items():
        if name in headers and (is_content or name == _MD5):
            said, found = _decode(headers[name]), digest()
            if said is None or len(said) != len(found.digest()):
                raise AccessError("InvalidDigest", f"The value of {name} that you specified is not valid.")
            while piece := file.read(_PIECE):
                found.update(piece)
            file.seek(0)
            if said != found.digest():
                message = f"The value of {name} that you specified did not match what the server received."
                raise AccessError("BadDigest", message)


def _decode(value: str) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return None
