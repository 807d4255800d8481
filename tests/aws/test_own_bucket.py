"""A bucket of the user's own: everything works, and nothing of it is made, set or removed but what the toolkit put."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import HUB_RECIPE, write_pair, write_recipe
from rights import WITHOUT_A_RIGHT
from standin import ACCOUNT, StandIn
from standin_caller import CALLER
from standin_iam import Rights

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import PlatformError, UsageError
from toolkit.loading import load
from toolkit.planning.resources import Account
from toolkit.platforms.kubernetes.models import find_head, upload_head
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.platforms.sagemaker.rules.names import own_bucket
from toolkit.platforms.sagemaker.session import SageMakerSession

BUCKET = "team-models"
RECIPE = HUB_RECIPE.replace("platform: {", "platform: {role: create, ").replace("org/", "./")
THEIRS = {"readme.txt", "reports/2026.csv"}


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.001", "TOOLKIT_BUCKET": BUCKET}.items():
        monkeypatch.setenv(name, value)
    return write_recipe(write_pair(tmp_path).parent, RECIPE)


@pytest.fixture
def s3(standin: StandIn) -> Any:
    """The bucket as its owner has it, with things of theirs in it."""
    client: Any = standin.session().client("s3")
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for key in THEIRS:
        client.put_object(Bucket=BUCKET, Key=key, Body=b"x")
    client.create_multipart_upload(Bucket=BUCKET, Key="reports/large.csv")
    standin.calls.clear()
    return client


def keys(s3: Any) -> set[str]:
    return {item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])}


def test_a_whole_life_leaves_it_as_it_was(standin: StandIn, s3: Any, recipe: Path) -> None:
    needed = permissions(load(recipe), Account(ACCOUNT, "us-west-2", bucket=BUCKET))
    standin.account.iam.caller = Rights.of(item.statement() for item in needed)
    toolkit.deploy(recipe, progress=Silent())
    assert any(key.startswith("weights/") for key in keys(s3))
    recipe.write_text(RECIPE.replace("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    toolkit.deploy(recipe, progress=Silent())
    toolkit.rollback(recipe, progress=Silent())
    toolkit.destroy("hub", progress=Silent())  # by its name alone, too
    assert keys(s3) == THEIRS
    calls = [call for call in standin.calls if call.service == "s3"]
    assert {call.request["Bucket"] for call in calls} == {BUCKET}
    changed = {call.operation for call in calls if "Bucket" in call.operation and call.operation != "HeadBucket"}
    assert changed == set()
    refused = {access.action for access in standin.account.iam.refused if access.who == CALLER}
    assert refused <= WITHOUT_A_RIGHT


def test_templates_make_none(s3: Any, recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "stack.json"
    assert run(["plan", str(recipe), "--format", "cloudformation", "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert not {item["Type"] for item in document["Resources"].values()} & {"AWS::S3::Bucket", "AWS::S3::BucketPolicy"}
    assert "Parameters" not in document
    assert f"s3://{BUCKET}/weights/" in out.read_text()


def test_cleaning_leaves_what_is_not_the_toolkits(s3: Any, recipe: Path) -> None:
    toolkit.deploy(recipe, progress=Silent())
    found = SageMakerSession().cleaner("us-west-2").find()
    names = {item.name for item in found.items if item.name.startswith("s3://")}
    assert any(name.startswith(f"s3://{BUCKET}/weights/") for name in names)
    assert [name for name in names if "reports" in name or "readme" in name] == []


def test_where_there_is_none_it_says_so_and_makes_none(standin: StandIn, recipe: Path) -> None:
    with pytest.raises(PlatformError, match=r"there is no bucket team-models, which \$TOOLKIT_BUCKET names") as told:
        toolkit.deploy(recipe, progress=Silent())
    assert "aws s3 mb s3://team-models --region us-west-2" in (told.value.hint or "")
    assert "CreateBucket" not in {call.operation for call in standin.calls}


def test_a_head_that_a_cluster_trained_goes_there(s3: Any, recipe: Path) -> None:
    head = recipe.parent / "drafter"
    upload_head(head, f"s3://{BUCKET}/heads/mine/", Silent())
    assert keys(s3) == THEIRS | {f"heads/mine/{name}" for name in ("config.json", "model.safetensors")}
    assert (
        s3.get_object(Bucket=BUCKET, Key="heads/mine/config.json")["Body"].read() == (head / "config.json").read_bytes()
    )
    assert set(find_head(f"s3://{BUCKET}/heads/mine/")) == {"config.json", "model.safetensors"}


def test_its_name_alone_is_given() -> None:
    assert own_bucket({}) == ""
    with pytest.raises(UsageError, match="s3://team-models is not the name of a bucket"):
        own_bucket({"TOOLKIT_BUCKET": "s3://team-models"})
