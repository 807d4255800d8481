"""What even the owner's own requests cannot do, and how a home with too wide rights is treated."""

from __future__ import annotations

import os
from pathlib import Path

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError
from local_account import CONTAINERS, Account

from toolkit.errors import PlatformError
from toolkit.platforms.local import credentials
from toolkit.platforms.local.clients import DaemonSession
from toolkit.platforms.local.daemon import running, start, stop
from toolkit.recipe.unsafe import CODE_VARIABLES


@pytest.mark.parametrize("variable", sorted(CODE_VARIABLES))
def test_a_variable_that_starts_code_is_refused(account: Account, variable: str) -> None:
    with pytest.raises(ClientError, match=f"takes no {variable} in Environment"):
        account.create_model("code", {variable: "/opt/ml/model"})


def test_a_home_with_wide_rights_is_narrowed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    home.joinpath("credentials").write_text("[default]")
    home.joinpath("credentials").chmod(0o666)
    try:
        daemon = start(home, CONTAINERS)
        assert home.stat().st_mode & 0o777 == 0o700
        assert Path(daemon.credentials_file).stat().st_mode & 0o777 == 0o600
    finally:
        stop(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can give a folder away")
def test_a_home_of_somebody_else_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    with pytest.raises(PlatformError, match="belongs to another user"):
        start(home, CONTAINERS)
    assert running(home) is None


def test_a_key_that_others_may_have_read_is_not_used(account: Account, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    credentials.create(file)
    file.chmod(0o640)
    with pytest.raises(PlatformError, match=r"open to other users \(mode 640\)") as caught:
        credentials.read(file)
    assert "toolkit local stop" in caught.value.hint


def test_a_plain_client_of_the_owner_may_use_the_key(account: Account) -> None:
    """`AWS_SHARED_CREDENTIALS_FILE` and an endpoint URL are all that any other program needs."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_SHARED_CREDENTIALS_FILE", account.daemon.credentials_file)
        environment.delenv("AWS_ACCESS_KEY_ID", raising=False)
        sts = boto3.Session().client("sts", region_name="us-west-2", endpoint_url=account.daemon.control_url)
        assert sts.get_caller_identity()["Account"] == "123456789012"
    sts.close()


def test_presigned_urls_of_the_owners_session_work_until_they_expire(account: Account) -> None:
    s3 = DaemonSession(account.daemon).client("s3")
    target = {"Bucket": "models", "Key": "target/config.json"}
    url = s3.generate_presigned_url("get_object", target, ExpiresIn=60)
    assert httpx.get(url, trust_env=False).content == b"{}"
    assert httpx.get(url.replace("config.json", "other.json"), trust_env=False).status_code == 403
    assert httpx.delete(url, trust_env=False).status_code == 403
    upload = s3.generate_presigned_url("put_object", {"Bucket": "models", "Key": "uploaded"}, ExpiresIn=60)
    assert httpx.put(upload, content=b"by URL", trust_env=False).status_code == 200
    assert s3.get_object(Bucket="models", Key="uploaded")["Body"].read() == b"by URL"


def test_odd_names_and_headers_of_the_owner_get_in(account: Account) -> None:
    """What boto3 signs in its own way: spaces, slashes, dots, other scripts, and underscores in headers."""
    for key in ("a b/+c", "ü/ß.json", "./x//y/..", "100%", "a=b&c?d", "~tilde*"):
        account.s3.put_object(Bucket="models", Key=key, Body=b"x", Metadata={"my_key": "my  value"})
        assert account.s3.head_object(Bucket="models", Key=key)["Metadata"] == {"my_key": "my  value"}
        account.s3.delete_object(Bucket="models", Key=key)
    tags = account.session.client("resourcegroupstaggingapi").get_resources(
        TagFilters=[{"Key": "a b", "Values": ["ü"]}]
    )
    assert tags["ResourceTagMappingList"] == []
