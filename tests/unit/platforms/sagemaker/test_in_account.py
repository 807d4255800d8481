"""Which weights a job in the account stages, what a plan says of it, and where it is suggested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from aws_kinds import desired
from fakes import ACCOUNT
from pairs import HUB_RECIPE, write_hub_pair, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.loading import load
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.kinds.bucket import WeightsKind
from toolkit.platforms.sagemaker.permissions import permissions
from toolkit.platforms.sagemaker.rules.in_account import estimate, is_in_aws
from toolkit.platforms.sagemaker.rules.notes import notes
from toolkit.platforms.sagemaker.staging_job import project_of
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe

IN_ACCOUNT = HUB_RECIPE.replace("platform: {", "platform: {staging: in-account, ")
KIND = WeightsKind(on_aws=True)


def recipe_of(root: Path, text: str = IN_ACCOUNT) -> Recipe:
    recipe = load(write_hub_pair(root, text))
    return pinned(recipe, read_lock(lock_path(recipe)))


def weights(recipe: Recipe) -> dict[str, Resource]:
    return {item.name: item for item in desired([recipe], ACCOUNT) if item.kind == "Weights"}


def test_both_models_go_through_the_job_under_the_names_that_they_have_anyway(tmp_path: Path) -> None:
    here, there = weights(recipe_of(tmp_path, HUB_RECIPE)), weights(recipe_of(tmp_path))
    assert here.keys() == there.keys()
    assert [item.request["InAccount"]["Bytes"] > 0 for item in there.values()] == [True, True]
    assert not [item for item in here.values() if "InAccount" in item.request]


def test_a_plan_says_who_fetches_them_for_how_long_and_for_how_much(tmp_path: Path) -> None:
    recipe = replace(recipe_of(tmp_path), model_bytes={"org/target": 65_000_000_000})
    (target,) = [item for item in weights(recipe).values() if item.request["Hub"] == "org/target"]
    made = KIND.decide(target, None, Observed())
    assert made.expected_seconds == 90 + 325
    assert made.reason == (
        "does not exist; a job of CodeBuild fetches them from the hub, about 7 min and 0.14 $ (estimates: 65.0 GB "
        "at 200 MB/s, us-east-1's price)"
    )
    part = KIND.decide(target, Existing("Weights", target.name, True, (), {"Complete": False}), Observed())
    assert (part.verb, "a job of CodeBuild" in part.reason) == ("update", True)
    done = KIND.decide(target, Existing("Weights", target.name, True, (), {"Complete": True}), Observed())
    assert (done.verb, done.expected_seconds, "CodeBuild" in done.reason) == ("reuse", 0, False)


def test_of_an_unknown_size_a_plan_says_the_price_of_a_minute() -> None:
    assert estimate(None) == (0, "for 0.02 $ a minute (us-east-1)")


@pytest.mark.parametrize(
    "change", [("method: p-eagle", "method: p-eagle"), ("staging: in-account", "staging: in-account, weights: hub")]
)
def test_a_key_without_a_model_to_copy_is_a_finding(tmp_path: Path, change: tuple[str, str]) -> None:
    """Models of the hub go through the job, unless containers fetch them themselves."""
    recipe = write_hub_pair(tmp_path, IN_ACCOUNT.replace(*change))
    found = [item for item in check(recipe).findings if item.code == "sagemaker.staging"]
    assert bool(found) == ("weights: hub" in change[1])
    assert (project_of(load(recipe), ACCOUNT) is None) == bool(found)


def test_folders_do_not_go_through_the_job(tmp_path: Path) -> None:
    path = write_recipe(write_pair(tmp_path).parent, IN_ACCOUNT.replace("org/", "./"))
    assert [item.path for item in check(path).findings if item.code == "sagemaker.staging"] == ["platform.staging"]
    assert not [item for item in weights(load(path)).values() if "InAccount" in item.request]


def test_the_caller_needs_rights_on_the_projects_that_the_recipe_uses(tmp_path: Path) -> None:
    project = "arn:aws:codebuild:us-west-2:123456789012:project/toolkit-weights"
    actions = {
        action: item.resources
        for item in permissions(recipe_of(tmp_path), ACCOUNT)
        for action in item.actions
        if action.startswith("codebuild:")
    }
    assert actions == {
        f"codebuild:{verb}": (project,)
        for verb in (
            "BatchGetProjects",
            "StartBuild",
            "BatchGetBuilds",
            "StopBuild",
            "ListBuildsForProject",
            "CreateProject",
        )
    }
    assert not [item for item in permissions(recipe_of(tmp_path, HUB_RECIPE), ACCOUNT) if "codebuild" in str(item)]


@pytest.mark.parametrize(
    ("far", "size", "text", "is_said"),
    [
        (True, 65e9, HUB_RECIPE, True),
        (False, 65e9, HUB_RECIPE, False),
        (True, 19e9, HUB_RECIPE, False),
        (True, 65e9, IN_ACCOUNT, False),
        (True, 65e9, HUB_RECIPE.replace("platform: {", "platform: {weights: hub, "), False),
        (True, 65e9, HUB_RECIPE.replace("platform: {", "platform: {hub_token_secret: hf, "), True),
    ],
)
def test_it_is_suggested_where_much_goes_over_the_internet(
    tmp_path: Path, far: bool, size: float, text: str, is_said: bool
) -> None:
    recipe = replace(recipe_of(tmp_path, text), model_bytes={"org/target": int(size), "org/other": 10**12})
    said = [note for note in notes(recipe, replace(ACCOUNT, is_far=far)) if "staging: in-account" in note]
    assert bool(said) == is_said
    if said:
        assert said[0].startswith("What S3 lacks of 65 GB of weights goes through this machine")
        assert ("the secret hf" in said[0]) == ("hf" in text)


@pytest.mark.parametrize(
    ("region", "hub", "is_told"),
    [
        ("us-west-2", "", False),
        ("us-west-2", "https://huggingface.co/", False),
        ("us-west-2", "https://user:pass@hub.example", True),
        ("cn-north-1", "", True),
    ],
)
def test_where_a_job_would_not_reach_the_hub_the_key_is_an_error_and_not_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str, hub: str, is_told: bool
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub)
    there = f"platform: {{region: {region}, "
    (tmp_path / "in").mkdir()
    text = IN_ACCOUNT.replace("region: us-west-2, ", "").replace("platform: {", there)
    found = [item for item in check(write_hub_pair(tmp_path / "in", text)).findings if item.code == "sagemaker.staging"]
    assert [item.severity for item in found] == ["error"] * is_told
    assert "pass" not in str(found)
    recipe = replace(recipe_of(tmp_path, HUB_RECIPE), model_bytes={"org/target": 65 * 10**9})
    said = [note for note in notes(recipe, replace(ACCOUNT, region=region, is_far=True)) if "in-account" in note]
    assert bool(said) != is_told


def test_the_token_is_read_by_the_job_and_not_by_the_caller(tmp_path: Path) -> None:
    for name, text in (("here", HUB_RECIPE), ("there", IN_ACCOUNT)):
        (tmp_path / name).mkdir()
        recipe = recipe_of(tmp_path / name, text.replace("platform: {", "platform: {hub_token_secret: hf, "))
        reads = "secretsmanager:GetSecretValue" in str(permissions(recipe, ACCOUNT))
        assert reads == (name == "here")


def test_who_makes_the_roles_makes_that_of_the_job_too(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, IN_ACCOUNT.replace("platform: {", "platform: {role: given, "))
    assert "codebuild:CreateProject" not in str(permissions(recipe, ACCOUNT))
    assert "codebuild:StartBuild" in str(permissions(recipe, ACCOUNT))


def test_a_machine_of_awss_is_known_by_its_variables_or_by_its_vendor(tmp_path: Path) -> None:
    vendor = tmp_path / "sys_vendor"
    assert not is_in_aws({}, vendor)
    vendor.write_text("Amazon EC2\n")
    assert is_in_aws({}, vendor)
    vendor.write_text("LENOVO\n")
    assert not is_in_aws({}, vendor)
    assert is_in_aws({"AWS_EXECUTION_ENV": "AWS_ECS_FARGATE"}, vendor)
