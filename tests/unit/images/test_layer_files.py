"""What is read of a layer, however it is packed."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Callable

import pytest
from backports import zstd

from toolkit.errors import BuildError
from toolkit.images.layer_files import is_readable, read_layer
from toolkit.images.manifest import LAYER, ZSTD_LAYER, Blob, digest_of

PLAIN = "application/vnd.oci.image.layer.v1.tar"
METADATA = "/opt/venv/lib/python3.12/site-packages/a-1.dist-info/METADATA"
PACKED: dict[str, Callable[[bytes], bytes]] = {LAYER: gzip.compress, ZSTD_LAYER: zstd.compress, PLAIN: bytes}
# of zstd: what a reader passes over, as the table of contents that some put behind a layer
SKIPPED = struct.pack("<II", 0x184D2A50, 5) + b"notes"
SUMMED = {int(zstd.CompressionParameter.checksum_flag): 1}


def layer(zeros: int = 0) -> bytes:
    """A tar: so many zeros, and a package behind them."""
    out, text = io.BytesIO(), b"Name: a\nVersion: 1\n\nwords\n"
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in (("opt/zeros", bytes(zeros)), (METADATA.lstrip("/"), text)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def blob_of(content: bytes, media_type: str) -> Blob:
    return Blob(media_type, digest_of(content), len(content))


@pytest.mark.parametrize("media_type", PACKED)
@pytest.mark.parametrize("piece", [7, 2**20])
def test_packages_are_found_however_a_layer_is_packed_and_cut(media_type: str, piece: int) -> None:
    pack, content = PACKED[media_type], layer(3_000_000)
    packed = pack(content[:5000]) + (SKIPPED if media_type == ZSTD_LAYER else b"") + pack(content[5000:])
    pieces = (packed[start : start + piece] for start in range(0, len(packed), piece))
    blob = blob_of(packed, media_type)
    assert is_readable(blob)
    assert read_layer("an-image", blob, pieces).files == {METADATA: "Name: a\nVersion: 1\n"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no zstd", "cannot be unpacked"),
        (zstd.compress(layer(3_000_000))[:-20], "cannot be unpacked|is not what its digest says"),
        (zstd.compress(layer(), options=SUMMED)[:-1] + b"x", "cannot be unpacked"),
    ],
    ids=["another packing", "cut", "a wrong sum"],
)
def test_a_layer_of_zstd_that_is_broken_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(BuildError, match=why):
        read_layer("an-image", Blob(ZSTD_LAYER, f"sha256:{'0' * 64}", len(content)), iter([content]))
