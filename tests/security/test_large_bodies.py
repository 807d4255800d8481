"""What a request may be large in, and that large objects go to the disk: the daemon's memory is the machine's."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError
from local_account import ROLE, Account

from toolkit.platforms.local.front import LARGEST_BODY

SIZE = 128 * 1024**2
MiB = 1024**2


def peak_memory(pid: int) -> int:
    """Most bytes that the process ever held."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("large") / "model.safetensors"
    with file.open("wb") as opened:
        for number in range(SIZE // MiB):
            opened.write(number.to_bytes(4, "big") * (MiB // 4))
    return file


@pytest.mark.parametrize("way", ["one request", "in parts", "presigned"])
def test_a_large_object_takes_no_memory(account: Account, large: Path, way: str) -> None:
    """600 MiB took 1.2 GB."""
    key = f"large {way}/model.safetensors"
    before = peak_memory(account.daemon.pid)
    if way == "in parts":
        account.s3.upload_file(str(large), "models", key)
    elif way == "one request":
        with large.open("rb") as opened:
            etag = account.s3.put_object(Bucket="models", Key=key, Body=opened)["ETag"]
        assert etag == f'"{hashlib.md5(large.read_bytes()).hexdigest()}"'
    else:
        url = urlsplit(account.s3.generate_presigned_url("put_object", {"Bucket": "models", "Key": key}))
        connection = http.client.HTTPConnection(url.netloc)
        with large.open("rb") as opened:
            connection.request("PUT", f"{url.path}?{url.query}", opened, {"Content-Length": str(SIZE)})
        assert connection.getresponse().status == 200
        connection.close()
    digest = hashlib.sha256()
    for piece in account.s3.get_object(Bucket="models", Key=key)["Body"].iter_chunks(MiB):
        digest.update(piece)
    assert digest.digest() == hashlib.sha256(large.read_bytes()).digest()
    assert peak_memory(account.daemon.pid) - before < 64 * MiB
    account.s3.delete_object(Bucket="models", Key=key)


def test_a_large_object_is_an_object_like_any(account: Account, tmp_path: Path) -> None:
    """Ranges, copies, replacing, deleting while it is read, and boto3's own download."""
    content = b"".join(number.to_bytes(4, "big") * (MiB // 4) for number in range(20))
    (tmp_path / "any").write_bytes(content)
    account.s3.upload_file(str(tmp_path / "any"), "models", "any")
    part = account.s3.get_object(Bucket="models", Key="any", Range=f"bytes={5 * MiB}-{5 * MiB + 7}")
    assert (part["Body"].read(), part["ContentRange"]) == (
        b"\0\0\0\5" * 2,
        f"bytes {5 * MiB}-{5 * MiB + 7}/{len(content)}",
    )
    tail = account.s3.get_object(Bucket="models", Key="any", Range="bytes=-4")["Body"].read()
    assert tail == b"\0\0\0\23"
    with pytest.raises(ClientError, match="InvalidRange"):
        account.s3.get_object(Bucket="models", Key="any", Range=f"bytes={len(content)}-")
    account.s3.copy_object(Bucket="models", Key="copy", CopySource={"Bucket": "models", "Key": "any"})
    account.s3.download_file("models", "copy", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == content

    reading = account.s3.get_object(Bucket="models", Key="any")["Body"]
    account.s3.delete_object(Bucket="models", Key="any")
    assert reading.read() == content
    account.s3.put_object(Bucket="models", Key="copy", Body=b"small")
    assert account.s3.get_object(Bucket="models", Key="copy")["Body"].read() == b"small"
    with pytest.raises(ClientError, match="NoSuchKey"):
        account.s3.get_object(Bucket="models", Key="any")


def test_parts_that_are_wrong_can_be_sent_again(account: Account) -> None:
    upload = {"Bucket": "models", "Key": "parts"}
    upload["UploadId"] = account.s3.create_multipart_upload(**upload)["UploadId"]
    first = account.s3.upload_part(**upload, PartNumber=1, Body=b"1" * 5 * MiB)["ETag"]
    second = account.s3.upload_part(**upload, PartNumber=2, Body=b"2")["ETag"]
    for etags, why in (((first, first), "InvalidPart"), ((second,), "InvalidPart")):
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]
        with pytest.raises(ClientError, match=why):
            account.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    parts = [{"PartNumber": 1, "ETag": first}, {"PartNumber": 2, "ETag": second}]
    account.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert account.s3.get_object(Bucket="models", Key="parts")["Body"].read() == b"1" * 5 * MiB + b"2"


def test_an_upload_without_a_key_is_refused_before_it_is_read(account: Account) -> None:
    url = urlsplit(account.daemon.control_url)
    connection = http.client.HTTPConnection(url.netloc, timeout=10)
    connection.putrequest("PUT", "/models/large")
    connection.putheader("Content-Length", str(600 * MiB))
    connection.endheaders(b"only the beginning")
    assert connection.getresponse().status == 403
    connection.close()


def test_any_other_request_is_bounded(account: Account) -> None:
    with pytest.raises(ClientError, match=f"EntityTooLarge.*at most {LARGEST_BODY} bytes"):
        account.sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE + "x" * LARGEST_BODY)
    with pytest.raises(ClientError, match="EntityTooLarge"):
        account.s3.put_bucket_policy(Bucket="models", Policy="x" * (LARGEST_BODY + 1))


def test_a_body_of_unknown_length_is_refused(account: Account) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b" " * MiB

    url = urlsplit(account.daemon.control_url)
    connection = http.client.HTTPConnection(url.netloc, timeout=30)
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=x/20260101/us-west-2/sagemaker/aws4_request, "}
    headers["Authorization"] += f"SignedHeaders=host, Signature={'0' * 64}"
    headers["X-Amz-Date"] = "20260101T000000Z"
    before = peak_memory(account.daemon.pid)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.request("POST", "/", endless(), headers, encode_chunked=True)
    assert peak_memory(account.daemon.pid) - before < 32 * MiB
    connection.close()


def test_a_body_that_is_not_the_one_signed_is_refused(account: Account) -> None:
    account.s3.meta.events.register("before-send.s3.PutObject", _other_body)
    with pytest.raises(ClientError, match="XAmzContentSHA256Mismatch"):
        account.s3.put_object(Bucket="models", Key="other", Body=b"signed")
    account.s3.meta.events.unregister("before-send.s3.PutObject", _other_body)
    assert "Contents" not in account.s3.list_objects_v2(Bucket="models", Prefix="other")


def _other_body(request: object, **_: object) -> None:
    request.body = b"change"  # type: ignore[attr-defined]
