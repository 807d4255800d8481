"""What is made in an AWS account is closed: to the public, to plain HTTP, and to other accounts' services."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import boto3
import pytest
from aws_kinds import TEMPLATES, desired
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from fakes import ACCOUNT
from pairs import recipe_with, write_hub_pair

from toolkit.errors import PlatformError
from toolkit.loading import load
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.codebuild_project import Project
from toolkit.platforms.sagemaker.codebuild_project import template as codebuild_template
from toolkit.platforms.sagemaker.image_project import IMAGE_PROJECT
from toolkit.platforms.sagemaker.kinds.base import Look
from toolkit.platforms.sagemaker.kinds.bucket import bucket, make_bucket, read_uses
from toolkit.platforms.sagemaker.staging_job import staging_project
from toolkit.recipe.recipe import Recipe

NAME = "toolkit-123456789012-us-west-2"
OWNER = {"ExpectedBucketOwner": "123456789012"}


@dataclass(frozen=True)
class OnlyS3:
    """Clients of an account, as far as making a bucket needs them."""

    s3: Any
    account_id: str = "123456789012"
    refusal: type[ClientError] = ClientError


@pytest.fixture
def s3() -> Iterator[Stubber]:
    """S3 as AWS has it, over TLS; what is asked of it and what it answers is up to the test."""
    client = boto3.client("s3", region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def expect_closed(s3: Stubber) -> None:
    block = dict.fromkeys(("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True)
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    arn = f"arn:aws:s3:::{NAME}"
    statement = {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [arn, f"{arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    s3.add_response("put_public_access_block", {}, {"Bucket": NAME, "PublicAccessBlockConfiguration": block, **OWNER})
    encryption = {"Bucket": NAME, "ServerSideEncryptionConfiguration": {"Rules": [rule]}, **OWNER}
    s3.add_response("put_bucket_encryption", {}, encryption)
    s3.add_response("put_bucket_policy", {}, {"Bucket": NAME, "Policy": policy, **OWNER})


def make(s3: Stubber) -> None:
    make_bucket(cast(Clients, OnlyS3(s3.client)), bucket(ACCOUNT).request, ACCOUNT, lambda: None)


def test_the_bucket_is_closed_as_soon_as_it_is_made(s3: Stubber) -> None:
    s3.add_response("create_bucket", {}, bucket(ACCOUNT).request)
    expect_closed(s3)
    make(s3)


def test_a_bucket_whose_making_was_interrupted_is_closed_the_next_time(s3: Stubber) -> None:
    s3.add_client_error("create_bucket", "BucketAlreadyOwnedByYou")
    expect_closed(s3)
    make(s3)


def test_a_bucket_that_may_not_be_closed_does_not_stay(s3: Stubber) -> None:
    """The next command would find it, and use it as it is."""
    s3.add_response("create_bucket", {}, bucket(ACCOUNT).request)
    s3.add_client_error("put_public_access_block", "AccessDenied")
    s3.add_response("delete_bucket", {}, {"Bucket": NAME})
    with pytest.raises(PlatformError, match=r"cannot be closed to others: .*AccessDenied") as caught:
        make(s3)
    assert "TOOLKIT_BUCKET" in caught.value.hint


def test_a_bucket_that_was_there_stays_where_it_may_not_be_closed(s3: Stubber) -> None:
    s3.add_client_error("create_bucket", "BucketAlreadyOwnedByYou")
    s3.add_client_error("put_public_access_block", "AccessDenied")
    with pytest.raises(PlatformError, match=r"cannot be closed to others: .*AccessDenied") as caught:
        make(s3)
    assert "TOOLKIT_BUCKET" in caught.value.hint


def test_a_bucket_that_s3_still_deletes_or_another_makes_is_waited_for(s3: Stubber) -> None:
    for _ in range(3):
        s3.add_client_error("create_bucket", "OperationAborted")
    s3.add_response("create_bucket", {}, bucket(ACCOUNT).request)
    s3.add_client_error("put_public_access_block", "OperationAborted")
    expect_closed(s3)
    make(s3)


def test_a_bucket_is_not_waited_for_without_end(s3: Stubber) -> None:
    for _ in range(12):
        s3.add_client_error("create_bucket", "OperationAborted")
    with pytest.raises(ClientError, match="OperationAborted"):
        make(s3)


def test_a_bucket_of_that_name_of_somebody_else_is_not_used(s3: Stubber) -> None:
    """Before weights are uploaded: its owner could read and change them."""
    s3.add_client_error("head_bucket", "403", expected_params={"Bucket": NAME, **OWNER})
    look = Look(cast(Clients, OnlyS3(s3.client)), ACCOUNT, (), (), lambda _: False, lambda _: None)
    with pytest.raises(ClientError, match="403"):
        read_uses(look, NAME)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_hub_pair(tmp_path))


def of_type(made: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [item for item in made["Resources"].values() if item["Type"] == kind]


def test_a_stack_closes_the_bucket_that_it_makes(recipe: Recipe) -> None:
    made = TEMPLATES.template(desired([recipe], ACCOUNT))
    (found,), (policy,) = of_type(made, "AWS::S3::Bucket"), of_type(made, "AWS::S3::BucketPolicy")
    assert all(found["Properties"]["PublicAccessBlockConfiguration"].values())
    assert found["Properties"]["BucketEncryption"]
    (statement,) = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert (statement["Effect"], policy["Condition"]) == ("Deny", found["Condition"])


@dataclass(frozen=True)
class Call:
    """A service that wants a role, as AWS sees it: who it is, and on behalf of which account and resource."""

    service: str = "sagemaker.amazonaws.com"
    account: str | None = "123456789012"
    source: str | None = "arn:aws:sagemaker:us-west-2:123456789012:endpoint/chat"

    @property
    def context(self) -> dict[str, str]:
        """The condition keys of the request; AWS leaves out those that it does not know."""
        known = {"aws:SourceAccount": self.account, "aws:SourceArn": self.source}
        return {key: value for key, value in known.items() if value is not None}


TEST = {"StringEquals": str.__eq__, "ArnLike": fnmatchcase, "StringLike": fnmatchcase, "Bool": str.__eq__}


def allows(policy: Mapping[str, Any], call: Call) -> bool:
    """By AWS's rules (IAM user guide, "Condition operators"): all conditions hold; a key that is absent does not."""
    return any(
        statement["Effect"] == "Allow"
        and statement["Action"] == "sts:AssumeRole"
        and statement["Principal"] == {"Service": call.service}
        and all(
            key in call.context and TEST[operator](call.context[key], wanted)
            for operator, conditions in statement.get("Condition", {}).items()
            for key, wanted in conditions.items()
        )
        for statement in policy["Statement"]
    )


OTHERS = {
    "another account's endpoint": Call(
        account="999999999999", source="arn:aws:sagemaker:us-west-2:999999999999:endpoint/chat"
    ),
    "another account that names our endpoint": Call(account="999999999999"),
    "our account by another account's endpoint": Call(
        source="arn:aws:sagemaker:us-west-2:999999999999:endpoint/123456789012"
    ),
    "another service": Call(service="lambda.amazonaws.com"),
    "a service of ours that is not SageMaker's": Call(source="arn:aws:lambda:us-west-2:123456789012:function:f"),
    "nobody's account": Call(account=None),
    "nothing that asks": Call(source=None),
}


def trusts(recipe: Recipe) -> list[Mapping[str, Any]]:
    """Trust policies of all roles that are made, for endpoints and for builds."""
    made = desired([recipe_with(recipe, role="create")], ACCOUNT)
    return [json.loads(item.request["AssumeRolePolicyDocument"]) for item in made if item.kind == "Role"]


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_no_role_is_given_to_others(recipe: Recipe, call: Call) -> None:
    assert [allows(trust, call) for trust in trusts(recipe)] == [False]


@pytest.mark.parametrize(
    "built",
    [IMAGE_PROJECT, staging_project({"HubTokenSecret": "hub", "InAccount": {}})],
    ids=lambda built: str(built.name),
)
def test_the_role_of_builds_is_given_to_its_own_project_only(built: Project) -> None:
    (role,) = of_type(codebuild_template(ACCOUNT, built), "AWS::IAM::Role")
    trust = role["Properties"]["AssumeRolePolicyDocument"]
    project = f"arn:aws:codebuild:{ACCOUNT.region}:{ACCOUNT.id}:project/{built.name}"
    own = Call("codebuild.amazonaws.com", ACCOUNT.id, project)
    assert allows(trust, own)
    for other in (replace(own, source=f"{project}2"), replace(own, account="999999999999"), Call()):
        assert not allows(trust, other)


def test_sagemaker_takes_the_role_for_an_endpoint_of_this_account(recipe: Recipe) -> None:
    assert [allows(trust, Call()) for trust in trusts(recipe)] == [True]


def test_every_role_is_for_this_account_and_its_sagemaker_only(recipe: Recipe) -> None:
    made = desired([recipe_with(recipe, role="create")], ACCOUNT)
    (role,) = [item.request for item in made if item.kind == "Role"]
    (statement,) = json.loads(role["AssumeRolePolicyDocument"])["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "123456789012"},
        "ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:*:123456789012:*"},
    }
