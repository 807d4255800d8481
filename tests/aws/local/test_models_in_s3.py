"""Facts of a model in S3, from the local platform's."""

from __future__ import annotations

import base64
import hashlib
import random
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from local_account import Account
from pairs import edit_tensors, write_pair

from toolkit.apply.progress import Silent
from toolkit.errors import UnreadableModel
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.objects import S3Files
from toolkit.platforms.sagemaker.staging import stage_weights
from toolkit.platforms.sagemaker.stored import stored_sha256
from toolkit.recipe.content import manifest
from toolkit.recipe.model_files import read_folder, read_model
from toolkit.recipe.source import ModelSource


def test_a_model_in_s3_is_read_like_a_folder(account: Account, tmp_path: Path) -> None:
    write_pair(tmp_path)
    edit_tensors(tmp_path / "target", {"model.layers.0.mlp.weight": (1000, 1000)})
    s3 = account.s3
    s3.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for path in (tmp_path / "target").iterdir():
        s3.upload_file(str(path), "models", f"mine/target/{path.name}")

    facts = read_model(S3Files("s3://models/mine/target/", s3), "s3://models/mine/target/")

    folder = read_folder(tmp_path / "target")
    assert (facts.config, facts.tensors, facts.tokenizer) == (folder.config, folder.tensors, folder.tokenizer)
    assert facts.source == "S3, s3://models/mine/target/"


def test_a_bucket_that_is_not_there(account: Account) -> None:
    with pytest.raises(UnreadableModel, match="cannot list") as error:
        read_model(S3Files("s3://nowhere/target/", account.s3), "s3://nowhere/target/")
    assert "s3:ListBucket" in error.value.hint


def test_a_prefix_without_a_model(account: Account) -> None:
    account.s3.create_bucket(Bucket="empty", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    with pytest.raises(UnreadableModel, match=r"s3://empty/target/config\.json is missing"):
        read_model(S3Files("s3://empty/target", account.s3), "s3://empty/target")


def no_hub(source: ModelSource) -> S3Files:
    raise AssertionError(f"{source} is in a folder")


def test_what_is_staged_is_known_by_its_content(account: Account, tmp_path: Path) -> None:
    """Below moto's own limit, above it, and in parts."""
    for size in (0, 1000, 3_000_000, 20_000_000):
        (tmp_path / f"{size}.bin").write_bytes(random.Random(size).randbytes(size))
    clients = Clients(account.session)
    clients.s3.create_bucket(Bucket="staged", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    files = [vars(file) for file in manifest(tmp_path)]
    request = {"Bucket": "staged", "Prefix": "weights/", "Source": str(tmp_path), "Files": files}
    stage_weights(clients, request, Silent(), no_hub)
    keys = {f"weights/{file['path']}": file["sha256"] for file in files}
    assert stored_sha256(clients, "staged", keys) == keys


def test_an_upload_that_is_not_under_way_is_not_completed(account: Account) -> None:
    account.s3.create_bucket(Bucket="uploads", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    parts = {"Parts": [{"PartNumber": 1, "ETag": "x"}]}
    for bucket, code in (("uploads", "NoSuchUpload"), ("nowhere", "NoSuchBucket")):
        with pytest.raises(ClientError, match=code):
            account.s3.complete_multipart_upload(Bucket=bucket, Key="x", UploadId="gone", MultipartUpload=parts)


def test_an_upload_is_completed_twice_as_once(account: Account) -> None:
    """boto3 asks again where an answer was lost."""
    where = {"Bucket": "lost-answers", "Key": "x"}
    account.s3.create_bucket(Bucket=where["Bucket"], CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    upload = {**where, "UploadId": account.s3.create_multipart_upload(**where)["UploadId"]}
    part = account.s3.upload_part(**upload, PartNumber=1, Body=b"x" * 2_000_000)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    once, twice = (account.s3.complete_multipart_upload(**upload, MultipartUpload=parts)["ETag"] for _ in range(2))
    assert once == twice
    assert account.s3.get_object(**where)["ContentLength"] == 2_000_000


@pytest.mark.parametrize("size", [1, 2_000_000])
def test_a_part_of_an_upload_that_is_not_under_way_is_refused(account: Account, size: int) -> None:
    """Also of one that was completed."""
    where = {"Bucket": f"parts-{size}", "Key": "x"}
    account.s3.create_bucket(Bucket=where["Bucket"], CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    upload = {**where, "UploadId": account.s3.create_multipart_upload(**where)["UploadId"]}
    part = account.s3.upload_part(**upload, PartNumber=1, Body=b"x" * size)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    account.s3.complete_multipart_upload(**upload, MultipartUpload=parts)
    for gone in (upload, {**where, "UploadId": "gone"}):
        with pytest.raises(ClientError, match="NoSuchUpload"):
            account.s3.upload_part(**gone, PartNumber=2, Body=b"x" * size)
    assert account.s3.get_object(**where)["ContentLength"] == size


CONTRADICTIONS: list[tuple[dict[str, str], str]] = [
    ({"ContentMD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}, "BadDigest"),  # of nothing
    ({"ContentMD5": "no"}, "InvalidDigest"),
    ({"ChecksumSHA256": "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}, "BadDigest"),
    ({"ChecksumSHA1": "2jmj7l5rSw0yVb/vlWAYkK/YBwk="}, "BadDigest"),
    ({"ChecksumCRC32": "AAAAAA=="}, "BadDigest"),
    ({"ChecksumSHA256": "AAAAAA=="}, "InvalidDigest"),
]


def test_a_body_that_is_not_what_its_request_says_is_refused(account: Account) -> None:
    s3: Any = account.s3
    s3.create_bucket(Bucket="refused", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for size in (10, 2_000_000):
        for said, code in CONTRADICTIONS:
            with pytest.raises(ClientError, match=code):
                s3.put_object(Bucket="refused", Key="x", Body=b"x" * size, **said)
    assert "Contents" not in s3.list_objects_v2(Bucket="refused")


def test_a_body_that_is_what_its_request_says_is_taken(account: Account) -> None:
    s3: Any = account.s3
    s3.create_bucket(Bucket="digests", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for size in (10, 2_000_000):
        body = b"x" * size
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        for algorithm in ("CRC32", "SHA1", "SHA256"):
            s3.put_object(Bucket="digests", Key="x", Body=body, ContentMD5=md5, ChecksumAlgorithm=algorithm)
            assert s3.get_object(Bucket="digests", Key="x")["Body"].read() == body


@pytest.mark.parametrize("last", [7, 2_000_000])
def test_a_part_of_an_object_is_read_by_its_number(account: Account, last: int) -> None:
    """API reference of GetObject, partNumber."""
    s3: Any = account.s3
    where = {"Bucket": f"read-parts-{last}", "Key": "a b"}
    s3.create_bucket(Bucket=where["Bucket"], CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    upload = {**where, "UploadId": s3.create_multipart_upload(**where)["UploadId"]}
    bodies = {1: b"x" * 5_300_000, 2: b"y" * last}
    parts = [
        {"PartNumber": number, "ETag": s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"]}
        for number, body in bodies.items()
    ]
    with pytest.raises(ClientError, match="InvalidRequest"):
        s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, MpuObjectSize=1)
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts}, MpuObjectSize=5_300_000 + last)
    for number, body in bodies.items():
        answer = s3.get_object(**where, PartNumber=number)
        assert (answer["Body"].read(), answer["PartsCount"]) == (body, 2)
    with pytest.raises(ClientError, match="InvalidPartNumber"):
        s3.get_object(**where, PartNumber=3)
    with pytest.raises(ClientError, match="InvalidRequest"):
        s3.get_object(**where, PartNumber=1, Range="bytes=0-1")


@pytest.mark.parametrize("size", [0, 10, 2_000_000])
def test_an_object_without_parts_has_one(account: Account, size: int) -> None:
    s3: Any = account.s3
    where = {"Bucket": f"one-part-{size}", "Key": "x"}
    s3.create_bucket(Bucket=where["Bucket"], CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(**where, Body=b"x" * size)
    assert s3.get_object(**where, PartNumber=1)["Body"].read() == b"x" * size
    with pytest.raises(ClientError, match="InvalidPartNumber"):
        s3.get_object(**where, PartNumber=2)


def test_a_list_goes_on_where_it_ended_and_nowhere_else(account: Account) -> None:
    s3: Any = account.s3
    s3.create_bucket(Bucket="pages", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for key in ("a", "b", "c"):
        s3.put_object(Bucket="pages", Key=key, Body=b"")
    first = s3.list_objects_v2(Bucket="pages", MaxKeys=2)
    rest = s3.list_objects_v2(Bucket="pages", ContinuationToken=first["NextContinuationToken"])
    assert [item["Key"] for item in rest["Contents"]] == ["c"]
    with pytest.raises(ClientError, match="InvalidArgument"):
        s3.list_objects_v2(Bucket="pages", ContinuationToken="mine")


def test_parts_in_another_order_are_no_object(account: Account) -> None:
    """API reference of CompleteMultipartUpload: InvalidPartOrder."""
    where = {"Bucket": "order", "Key": "x"}
    account.s3.create_bucket(Bucket=where["Bucket"], CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    upload = {**where, "UploadId": account.s3.create_multipart_upload(**where)["UploadId"]}
    parts = [
        {
            "PartNumber": number,
            "ETag": account.s3.upload_part(**upload, PartNumber=number, Body=b"x" * 5_300_000)["ETag"],
        }
        for number in (1, 2)
    ]
    for wrong in (parts[::-1], [parts[0], parts[0]]):
        with pytest.raises(ClientError, match="InvalidPartOrder"):
            account.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": wrong})
    account.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    assert account.s3.get_object(**where)["ContentLength"] == 10_600_000


def test_versions_of_large_objects_are_listed(account: Account) -> None:
    """As tools do that empty a bucket; what was listed still has its content."""
    s3, bucket = account.s3, "versions"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    sizes = [2_000_000, 3_000_000]
    for size in sizes:
        s3.put_object(Bucket=bucket, Key="x", Body=b"x" * size)
    upload = {"Bucket": bucket, "Key": "x"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    part = s3.upload_part(**upload, PartNumber=1, Body=b"y" * 4_000_000)
    s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    for _ in range(2):
        versions = s3.list_object_versions(Bucket=bucket)["Versions"]
        assert sorted(each["Size"] for each in versions) == [*sizes, 4_000_000]
    for each in versions:
        answer = s3.get_object(Bucket=bucket, Key="x", VersionId=each["VersionId"])
        assert len(answer["Body"].read()) == each["Size"]
