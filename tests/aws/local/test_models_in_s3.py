"""Facts of a model in S3, from the local platform's."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_account import Account
from pairs import edit_tensors, write_pair

from toolkit.errors import UnreadableModel
from toolkit.platforms.sagemaker.model_files import S3Files
from toolkit.recipe.model_files import read_folder, read_model


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
