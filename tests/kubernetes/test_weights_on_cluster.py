"""Models that pods mount from a bucket: uploaded before their volume is made, once, and kept afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from fakes import Told
from moto import mock_aws
from pairs import recipe_with

from toolkit.apply.progress import Progress, Silent
from toolkit.errors import PlatformError
from toolkit.loading import load, on_platform
from toolkit.planning.plan import Action
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Account, Resource
from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.models import upload_weights
from toolkit.platforms.kubernetes.platform import KubernetesPlatform
from toolkit.platforms.kubernetes.rules import RULES
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.source import ModelSource

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

BUCKET = "our-models"


@pytest.fixture
def recipe(tmp_path: Path, namespace: str) -> Recipe:
    """A model of the user's own, without a drafter."""
    folder = tmp_path / "finetuned"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    section = KubernetesSection(namespace=namespace, weights_bucket=BUCKET)
    shipped = on_platform(load("qwen3-8b/p-eagle"), "kubernetes")
    source = ModelSource(model=str(folder))
    return recipe_with(shipped, target=source, speculation=None, kubernetes=section, weights="s3")


def desired(recipe: Recipe) -> tuple[Resource, ...]:
    return RULES.desired([recipe], Account("", ""))


def deploy(platform: KubernetesPlatform, recipe: Recipe) -> list[str]:
    """What was done, in order."""
    wanted = desired(recipe)
    plan = make_plan("r.yaml", RULES, [recipe.name], wanted, platform.observe(wanted, [recipe.name]))
    for action in plan.changes:
        platform.execute(action, Silent())
    return [f"{action.verb} {action.kind}" for action in plan.changes]


def test_a_model_is_uploaded_before_its_volume_is_made_and_once(platform: KubernetesPlatform, recipe: Recipe) -> None:
    sent: list[Mapping[str, Any]] = []
    platform = replace(platform, upload=lambda request, _: sent.append(request))

    done = deploy(platform, recipe)

    assert done.index("create Weights") < done.index("create PersistentVolume") < done.index("create Deployment")
    (request,) = sent
    assert request["Source"] == str(recipe.target.folder)
    assert deploy(platform, recipe) == []


def test_two_recipes_that_begin_together_do_not_both_send_a_model(platform: KubernetesPlatform, recipe: Recipe) -> None:
    """The second looks at what is there when the first is done."""
    deploy(replace(platform, upload=lambda *_: None), recipe)
    (action,) = [
        Action(item.kind, item.name, "create", "", item.request) for item in desired(recipe) if item.kind == "Weights"
    ]
    sending, first_is_done, order = threading.Event(), threading.Event(), list[str]()

    def first(*_: object) -> None:
        sending.set()
        assert first_is_done.wait(60)
        order.append("first")

    sender = threading.Thread(target=replace(platform, upload=first).execute, args=(action, Silent()))
    sender.start()
    assert sending.wait(60)
    waits = replace(platform, upload=lambda *_: order.append("second"), sleep=lambda _: first_is_done.set())
    waits.execute(action, told := Told())
    sender.join()
    assert order == ["first", "second"]
    assert told.updates[0].startswith("waiting: weights/finetuned-")


def test_another_content_is_another_model(platform: KubernetesPlatform, recipe: Recipe) -> None:
    sent: list[Mapping[str, Any]] = []
    platform = replace(platform, upload=lambda request, _: sent.append(request))
    deploy(platform, recipe)
    assert recipe.target.folder
    (recipe.target.folder / "config.json").write_text('{"changed": true}')

    assert "create Weights" in deploy(platform, recipe)
    assert len({request["Prefix"] for request in sent}) == 2


def test_what_could_not_be_uploaded_has_no_volume(platform: KubernetesPlatform, recipe: Recipe) -> None:
    def refuse(request: Mapping[str, Any], progress: Progress) -> None:
        raise PlatformError("AccessDenied")

    with pytest.raises(PlatformError, match="AccessDenied"):
        deploy(replace(platform, upload=refuse), recipe)
    volumes = platform.cluster.items(path("PersistentVolume", ""), {})
    assert platform.cluster.namespace not in [item["spec"]["claimRef"]["namespace"] for item in volumes]


def test_a_removal_says_where_the_model_remains(platform: KubernetesPlatform, recipe: Recipe) -> None:
    platform = replace(platform, upload=lambda request, _: None)
    deploy(platform, recipe)

    plan = make_plan("r.yaml", RULES, [recipe.name], (), platform.observe((), [recipe.name]))

    (note,) = [note for note in plan.not_removed if "model in s3://" in note]
    assert "aws s3 rm --recursive s3://our-models/weights/finetuned-" in note
    assert "Weights" not in {action.kind for action in plan.actions}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Client]:
    """Of an account without buckets."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield boto3.client("s3")


def upload_of(recipe: Recipe) -> Mapping[str, Any]:
    (upload,) = [item for item in desired(recipe) if item.kind == "Weights"]
    return upload.request


def test_the_files_are_in_the_bucket(recipe: Recipe, s3: S3Client) -> None:
    request = upload_of(recipe)
    with pytest.raises(PlatformError, match="uploading to s3://our-models/weights/finetuned-"):
        upload_weights(request, Silent())
    s3.create_bucket(Bucket=BUCKET)
    upload_weights(request, Silent())
    assert [item["Key"] for item in s3.list_objects_v2(Bucket=BUCKET)["Contents"]] == [
        f"{request['Prefix']}config.json"
    ]


def test_nothing_is_sent_to_another_accounts_bucket(recipe: Recipe, s3: S3Client) -> None:
    s3.create_bucket(Bucket=BUCKET)
    session = boto3.Session()
    session.events.register("before-parameter-build.s3.HeadBucket", another_owner)  # which moto does not compare
    with pytest.raises(PlatformError, match="our-models is not one of account 123456789012"):
        upload_weights(upload_of(recipe), Silent(), session)
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET)


def another_owner(params: Mapping[str, Any], **_: Any) -> None:
    """As S3 answers where the bucket belongs to another account than is expected."""
    if "ExpectedBucketOwner" in params:
        raise ClientError({"Error": {"Code": "403", "Message": "Forbidden"}}, "HeadBucket")
