"""A recipe with a container of its own: its image is built into ECR, for which a real registry stands, and deployed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from pairs import HUB_RECIPE, write_hub_pair
from rights import not_allowed
from small_images import push_base, push_index
from standin import StandIn

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import ApplyError, UsageError
from toolkit.images.copy import find_image
from toolkit.images.manifest import (
    CONFIG,
    INDEXES,
    LAYER,
    SCHEMA_2,
    Blob,
    Manifest,
    Parts,
    digest_of,
    encode,
    parts,
    schema_2,
)
from toolkit.images.reference import parse
from toolkit.images.registry import Registry
from toolkit.loading import load
from toolkit.platforms.sagemaker.build import _Login
from toolkit.platforms.sagemaker.ci_roles import reading
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.images import layer_bytes, remove_staged

KEYS = Path(__file__).parents[1] / "images" / "keys"
KEPT = ["ecr repository toolkit/hub", "logs group /aws/sagemaker/Endpoints/hub"]


@pytest.fixture
def recipe(standin: StandIn, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe on a small base image of the same registry."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    standin.account.registry.host = host
    with Registry(host) as registry:
        push_base(registry, "base", runs_python=True)
    custom = f"container: {{base: '{host}/base:1'}}\nplatform: {{role: create, weights: hub, "
    return write_hub_pair(tmp_path, HUB_RECIPE.replace("platform: {", custom))


def container(standin: StandIn) -> dict[str, Any]:
    sagemaker: Any = standin.session().client("sagemaker")
    (model,) = sagemaker.list_models()["Models"]
    found: dict[str, Any] = sagemaker.describe_model(ModelName=model["ModelName"])["PrimaryContainer"]
    return found


def verbs(recipe: Path) -> dict[str, str]:
    return {action.kind: action.verb for action in toolkit.plan(recipe).actions}


def test_one_command_builds_and_deploys(recipe: Path, standin: StandIn, host: str) -> None:
    (planned,) = [action for action in toolkit.plan(recipe).actions if action.kind == "Image"]
    assert planned.reason.startswith(f"is not built yet; append builds it from {host}/base@sha256:")
    assert "(0.0 GB), to copy" in planned.reason
    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"

    repository, _, tag = container(standin)["Image"].partition("/")[2].partition(":")
    with Registry(host) as registry:
        built = find_image(registry, parse(f"{host}/{repository}:{tag}"))
    assert built.config["config"]["Entrypoint"] == ["/opt/toolkit/serve"]
    assert toolkit.plan(recipe).changes == []


def test_building_deploying_and_destroying_take_the_rights_that_are_listed(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy(recipe, progress=Silent())
    assert not_allowed(standin, load(recipe)) == set()


def test_planning_takes_what_a_pull_request_may(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    standin.calls.clear()
    toolkit.plan(recipe)
    assert not_allowed(standin, load(recipe), reading) == set()


def test_the_plan_pins_the_base_wherever_it_is(recipe: Path, host: str) -> None:
    (note,) = (note for note in toolkit.plan(recipe).notes if note.startswith("The image is built from "))
    assert note.startswith(f"The image is built from {host}/base@sha256:")


def test_the_image_stays_and_is_used_again(recipe: Path, standin: StandIn) -> None:
    toolkit.deploy(recipe, progress=Silent())
    removed = toolkit.destroy(recipe, progress=Silent())
    assert standin.leftovers() == KEPT
    assert any("images in toolkit/hub" in item for item in removed.not_removed)
    assert (verbs(recipe)["Repository"], verbs(recipe)["Image"]) == ("reuse", "reuse")


def test_building_by_itself_deploys_nothing(recipe: Path, standin: StandIn) -> None:
    image = toolkit.build(recipe, progress=Silent())
    assert re.fullmatch(r"123456789012\.dkr\.ecr\.us-west-2\.amazonaws\.com/toolkit/hub:\w{16}@sha256:\w{64}", image)
    assert [item for item in standin.leftovers() if "sagemaker" in item] == []
    assert verbs(recipe)["Image"] == "reuse"


@pytest.mark.parametrize(("threshold", "code"), [("critical", 0), ("high", 1)])
def test_the_command_says_what_ecrs_scan_found(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str], threshold: str, code: int
) -> None:
    standin.account.registry.findings = {"MEDIUM": 7, "HIGH": 2}
    assert run(["build", str(recipe), "--scan", "--fail-on", threshold]) == code
    assert "ECR's scan found: 2 high, 7 medium" in capsys.readouterr().out


def test_what_an_image_is_made_of_lies_beside_it(
    recipe: Path, standin: StandIn, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["build", str(recipe), "--verify", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verified"].keys() == {"image", "sbom", "provenance"}
    assert said["image"].endswith(said["verified"]["image"])
    with Registry(host) as registry:
        beside = said["verified"]["image"].replace(":", "-")
        assert registry.find_manifest("toolkit/hub", beside) is not None
        registry.put_manifest(
            "toolkit/hub", beside, Manifest(INDEXES[1], encode({"schemaVersion": 2, "manifests": []}))
        )
    assert run(["build", str(recipe), "--verify"]) == 3
    assert "has no bill of materials beside it" in capsys.readouterr().err


def test_it_is_signed_with_the_users_key(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "secret")
    check = ["build", str(recipe), "--verify", "--key", str(KEYS / "cosign.pub")]
    assert run(check) == 3
    assert "has no signature by" in capsys.readouterr().err
    assert run(["build", str(recipe), "--sign", str(KEYS / "cosign.key")]) == 0
    assert run(check) == 0
    said = capsys.readouterr()
    assert "secret" not in said.out + said.err
    assert run(["build", str(recipe), "--key", str(KEYS / "cosign.pub")]) == 2
    assert "--key is for --verify" in capsys.readouterr().err


def test_nobody_can_move_a_tag_of_the_repository(recipe: Path, standin: StandIn) -> None:
    toolkit.build(recipe, progress=Silent())
    ecr: Any = standin.session().client("ecr")
    (repository,) = ecr.describe_repositories()["repositories"]
    assert repository["imageTagMutability"] == "IMMUTABLE"
    assert repository["imageScanningConfiguration"] == {"scanOnPush": True}
    assert '"untagged"' in ecr.get_lifecycle_policy(repositoryName="toolkit/hub")["lifecyclePolicyText"]


@pytest.fixture
def pushed(standin: StandIn) -> Clients:
    """Tags of an image, of builds of it that ended too early, and of another's."""
    clients = Clients(standin.session())
    clients.ecr.create_repository(repositoryName="images")
    for number, tag in enumerate(["a", "a-staged-1", "a-staged-2", "b-staged-3"]):
        manifest = encode({"schemaVersion": 2, "mediaType": SCHEMA_2, "number": number}).decode()
        clients.ecr.put_image(repositoryName="images", imageManifest=manifest, imageTag=tag)
    return clients


def test_the_size_of_a_base_in_ecr_is_that_of_its_layers(standin: StandIn) -> None:
    clients = Clients(standin.session())
    clients.ecr.create_repository(repositoryName="base")
    blobs = [Blob(kind, digest_of(kind.encode()), size) for kind, size in ((CONFIG, 9), (LAYER, 2000), (LAYER, 300))]
    manifest = schema_2(Parts(blobs[0], tuple(blobs[1:])), "base").body.decode()
    pushed = clients.ecr.put_image(repositoryName="base", imageManifest=manifest, imageTag="1")["image"]
    base = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/base@{pushed['imageId']['imageDigest']}"
    assert layer_bytes(clients, base) == 2300


def test_the_size_of_a_base_for_several_machines_is_that_of_ours(standin: StandIn, host: str) -> None:
    with Registry(host) as registry:
        images = {name: push_base(registry, "many", name, architecture=name) for name in ("arm64", "amd64")}
        push_index(registry, "many", "1", images)
        index, ours = registry.find_manifest("many", "1"), parts(images["amd64"], "many")
    assert index is not None
    assert layer_bytes(Clients(standin.session()), f"{host}/many@{index.digest}") == ours.layers[0].size


def test_the_password_of_a_registry_in_another_region_is_asked_for_there(standin: StandIn) -> None:
    asked: list[str] = []
    session = standin.session()
    session.events.register("before-sign.ecr", lambda region_name, **_: asked.append(region_name))
    login = _Login(Clients(session), "000000000000.dkr.ecr.us-west-2.amazonaws.com")
    assert login("123456789012.dkr.ecr.eu-west-1.amazonaws.com")
    assert login("000000000000.dkr.ecr.us-west-2.amazonaws.com")
    assert asked == ["eu-west-1", "us-west-2"]


def test_the_size_of_a_base_is_not_known_where_ecr_cannot_be_reached(standin: StandIn) -> None:
    def unreachable(**_: object) -> None:
        raise EndpointConnectionError(endpoint_url="https://api.ecr")

    session = standin.session()
    session.events.register("before-send.ecr", unreachable)
    base = f"123456789012.dkr.ecr.us-west-2.amazonaws.com/base@sha256:{'0' * 64}"
    assert layer_bytes(Clients(session), base) is None


def test_the_size_of_a_base_that_is_gone_is_not_known(standin: StandIn, host: str) -> None:
    assert layer_bytes(Clients(standin.session()), f"{host}/many@sha256:{'0' * 64}") is None


def tags(clients: Clients) -> set[str]:
    return {item["imageTag"] for item in clients.ecr.list_images(repositoryName="images")["imageIds"]}


def test_what_was_pushed_before_the_image_had_its_tag_is_removed(pushed: Clients) -> None:
    remove_staged(pushed, "images", "a", print)
    assert tags(pushed) == {"a", "b-staged-3"}


def test_who_may_not_remove_it_is_told(pushed: Clients, standin: StandIn) -> None:
    standin.account.denied = {"ecr:BatchDeleteImage"}
    lines: list[str] = []
    remove_staged(pushed, "images", "a", lines.append)
    assert lines == ["tags a-staged-… stay in images: BatchDeleteImage is denied"]


def test_a_recipe_for_this_machine_is_built_for_aws_where_one_says_so(recipe: Path, standin: StandIn) -> None:
    recipe.write_text(recipe.read_text().replace("name: sagemaker", "name: local"))
    assert run(["build", str(recipe), "--platform", "sagemaker"]) == 0
    assert "ecr repository toolkit/hub" in standin.leftovers()


def test_the_admins_template_is_printed_and_nothing_is_made(
    recipe: Path, standin: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["build", str(recipe), "--admin-template"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["Resources"]["Project"]["Properties"]["Name"] == "toolkit-image-build"
    assert "--capabilities CAPABILITY_NAMED_IAM" in said.err
    assert standin.leftovers() == []


def test_the_template_for_a_job_that_stages_weights_is_that_of_the_recipes_needs(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HUB_RECIPE.replace("platform: {", "platform: {staging: in-account, hub_token_secret: hf, ")
    path = write_hub_pair(recipe.parent, text)
    assert run(["build", str(path), "--staging-template"]) == 0
    made = json.loads(capsys.readouterr().out)["Resources"]
    assert made["Project"]["Properties"]["Name"].startswith("toolkit-weights-")
    assert ":secret:hf-??????" in json.dumps(made["Role"])
    path.write_text(text.replace("staging: in-account, ", ""))
    assert run(["build", str(path), "--staging-template", "--admin-template"]) == 2
    assert "Print one at a time" in capsys.readouterr().err
    assert run(["build", str(path), "--staging-template"]) == 2
    assert "Write `staging: in-account` under `platform`" in capsys.readouterr().err


def test_a_base_that_is_not_there_ends_the_deploy_before_anything_else_is_made(recipe: Path, standin: StandIn) -> None:
    recipe.write_text(recipe.read_text().replace("/base:1", "/base:2"))
    with pytest.raises(ApplyError, match="base:2"):
        toolkit.deploy(recipe, progress=Silent())
    assert [item for item in standin.leftovers() if item.startswith("sagemaker")] == []


def test_anothers_repository_is_not_taken(recipe: Path, standin: StandIn) -> None:
    standin.session().client("ecr").create_repository(repositoryName="toolkit/hub")
    with pytest.raises(Exception, match="was not created by the toolkit"):
        toolkit.build(recipe, progress=Silent())


def test_a_recipe_without_a_container_has_nothing_to_build(recipe: Path) -> None:
    recipe.write_text("\n".join(line for line in recipe.read_text().splitlines() if not line.startswith("container")))
    with pytest.raises(UsageError, match="as it is: nothing is built"):
        toolkit.build(recipe, progress=Silent())
