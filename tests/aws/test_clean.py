"""`toolkit clean` on AWS's stand-in: what endpoints leave goes by its rule, what is in use never does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from crowd import make_endpoints
from pairs import HUB_RECIPE, write_pair, write_recipe
from rights import action_of
from standin import ACCOUNT, StandIn
from standin_ages import pass_days
from standin_user import User

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.images.manifest import SCHEMA_2
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.platforms.lease import lease
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.objects import BucketLease
from toolkit.platforms.sagemaker.rules.access import allow, policy

BUCKET = f"toolkit-{ACCOUNT}-us-west-2"
TAGS = [{"Key": ENDPOINT_TAG, "Value": "gone"}]
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "operate.md"


@pytest.fixture(autouse=True)
def _this_process_talks_to_the_standin(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))


def clean(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    """Exit code, the things by name, and what was said."""
    capsys.readouterr()
    code = run(["clean", "--platform", "sagemaker", "--json", *options])
    printed = capsys.readouterr()
    return code, {item["name"]: item for item in json.loads(printed.out)["items"]}, printed.err


def going(items: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, item in items.items() if item["goes"]}


def deploy_from_s3(root: Path, name: str) -> Path:
    """An endpoint whose weights are staged in the toolkit's bucket."""
    folder = root / name
    folder.mkdir()
    text = HUB_RECIPE.replace("name: hub", f"name: {name}").replace("org/", "./")
    path = write_recipe(write_pair(folder).parent, text.replace("name: sagemaker,", "name: sagemaker, role: create,"))
    toolkit.deploy(path, progress=Silent())
    return path


def leave_everything(standin: StandIn) -> dict[str, Any]:
    """One of each kind of thing of the endpoint `gone`; the clients that made it, by service."""
    session = standin.session()
    s3, ecr, logs, iam = (session.client(name) for name in ("s3", "ecr", "logs", "iam"))
    for key in (
        "weights/old/model.safetensors",
        "staged/old",
        "uses/old/gone",
        "capture/gone/2026/one.jsonl",
        "training/gone/k1/output/head/model.safetensors",
        "neuron/k1/compiled.bin",
        "image-build/one.zip",
        "staging-jobs/old/toolkit-weights.zip",
        "leases/gone",
        "somebody/elses",
    ):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"x" * 1000)
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="weights/half/model.safetensors")
    part = {"Bucket": BUCKET, "Key": "weights/half/model.safetensors", "UploadId": upload["UploadId"]}
    s3.upload_part(**part, PartNumber=1, Body=b"x" * 5000)
    ecr.create_repository(repositoryName="toolkit/gone", tags=TAGS)
    ecr.create_repository(repositoryName="toolkit/empty", tags=TAGS)
    ecr.create_repository(repositoryName="toolkit/theirs")
    for tag in ("one", "one-staged-1"):
        layer = {"digest": f"sha256:{hashlib.sha256(tag.encode()).hexdigest()}", "size": 5000}
        manifest = {"schemaVersion": 2, "mediaType": SCHEMA_2, "config": {"size": 5000}, "layers": [layer]}
        for repository in ("toolkit/gone", "toolkit/theirs"):
            ecr.put_image(repositoryName=repository, imageManifest=json.dumps(manifest), imageTag=tag)
    for name, tags in (("gone", {ENDPOINT_TAG: "gone"}), ("theirs", {"team": "a"})):
        logs.create_log_group(logGroupName=f"/aws/sagemaker/Endpoints/{name}", tags=tags)
    for name, tags_of_it in (("toolkit-gone-us-west-2", TAGS), ("toolkit-theirs-us-west-2", [])):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}", Tags=tags_of_it)
        document = json.dumps(policy(allow("s3:ListBucket", "*")))
        iam.put_role_policy(RoleName=name, PolicyName="gone", PolicyDocument=document)
    return {"s3": s3, "ecr": ecr, "logs": logs, "iam": iam}


LEFT = {
    f"s3://{BUCKET}/weights/old/",
    f"s3://{BUCKET}/weights/half/model.safetensors",
    f"s3://{BUCKET}/capture/gone/",
    f"s3://{BUCKET}/training/gone/k1/",
    f"s3://{BUCKET}/neuron/k1/",
    f"s3://{BUCKET}/image-build/one.zip",
    f"s3://{BUCKET}/staging-jobs/old/",
    f"s3://{BUCKET}/leases/gone",
    "toolkit/gone:one",
    "toolkit/gone:one-staged-1",
    "toolkit/empty",
    "/aws/sagemaker/Endpoints/gone",
    "toolkit-gone-us-west-2",
}


def test_of_each_kind_what_is_old_goes_and_what_lives_or_is_anothers_stays(
    standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = deploy_from_s3(tmp_path, "live")
    alive = set(standin.leftovers())
    leave_everything(standin)
    _, items, _ = clean(capsys, "--dry-run")
    assert going(items) == set()
    assert set(items) >= LEFT
    assert items["toolkit/gone:one"]["why"].startswith("goes in 30 days: no model runs it")

    pass_days(100)
    standin.calls.clear()
    before = standin.leftovers()
    code, items, _ = clean(capsys, "--dry-run")
    assert code == 0
    assert going(items) == LEFT
    assert standin.leftovers() == before
    used = [item for item in items.values() if item["why"] == "used by live"]
    assert {item["kind"] for item in used} == {"weights"}
    assert items["toolkit-live-us-west-2"]["why"] == "endpoint live exists"
    assert items["toolkit/gone:one"]["usd_per_month"] == pytest.approx(items["toolkit/gone:one"]["size"] / 1e9 * 0.1)

    code, items, _ = clean(capsys, "--yes")
    assert code == 0
    assert {name for name, item in items.items() if item["removed"]} == LEFT
    theirs = {
        "ecr repository toolkit/theirs",
        "iam role toolkit-theirs-us-west-2",
        "logs group /aws/sagemaker/Endpoints/theirs",
        f"s3 object {BUCKET}/somebody/elses",
    }
    # The repository was not empty when it was looked at: the next call takes it.
    assert set(standin.leftovers()) == alive | theirs | {"ecr repository toolkit/gone"}
    code, items, _ = clean(capsys, "--yes")
    assert {name for name, item in items.items() if item["removed"]} == {"toolkit/gone"}
    assert set(standin.leftovers()) == alive | theirs
    assert toolkit.plan(recipe).changes == []
    toolkit.destroy(recipe, progress=Silent())


def test_what_an_update_left_for_a_rollback_stays(
    standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the marks of its weights are lost: a model still reads them."""
    recipe = deploy_from_s3(tmp_path, "live")
    s3: Any = standin.session().client("s3")
    for item in s3.list_objects_v2(Bucket=BUCKET, Prefix="uses/")["Contents"]:
        s3.delete_object(Bucket=BUCKET, Key=item["Key"])
    pass_days(400)
    _, items, _ = clean(capsys, "--yes")
    weights = [item for item in items.values() if item["kind"] == "weights"]
    assert {item["why"] for item in weights} == {"a model reads it"}
    assert going(items) == set()
    toolkit.destroy(recipe, progress=Silent())


def test_what_a_model_runs_or_a_command_is_about_to_use_stays(
    standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    """The role of an endpoint that is made again, whose weights are still on their way."""
    user = User(standin)
    user.session.client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    leave_everything(standin)
    user.create_model("theirs", Image=f"{ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/toolkit/gone:one")
    user.session.client("s3").delete_object(Bucket=BUCKET, Key="leases/gone")
    pass_days(400)
    with lease("gone", BucketLease(Clients(standin.session()), BUCKET, "gone")):
        _, items, _ = clean(capsys, "--yes")
    assert items["toolkit/gone:one"]["why"] == "a model runs it"
    for name in ("toolkit-gone-us-west-2", "/aws/sagemaker/Endpoints/gone", f"s3://{BUCKET}/capture/gone/"):
        assert items[name]["why"] == "gone is being changed"


def test_what_is_deployed_while_the_user_thinks_stays(standin: StandIn) -> None:
    standin.session().client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    leave_everything(standin)
    pass_days(400)
    done = toolkit.clean(
        platform="sagemaker", approve=lambda _: make_endpoints(User(standin), ["gone"]), progress=Silent()
    )
    kept = {item.kind for item in done.items if "gone exists" in item.why or "used by gone" in item.why}
    assert kept == {"role", "repository", "weights", "captured requests"}
    assert "logs group /aws/sagemaker/Endpoints/gone" in standin.leftovers()
    assert done.ok


def test_an_endpoint_that_was_deleted_otherwise_is_for_destroy(
    standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = deploy_from_s3(tmp_path, "live")
    standin.session().client("sagemaker").delete_endpoint(EndpointName="live")
    standin.settle()
    pass_days(400)
    _, items, _ = clean(capsys, "--yes")
    assert going(items) == set()
    assert items["toolkit-live-us-west-2"]["why"] == "models of live remain; remove all of it: toolkit destroy live"
    toolkit.destroy(recipe, progress=Silent())
    _, items, _ = clean(capsys, "--yes")
    assert {item["kind"] for item in items.values() if item["removed"]} == {"log group"}


def test_what_a_running_command_holds_stays(standin: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    clients = Clients(standin.session())
    clients.s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    leave_everything(standin)
    clients.s3.delete_object(Bucket=BUCKET, Key="leases/gone")
    pass_days(400)
    with lease("gone", BucketLease(clients, BUCKET, "gone")):
        _, items, _ = clean(capsys, "--yes")
    assert items[f"s3://{BUCKET}/leases/gone"]["why"] == "gone is being changed"
    assert items[f"s3://{BUCKET}/weights/old/"]["why"] == "used by gone"
    assert not items[f"s3://{BUCKET}/weights/half/model.safetensors"]["goes"]
    assert not clients.s3.list_objects_v2(Bucket=BUCKET, Prefix="leases/")["KeyCount"]


def test_one_failure_stops_nothing_else_and_the_same_command_carries_on(
    standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    standin.session().client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    leave_everything(standin)
    pass_days(400)
    standin.faults.fail("DeleteLogGroup", "OperationAbortedException", "not now", status=400)
    standin.account.denied.add("ecr:DescribeRepositories")
    code, items, said = clean(capsys, "--yes")
    assert code == 3
    assert "not removed: log group /aws/sagemaker/Endpoints/gone: " in said
    assert "not now" in items["/aws/sagemaker/Endpoints/gone"]["error"]
    assert "not looked at: looking at images in ECR" in said
    assert items["toolkit-gone-us-west-2"]["removed"]

    standin.account.reset()
    code, items, _ = clean(capsys, "--yes")
    assert code == 0
    assert {name for name, item in items.items() if item["removed"]} == {name for name in LEFT if "://" not in name} - {
        "toolkit-gone-us-west-2"
    }


def test_it_asks_and_removes_nothing_without_a_yes(standin: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    standin.session().client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    leave_everything(standin)
    pass_days(400)
    before = standin.leftovers()
    assert run(["clean", "--platform", "sagemaker"]) == 2
    printed = capsys.readouterr()
    assert "Remove 13 things" in printed.err
    assert "goes  weights " in printed.err
    assert standin.leftovers() == before


def test_nobody_needs_more_rights_than_the_page_lists(standin: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    standin.session().client("s3").create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
    )
    leave_everything(standin)
    pass_days(400)
    standin.calls.clear()
    clean(capsys, "--yes")
    clean(capsys, "--yes")
    taken = {action_of(call) for call in standin.calls} - {"sts:GetCallerIdentity"}
    listed = json.loads(PAGE.read_text(encoding="utf-8").partition("<!-- clean -->\n```json\n")[2].partition("```")[0])
    allowed = {action for statement in listed["Statement"] for action in statement["Action"]}
    assert taken <= allowed
    # Needed where there are models, versions and jobs.
    describing = {f"sagemaker:Describe{what}" for what in ("Model", "ModelPackage", "TrainingJob")}
    assert allowed - taken <= {*describing, "sagemaker:ListModelPackages"}


def test_many_endpoints_take_few_calls(standin: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked of an endpoint that is there: two lists of a hundred on a page."""
    make_endpoints(User(standin), [f"crowd-{number}" for number in range(30)])
    standin.calls.clear()
    clean(capsys, "--dry-run")
    assert len(standin.calls) < 15
