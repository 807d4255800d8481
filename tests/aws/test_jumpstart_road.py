"""A recipe of JumpStart's model, with JumpStart's head or one's own, on the one road."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jumpstart_entries import GPT_OSS, HEAD, LLAMA, VLLM, WEIGHTS, gated, gpt_oss
from pairs import write_pair, write_recipe
from rights import action_of, not_allowed
from standin import StandIn

import toolkit
from toolkit.api.checking import check
from toolkit.api.context import jumpstart_entries
from toolkit.api.export import template
from toolkit.apply.progress import Silent
from toolkit.errors import RecipeError, UsageError
from toolkit.loading import load
from toolkit.platforms.elsewhere import open_files
from toolkit.platforms.sagemaker.ci_roles import reading
from toolkit.platforms.sagemaker.rules.jumpstart import in_s3
from toolkit.recipe.lock import read_models, write_lock

RECIPE = f"""\
name: gpt-oss
target: {{model: "jumpstart:{GPT_OSS}"}}
speculation: {{method: p-eagle, model: "jumpstart:{GPT_OSS}"}}
engine: {{version: 0.18.0, max_model_len: 1024, max_num_batched_tokens: 16384}}
platform: {{name: sagemaker, role: create, instance_types: [ml.g7e.2xlarge]}}
"""


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe, locked; the models in JumpStart's bucket are of a few kB."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    write_pair(tmp_path)
    upload(standin, WEIGHTS, tmp_path / "target")
    upload(standin, HEAD, tmp_path / "drafter")
    entry = gpt_oss()
    standin.put_hub_content(GPT_OSS, entry["HubContentDocument"], HubContentVersion=entry["HubContentVersion"])
    return locked(write_recipe(tmp_path, RECIPE))


def upload(standin: StandIn, uri: str, folder: Path) -> None:
    s3: Any = standin.session().client("s3")
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    if bucket not in [item["Name"] for item in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for file in folder.iterdir():
        s3.upload_file(str(file), bucket, prefix + file.name)


def locked(recipe: Path) -> Path:
    """As `toolkit lock` does it."""
    loaded = load(recipe)
    write_lock(loaded, read_models(loaded, open_files, in_s3(loaded, jumpstart_entries(loaded))))
    return recipe


def container(standin: StandIn) -> dict[str, Any]:
    sagemaker: Any = standin.session().client("sagemaker")
    (model,) = sagemaker.list_models()["Models"]
    found: dict[str, Any] = sagemaker.describe_model(ModelName=model["ModelName"])["PrimaryContainer"]
    return found


def test_the_lock_is_read_from_jumpstarts_bucket(recipe: Path) -> None:
    assert [finding for finding in check(recipe).findings if finding.severity != "info"] == []


def test_the_plan_shows_what_jumpstart_serves(recipe: Path) -> None:
    notes = toolkit.plan(recipe).notes
    assert notes[1] == (
        f"JumpStart {GPT_OSS} 3.38.0 lmi-optimized on ml.g7e.2xlarge: {VLLM.rpartition('/')[2]}, p-eagle K=3"
    )


def test_code_beside_jumpstarts_weights_is_named_and_not_run(recipe: Path, standin: StandIn, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("model.py", "requirements.txt"):
        (hostile / name).write_text("")
    upload(standin, WEIGHTS, hostile)
    locked(recipe)
    named = f"jumpstart:{GPT_OSS} (target.model) is used where it is, with files that no engine reads or runs: "
    assert f"{named}model.py, requirements.txt" in toolkit.plan(recipe).notes

    toolkit.deploy(recipe, progress=Silent())
    environment = container(standin)["Environment"]
    assert environment["STANDARD_AUTO_INSTALL_REQ"] == "false"
    assert environment["CUSTOM_SCRIPT_FILENAME"] == "/dev/null/none.py"


def test_planning_takes_what_a_pull_request_may(recipe: Path, standin: StandIn) -> None:
    standin.calls.clear()
    toolkit.plan(recipe)
    assert "sagemaker:DescribeHubContent" in {action_of(call) for call in standin.calls}
    assert not_allowed(standin, load(recipe), reading) == set()


def test_a_stack_that_could_not_start_is_no_answer(recipe: Path) -> None:
    """CloudFormation has no second model data source, and JumpStart's target is not copied beside its drafter."""
    with pytest.raises(RecipeError, match="the container does not find its drafter and stops"):
        template(recipe)


CHOSEN = ("role: create, instance_types: [ml.g7e.2xlarge]", "role: create")


def edited(recipe: Path, *edits: tuple[str, str]) -> Path:
    text = recipe.read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    recipe.write_text(text)
    return recipe


def test_jumpstart_chooses_the_instance_type_of_a_recipe_that_names_none(recipe: Path) -> None:
    assert "on ml.g7e.2xlarge" in toolkit.plan(edited(recipe, CHOSEN)).notes[1]


def test_the_plan_tells_what_the_recipe_drafts_and_not_what_jumpstart_would(recipe: Path) -> None:
    own = ("method: p-eagle, ", "method: p-eagle, num_speculative_tokens: 5, ")
    assert toolkit.plan(edited(recipe, own)).notes[1].endswith(", p-eagle K=5")
    loaded = load(recipe)
    assert toolkit.plan(replace(loaded, speculation=None)).notes[1].endswith(", no drafter")


def test_the_plan_tells_of_every_instance_type(recipe: Path) -> None:
    types = (
        "[ml.g7e.2xlarge]",
        "[ml.g7e.2xlarge, {type: ml.p5.48xlarge, num_speculative_tokens: 2}]",
    )
    served = [note for note in toolkit.plan(edited(recipe, types)).notes if note.startswith(f"JumpStart {GPT_OSS}")]
    assert [(" on ml.p5.48xlarge" in note, note.rpartition(", ")[2]) for note in served] == [
        (False, "p-eagle K=3"),
        (True, "p-eagle K=2"),
    ]


@pytest.mark.parametrize("connects", [False, True], ids=["deploy", "connect"])
def test_acceptance_is_judged_by_what_was_published_for_jumpstarts_k(recipe: Path, connects: bool) -> None:
    evidence = "{{workload: code, num_speculative_tokens: {}, acceptance_length: {}, hardware: b, engine: c, {}}}"
    rest = 'date: "2026-01-01", source: d'
    listed = [evidence.format(k, length, rest) for k, length in ((3, 2.5), (7, 4.5))]
    recipe.write_text(recipe.read_text() + f"evidence: [{', '.join(listed)}]\n")
    endpoint = toolkit.deploy(recipe, progress=Silent())
    assert (toolkit.connect(recipe) if connects else endpoint).expected.published == {"code": 2.5}


def test_jumpstarts_container_serves_with_what_the_recipe_says(recipe: Path, standin: StandIn) -> None:
    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"
    made = container(standin)
    assert made["ModelDataSource"]["S3DataSource"]["S3Uri"] == WEIGHTS
    assert made["AdditionalModelDataSources"][0]["S3DataSource"]["S3Uri"] == HEAD
    assert made["Environment"]["SM_VLLM_MAX_MODEL_LEN"] == "1024"
    assert toolkit.plan(recipe).changes == []

    toolkit.destroy(recipe, progress=Silent())
    assert [item for item in standin.leftovers() if "jumpstart" not in item] == [
        "logs group /aws/sagemaker/Endpoints/gpt-oss"
    ]


def test_a_head_of_ones_own_replaces_jumpstarts(recipe: Path, standin: StandIn) -> None:
    recipe.write_text(
        recipe.read_text().replace(f'model: "jumpstart:{GPT_OSS}"}}\nengine', "model: ./drafter}\nengine")
    )
    toolkit.deploy(locked(recipe), progress=Silent())
    (drafter,) = container(standin)["AdditionalModelDataSources"]
    assert "/weights/drafter-" in drafter["S3DataSource"]["S3Uri"]


def test_without_credentials_nothing_is_known_of_it(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UsageError, match="has not been looked up"):
        toolkit.plan(recipe)


def test_a_model_that_jumpstart_does_not_have(recipe: Path) -> None:
    recipe.write_text(recipe.read_text().replace(GPT_OSS, "openai-reasoning-gpt-oss-21b"))
    with pytest.raises(UsageError, match="JumpStart has no model openai-reasoning-gpt-oss-21b in us-west-2") as error:
        locked(recipe)
    assert error.value.hint == f"Did you mean {GPT_OSS}?"


def test_a_model_becomes_a_recipe_that_can_be_deployed(recipe: Path, tmp_path: Path) -> None:
    made = toolkit.new(f"jumpstart:{GPT_OSS}", out=tmp_path / "made.yaml", context=1024, progress=Silent())

    assert [finding.message for finding in made.findings if finding.severity == "error"] == []
    assert made.notes == ()
    assert {choice.key: choice.value for choice in made.choices} == {
        "speculation.method": "p-eagle",
        "speculation.model": f"jumpstart:{GPT_OSS}",
        "speculation.num_speculative_tokens": 3,
        "engine.version": "0.18.0",
        "engine.max_model_len": 1024,
        "platform.instance_types": ["ml.g7e.2xlarge"],
    }
    text = made.path.read_text()
    assert f"# JumpStart {GPT_OSS} 3.38.0 lmi-optimized on ml.g7e.2xlarge" in text
    assert "also: ml.p5.48xlarge, ml.g5.12xlarge" in text
    made.path.write_text(text.replace("name: sagemaker", "name: sagemaker\n  role: create"))
    assert toolkit.deploy(made.path, progress=Silent()).status().status == "InService"


def test_a_model_under_a_licence_is_read_once_that_is_accepted(standin: StandIn, recipe: Path, tmp_path: Path) -> None:
    entry = gated()
    standin.put_hub_content(LLAMA, entry["HubContentDocument"], HubContentVersion=entry["HubContentVersion"])
    made = toolkit.new(f"jumpstart:{LLAMA}", out=tmp_path / "made.yaml", context=4096, progress=Silent())

    (note,) = made.notes
    assert "comes under a licence that you have to accept: https://" in note
    assert "`target.accept_eula: true`" in note
    assert note.endswith(f"Then run: toolkit lock {made.path}")
    assert load(made.path).engine.max_model_len == 4096


@pytest.mark.parametrize("wish", [{"platform": "local"}, {"method": "ngram"}, {"max_price": 3.0}])
def test_what_jumpstart_decides_is_not_wished_for(recipe: Path, tmp_path: Path, wish: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="JumpStart") as caught:
        toolkit.new(f"jumpstart:{GPT_OSS}", out=tmp_path / "made.yaml", progress=Silent(), **wish)
    assert "Leave out --" in caught.value.hint
    assert not (tmp_path / "made.yaml").exists()
