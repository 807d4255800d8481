"""A plan is data: it is shown, saved and read again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from aws_kinds import desired
from fakes import ACCOUNT
from pairs import write_pair

from toolkit.errors import UsageError
from toolkit.loading import load
from toolkit.planning.plan import Plan, differences
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Existing, Observed
from toolkit.registry import rules_of

OLD = Existing("Model", "tiny-<old>", True, ("tiny",), {})


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    resources = desired([load(write_pair(tmp_path))], ACCOUNT)
    return make_plan("recipe.yaml", rules_of("local"), ["tiny"], resources, Observed((OLD,)))


def test_a_saved_plan_reads_back_equal(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == made


def test_a_saved_plan_holds_the_exact_requests(made: Plan, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.json")
    saved = json.loads((tmp_path / "plan.json").read_text())
    assert [action["request"] for action in saved["actions"]] == [action.request for action in made.actions]
    assert saved["actions"][-1]["request"] == {"ModelName": "tiny-<old>"}


def test_of_the_differences_those_that_an_edit_made_come_before_the_names_that_follow(
    made: Plan, tmp_path: Path
) -> None:
    recipe = load(write_pair(tmp_path))
    longer = replace(recipe, engine=recipe.engine.edit(max_model_len=512))
    resources = desired([longer], ACCOUNT)
    edited = make_plan("recipe.yaml", rules_of("local"), ["tiny"], resources, Observed((OLD,)))
    first, *rest = differences(made, edited)
    assert "Environment.SM_VLLM_MAX_MODEL_LEN: saved " in first
    assert any(", name: saved " in line for line in rest)


def test_a_setting_that_an_edit_added_or_removed_comes_before_what_follows_from_it(made: Plan, tmp_path: Path) -> None:
    recipe = load(write_pair(tmp_path))
    longer = replace(recipe, engine=recipe.engine.edit(env={**recipe.engine.env, "ADDED": "1"}))
    edited = make_plan("recipe.yaml", rules_of("local"), ["tiny"], desired([longer], ACCOUNT), Observed((OLD,)))
    for first, *_ in (differences(made, edited), differences(edited, made)):
        assert "Environment.ADDED: " in first


def test_an_action_that_is_missing_follows(made: Plan) -> None:
    model = next(action for action in made.actions if action.kind == "Model")
    edited = replace(model, request={**model.request, "EnableNetworkIsolation": "edited"})
    others = tuple(action for action in made.actions if action.kind not in ("Model", "Bucket"))
    first, *rest = differences(made, replace(made, actions=(*others, edited)))
    assert "EnableNetworkIsolation: " in first
    assert any(line.endswith("/ derived nothing") for line in rest)


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{}", '{"actions": 5}', '{"actions": [{}], "endpoints": []}', "\xff"]
)
def test_what_is_not_a_saved_plan(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=r"plan\.json is not a saved plan: .*\n  Save one: toolkit plan RECIPE --out"):
        Plan.read(path)


def test_a_plan_of_a_newer_toolkit_is_refused(made: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**made.to_dict(), "color": "red"}))
    with pytest.raises(UsageError):
        Plan.read(path)


def test_a_plan_as_text(made: Plan) -> None:
    first, *lines = repr(made).splitlines()
    assert first == "<Plan recipe.yaml on local: 11 changes, 0.00 $/h while running>"
    assert lines[0] == "  create Bucket toolkit-123456789012-us-west-2 (does not exist)"
    assert lines[-1] == "  delete Model tiny-<old> (no longer used)"
    assert len(lines) == len(made.actions)


def test_a_plan_in_a_notebook_shows_text_as_text(made: Plan) -> None:
    assert "tiny-&lt;old&gt;" in made._repr_html_()
