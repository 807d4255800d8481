"""`toolkit pause`: nothing is billed by the hour, and the next deployment starts from what was kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pairs import HUB_RECIPE, write_hub_pair
from standin import ACCOUNT, StandIn

import toolkit
from toolkit.apply.progress import Silent
from toolkit.cli.main import run
from toolkit.errors import EndpointNotFound
from toolkit.home import home_folder
from toolkit.planning.record import Record

RECIPE = HUB_RECIPE.replace("platform: {", "platform: {role: create, weights: hub, ") + "scaling: {max_instances: 3}\n"


@pytest.fixture
def recipe(standin: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that serves, with scaling, alarms and a dashboard."""
    for name, value in {**standin.environment(), "TOOLKIT_POLL_SECONDS": "0.01"}.items():
        monkeypatch.setenv(name, value)
    written = write_hub_pair(tmp_path, RECIPE)
    toolkit.deploy(written, progress=Silent())
    return written


def test_what_costs_goes_and_a_deployment_makes_that_again(recipe: Path, standin: StandIn) -> None:
    serving = standin.leftovers()
    toolkit.pause("hub", progress=Silent())
    record = home_folder("records") / "hub.jsonl"
    last = Record(record, print, place=f"sagemaker/{ACCOUNT}/us-west-2").events()[-1]
    assert (last.verb, last.recipe) == ("delete", ""), "it names a recipe's file, or none"
    gone = set(serving).difference(standin.leftovers())
    assert {line.rsplit(" ", 1)[0] for line in gone} == {
        *("sagemaker endpoint", "cloudwatch alarm", "cloudwatch dashboard"),
        *("application-autoscaling target", "application-autoscaling policy"),
    }
    again = {action.kind for action in toolkit.plan(recipe).changes}
    assert again == {"Endpoint", "ScalableTarget", "ScalingPolicy", "Alarm", "Dashboard"}
    assert toolkit.deploy(recipe, progress=Silent()).status().status == "InService"
    assert standin.leftovers() == serving


def test_it_is_listed_as_paused_and_billed_nothing(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pause", "hub", "--yes"]) == 0
    assert "paused hub: 7 changes" in capsys.readouterr().out
    assert run(["status", "--platform", "sagemaker", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["endpoints"]
    assert (listed["status"], listed["price_per_hour"], listed["instances"]) == ("Paused", 0.0, [])
    toolkit.deploy(recipe, progress=Silent())
    assert [item.status for item in toolkit.status()] == ["InService"]
    toolkit.destroy(recipe, progress=Silent())
    assert len(toolkit.status()) == 0


def test_who_asks_a_paused_one_is_told_how_it_serves_again(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toolkit.pause(recipe, progress=Silent())
    assert toolkit.pause(recipe, progress=Silent()).actions == ()
    with pytest.raises(EndpointNotFound, match="hub is paused") as refused:
        toolkit.connect("hub")
    assert "toolkit deploy" in refused.value.hint
    with pytest.raises(EndpointNotFound, match="hub is paused"):
        toolkit.rollback("hub", progress=Silent())
    with pytest.raises(EndpointNotFound, match="no endpoint other"):
        toolkit.pause("other", progress=Silent())


def test_a_paused_one_can_be_destroyed_by_its_name(recipe: Path, standin: StandIn) -> None:
    toolkit.pause("hub", progress=Silent())
    toolkit.destroy("hub", progress=Silent())
    assert standin.leftovers() == ["logs group /aws/sagemaker/Endpoints/hub"]
