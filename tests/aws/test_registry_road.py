"""From a recipe to a version in the model registry, and from an approved version to an endpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.decode.decode import decode_str
from cfnlint.runner import Runner
from documented_commands import blocks
from pairs import HUB_RECIPE, write_pair, write_recipe
from reports import example
from rights import not_allowed
from sagemaker.core.shapes.model_card_shapes import ModelCardContent
from standin import ACCOUNT, StandIn

import toolkit
from toolkit.api.deployment import read_plan
from toolkit.api.handles import speculation_in_words
from toolkit.api.registering import RegisteredVersion
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import PlatformError, UsageError
from toolkit.home import cache
from toolkit.loading import load
from toolkit.platforms.sagemaker.packages import PackageArn

GROUP = "chat"
BUCKET = f"toolkit-{ACCOUNT}-us-west-2"
ARN = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:model-package/{GROUP}/1"
GROUP_ARN = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:model-package-group/{GROUP}"
RECIPE = HUB_RECIPE.replace("platform: {", "platform: {role: create, ").replace("org/", "./")
PROMPTS = '{"prompt": "Count to nine."}\n'


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe with both models in folders, and prompts of its own."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.001"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = write_pair(tmp_path).parent
    (folder / "prompts.jsonl").write_text(PROMPTS)
    return write_recipe(folder, f"{RECIPE}workloads: {{mine: ./prompts.jsonl}} # ours\n")


@pytest.fixture
def sagemaker(standin: StandIn) -> Any:
    return standin.session().client("sagemaker")


def registered(recipe: Path, **options: Any) -> RegisteredVersion:
    return toolkit.register(recipe, group=GROUP, progress=Silent(), **options)


def described(sagemaker: Any, arn: str = ARN) -> Any:
    return sagemaker.describe_model_package(ModelPackageName=arn)


def model_names(standin: StandIn) -> set[str]:
    return {call.request["ModelName"] for call in standin.calls if str(call) == "sagemaker:CreateModel"}


def test_a_version_has_the_pair_and_waits_for_approval(recipe: Path, sagemaker: Any) -> None:
    made = registered(recipe)
    assert (made.version, made.arn, made.status) == (1, ARN, "PendingManualApproval")
    found = described(sagemaker)
    (container,) = found["InferenceSpecification"]["Containers"]
    assert "@sha256:" in container["Image"]
    assert container["ModelDataSource"]["S3DataSource"]["S3Uri"].startswith(f"s3://{BUCKET}/weights/target-")
    assert [item["ChannelName"] for item in container["AdditionalModelDataSources"]] == ["drafter"]
    assert found["CustomerMetadataProperties"]["toolkit:recipe-name"] == "hub"
    assert "ModelMetrics" not in found
    card = json.loads(found["ModelCard"]["ModelCardContent"])
    assert card["additional_information"]["custom_details"]["method"] == "p-eagle"
    assert found["ModelCard"]["ModelCardStatus"] == "PendingReview"


def test_the_proof_is_its_evaluation(recipe: Path, standin: StandIn, sagemaker: Any, tmp_path: Path) -> None:
    (tmp_path / "proof.json").write_text(json.dumps(example().to_dict()))
    registered(recipe, report=tmp_path / "proof.json", status="Approved")
    found = described(sagemaker)
    statistics = found["ModelMetrics"]["ModelQuality"]["Statistics"]
    bucket, _, key = statistics["S3Uri"].removeprefix("s3://").partition("/")
    s3: Any = standin.session().client("s3")
    assert json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())["title"] == example().title
    card = ModelCardContent.model_validate_json(found["ModelCard"]["ModelCardContent"])
    assert card.evaluation_details
    (evaluation,) = card.evaluation_details
    assert evaluation.metric_groups
    speedups = [
        metric.value for group in evaluation.metric_groups for metric in group.metric_data if metric.name == "speedup"
    ]
    assert speedups
    assert set(speedups) <= {item.ratio for item in example().speedups}


def test_only_an_approved_version_is_deployed(recipe: Path, standin: StandIn, sagemaker: Any) -> None:
    registered(recipe)
    with pytest.raises(UsageError, match="is not approved, but PendingManualApproval") as refused:
        toolkit.deploy(ARN, progress=Silent())
    assert f"--model-package-arn {ARN} --model-approval-status Approved" in refused.value.hint
    with pytest.raises(UsageError, match="no version of chat is approved"):
        toolkit.deploy(GROUP_ARN, progress=Silent())

    sagemaker.update_model_package(ModelPackageArn=ARN, ModelApprovalStatus="Approved")
    endpoint = toolkit.deploy(ARN, progress=Silent())
    assert endpoint.status().status == "InService"
    arn = sagemaker.describe_endpoint(EndpointName="hub")["EndpointArn"]
    tags = {tag["Key"]: tag["Value"] for tag in sagemaker.list_tags(ResourceArn=arn)["Tags"]}
    assert tags["model-package"] == ARN
    assert [prompt.text for prompt in endpoint.workloads[0].prompts] == ["Count to nine."]
    assert toolkit.plan(ARN).changes == []


def test_it_is_what_the_recipe_would_be(recipe: Path, standin: StandIn) -> None:
    registered(recipe, status="Approved")
    wanted = next(action.request for action in toolkit.plan(recipe).actions if action.kind == "Model")
    found = next(action.request for action in toolkit.plan(ARN).actions if action.kind == "Model")
    assert {**found, "Tags": []} == {**wanted, "Tags": []}


def test_the_models_need_not_be_on_the_machine_that_deploys(recipe: Path, standin: StandIn) -> None:
    registered(recipe, status="Approved")
    for folder in ("target", "drafter"):
        for file in (recipe.parent / folder).iterdir():
            file.unlink()
    assert toolkit.deploy(GROUP_ARN, progress=Silent()).status().status == "InService"


def test_a_group_means_its_newest_approved_version(recipe: Path, sagemaker: Any) -> None:
    registered(recipe, status="Approved")
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    assert registered(recipe).version == 2
    assert load(toolkit.plan(GROUP_ARN).recipe).tags["model-package"] == ARN
    sagemaker.update_model_package(ModelPackageArn=ARN[:-1] + "2", ModelApprovalStatus="Approved")
    assert load(toolkit.plan(GROUP_ARN).recipe).tags["model-package"] == ARN[:-1] + "2"


def test_the_endpoint_names_the_version_that_it_runs(recipe: Path, standin: StandIn, sagemaker: Any) -> None:
    def tag() -> str | None:
        arn = sagemaker.describe_endpoint(EndpointName="hub")["EndpointArn"]
        return {item["Key"]: item["Value"] for item in sagemaker.list_tags(ResourceArn=arn)["Tags"]}.get(
            "model-package"
        )

    registered(recipe, status="Approved")
    toolkit.deploy(ARN, progress=Silent())
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 7", "num_speculative_tokens: 4"))
    second = registered(recipe, status="Approved").arn
    toolkit.deploy(second, progress=Silent())
    assert tag() == second
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 4", "num_speculative_tokens: 3"))
    toolkit.deploy(recipe, progress=Silent())
    assert tag() == ""  # what runs is no version


def test_what_is_registered_already_stays_that_version(recipe: Path, standin: StandIn, sagemaker: Any) -> None:
    registered(recipe, status="Approved")
    again = registered(recipe)
    assert (again.version, again.status, again.done) == (1, "Approved", "was registered already")
    changed = registered(recipe, status="Rejected")
    assert (changed.version, changed.status, changed.done) == (1, "Rejected", "its status was changed")
    assert [str(call) for call in standin.calls].count("sagemaker:CreateModelPackage") == 1


def test_destroying_the_endpoint_keeps_what_a_version_needs(recipe: Path, standin: StandIn) -> None:
    registered(recipe, status="Approved")
    before = {item for item in standin.leftovers() if "weights/" in item}
    toolkit.deploy(ARN, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    toolkit.destroy("hub", progress=Silent())
    assert {item for item in standin.leftovers() if "weights/" in item} == before
    assert toolkit.deploy(ARN, progress=Silent()).status().status == "InService"


def test_cleaning_keeps_it_while_there_is_a_version(recipe: Path, standin: StandIn, sagemaker: Any) -> None:
    registered(recipe)

    def needed() -> list[bool]:
        found = toolkit.clean(platform="sagemaker", dry_run=True).items
        return [bool(item.needed) for item in found if item.kind in ("weights", "mark of use")]

    assert needed() == [True, True, True]
    sagemaker.delete_model_package(ModelPackageName=ARN)
    assert needed() == [False, False, False]


def test_a_recipe_that_was_changed_in_s3_is_not_deployed(recipe: Path, standin: StandIn, sagemaker: Any) -> None:
    registered(recipe, status="Approved")
    address = described(sagemaker)["CustomerMetadataProperties"]["toolkit:recipe"]
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    s3: Any = standin.session().client("s3")
    text = s3.get_object(Bucket=bucket, Key=f"{prefix}recipe.yaml")["Body"].read().decode()
    assert "# ours" in text
    s3.put_object(Bucket=bucket, Key=f"{prefix}recipe.yaml", Body=text.replace("1024", "512").encode())
    with pytest.raises(PlatformError, match="is not the one that"):
        toolkit.deploy(ARN, progress=Silent())


@pytest.mark.parametrize("arn", ["arn:aws:s3:::bucket", f"{GROUP_ARN}/1", ARN.removesuffix("/1")])
def test_another_arn_is_refused(arn: str) -> None:
    with pytest.raises(UsageError, match="no version of a model"):
        PackageArn.of(arn)


def test_a_version_of_somebody_elses_has_no_recipe(recipe: Path, sagemaker: Any) -> None:
    registered(recipe, status="Approved")
    theirs = described(sagemaker)
    for group in ("theirs", "empty"):
        sagemaker.create_model_package_group(ModelPackageGroupName=group)
    made = sagemaker.create_model_package(
        ModelPackageGroupName="theirs",
        ModelApprovalStatus="Approved",
        InferenceSpecification=theirs["InferenceSpecification"],
    )
    with pytest.raises(UsageError, match="has no recipe of the toolkit's"):
        toolkit.deploy(made["ModelPackageArn"], progress=Silent())
    with pytest.raises(UsageError, match="empty has no version"):
        toolkit.deploy(GROUP_ARN.replace("/chat", "/empty"), progress=Silent())
    with pytest.raises(UsageError, match="there is no arn"):
        toolkit.deploy(ARN[:-1] + "9", progress=Silent())


def test_a_saved_plan_of_a_version_is_applied(recipe: Path, standin: StandIn, tmp_path: Path) -> None:
    registered(recipe, status="Approved")
    toolkit.plan(ARN).save(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json").apply(progress=Silent()).status().status == "InService"


def test_every_call_is_allowed_on_what_it_names(recipe: Path, standin: StandIn) -> None:
    registered(recipe, status="Approved")
    registered(recipe, status="Rejected")
    registered(recipe, status="Approved")
    toolkit.plan(GROUP_ARN)
    assert not_allowed(standin, load(recipe)) == set()


def test_the_command_says_what_comes_next(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["register", str(recipe), "--group", GROUP]) == 2
    asked = capsys.readouterr().err
    assert "Add --yes" in asked
    assert asked.index("verb ") < asked.index("ModelPackageGroup") < asked.index("Register this in")
    assert run(["register", str(recipe), "--group", GROUP, "--yes"]) == 0
    shown = capsys.readouterr()
    assert "verb " not in shown.err, "the plan is for who is asked"
    assert f"arn: {ARN}" in shown.out
    assert "--model-approval-status Approved, then toolkit deploy" in shown.err
    assert run(["register", str(recipe), "--group", GROUP, "--status", "Approved", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "Approved"
    assert run(["deploy", ARN, "--yes", "--no-prove"]) == 0
    assert "Next: toolkit invoke hub Hello" in capsys.readouterr().err


def test_what_cannot_be_registered_is_said(recipe: Path) -> None:
    with pytest.raises(UsageError, match="group: a_b is no name"):
        toolkit.register(recipe, group="a_b")
    with pytest.raises(UsageError, match=r"p-eagle.yaml:\d+: platform.name: `local` has no model registry"):
        toolkit.register("tiny/p-eagle", group=GROUP)
    loaded = toolkit.load(recipe)
    target, drafts = str(loaded.target), speculation_in_words(loaded)
    for of, by, message in (
        ("org/another", drafts, f"org/another with {drafts}, the recipe of {target}"),
        (target, "p-eagle K=3", "with p-eagle K=3"),
        (target, f"{drafts}, drafts accepted by chance", "drafts accepted by chance"),
        (target, "", "with no speculation"),
    ):
        other = replace(example(), setting={"target": of, "speculation": by})
        with pytest.raises(UsageError, match=f"the report is of .*{message}"):
            registered(recipe, report=other)
    (recipe.parent / "prompts.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(toolkit.ToolkitError):
        registered(recipe)


def test_the_recipe_is_kept_in_the_cache(recipe: Path) -> None:
    registered(recipe, status="Approved")
    assert Path(toolkit.plan(ARN).recipe).is_relative_to(cache())


def test_the_template_of_the_page_is_taken_and_hears_of_an_approval() -> None:
    (text,) = blocks("docs/howto/model-registry.md", "yaml")
    decoded, mistakes = decode_str(text)
    assert not mistakes
    assert decoded is not None
    found = Runner(ConfigMixIn(regions=["us-west-2"])).validate_template(decoded)
    assert [f"{match.rule.id}: {match.message}" for match in found] == []
    pattern = decoded["Resources"]["Approved"]["Properties"]["EventPattern"]
    # Of the event in the developer guide, automating-sagemaker-with-eventbridge, "Model package state change".
    event = {"ModelPackageGroupName": "chat", "ModelApprovalStatus": "Approved", "ModelPackageArn": ARN}
    assert pattern["detail-type"] == ["SageMaker Model Package State Change"]
    assert pattern["detail"].keys() <= event.keys()
    (target,) = decoded["Resources"]["Approved"]["Properties"]["Targets"]
    given = target["InputTransformer"]["InputTemplate"].replace("<version>", json.dumps(event["ModelPackageArn"]))
    (variable,) = json.loads(given)["environmentVariablesOverride"]
    spec = decoded["Resources"]["Deploy"]["Properties"]["Source"]["BuildSpec"]
    assert f'toolkit deploy "${variable["name"]}" --yes' in spec
