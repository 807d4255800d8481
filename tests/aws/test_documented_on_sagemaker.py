"""The commands for SageMaker in the README and the tutorial, run on AWS's stand-in with a pair of a few kB."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented_commands import TUTORIAL, of_toolkit
from pairs import HUB_RECIPE, write_hub_pair
from standin import StandIn
from standin_answers import three_tokens
from standin_user import User

from toolkit.cli.main import run

ENDPOINT, RECIPE = "gpt-oss-20b-p-eagle", "gpt-oss-20b/p-eagle"
ADDED = {"deploy": ["--no-prove", "--yes"], "destroy": ["--yes"], "prove": ["--requests", "2"]}
MAY_SAY_NO = {"check", "prove"}  # this account has no quota, and these answers are too short to prove anything


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TOOLKIT_EXECUTION_ROLE", User(standin).role)
    standin.serve(three_tokens)
    text = HUB_RECIPE.replace("platform: {", "platform: {weights: hub, ").replace("name: hub", f"name: {ENDPOINT}")
    return write_hub_pair(tmp_path, text)


@pytest.mark.parametrize("page", ["README.md", TUTORIAL])
def test_its_commands_run_in_their_order(page: str, recipe: Path, standin: StandIn) -> None:
    calls = [call for call in of_toolkit(page) if {RECIPE, ENDPOINT} & set(call)]
    assert {"plan", "check", "deploy", "destroy"} <= {name for name, *_ in calls}
    for name, *arguments in calls:
        words = [str(recipe) if word == RECIPE else word for word in arguments]
        code = run([name, *words, *ADDED.get(name, [])])
        assert code in ((0, 1) if name in MAY_SAY_NO else (0,)), (name, words)
    assert [item for item in standin.leftovers() if item.startswith("sagemaker")] == []
