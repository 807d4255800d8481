"""`status` and the look for an endpoint: a platform that does not answer hides no other."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from toys import ToyBox, ToySession

from toolkit import registry
from toolkit.api.listing import status, unknown_endpoint
from toolkit.cli.main import run
from toolkit.cli.status_command import _next
from toolkit.endpoint.platform import Deployed, Found
from toolkit.errors import EndpointNotFound, PlatformError
from toolkit.recipe.recipe import Recipe

EXPIRED = "listing endpoints: the token has expired (ExpiredToken)"


class Box(ToyBox):
    """Holds one endpoint."""

    def endpoints(self, is_wanted: Callable[[str], bool], details: bool | None) -> Found:
        held = (Deployed("spinner", "local", "", "InService", "spinner-1", time.time(), (), 0.0),)
        return Found(tuple(item for item in held if is_wanted(item.name)))


class HereSession(ToySession):
    """The platform of this machine, which runs."""

    def scope_name(self, scope: str) -> str:
        return "this machine"

    def glance(self, scope: str | None) -> ToyBox:
        return Box()

    running = glance


class ExpiredSession(ToySession):
    """An account whose token has expired."""

    def glance(self, scope: str | None) -> ToyBox:
        raise PlatformError(EXPIRED, hint="Log in again: aws sso login")

    running = glance


class Throttled(ToyBox):
    """AWS, which let half of the list be read."""

    def __init__(self, held: tuple[Deployed, ...]) -> None:
        super().__init__()
        self._held = held

    def endpoints(self, is_wanted: Callable[[str], bool], details: bool | None) -> Found:
        return Found(self._held, "AWS throttled the list of endpoints in us-west-2 for 15 s: there may be more")


class ThrottledSession(ExpiredSession):
    """An account that is asked too often."""

    held = (Deployed("chat", "local", "", "InService", "", None, (), None, described=False),)

    def glance(self, scope: str | None) -> ToyBox:
        return Throttled(self.held)

    def scope_name(self, scope: str) -> str:
        return "us-west-2"


class EmptySession(ThrottledSession):
    """One that let nothing be read."""

    held = ()


THROTTLED, EMPTY = ThrottledSession(), EmptySession()
HERE, EXPIRED_SESSION = HereSession(), ExpiredSession()


@pytest.fixture(autouse=True)
def _one_runs_and_one_has_expired() -> Iterator[None]:
    before = {name: registry._platforms()[name] for name in ("local", "sagemaker")}
    for name, session in (("local", "HERE"), ("sagemaker", "EXPIRED_SESSION")):
        entry = before[name]
        registry.register_platform(name, replace(entry, session=f"{__name__}:{session}"))
    yield
    for name, entry in before.items():
        registry.register_platform(name, entry)


def test_status_shows_what_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status"]) == 3
    shown = capsys.readouterr()
    assert "spinner" in shown.out
    assert f"not listed: {EXPIRED}" in shown.err
    assert "Next: toolkit invoke spinner Hello" in shown.err
    run(["status", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in document["endpoints"]] == ["spinner"]
    assert document["not_listed"] == [f"{EXPIRED}. Log in again: aws sso login"]


@pytest.mark.parametrize(
    ("statuses", "following"),
    [
        (("Failed", "Updating"), "invoke chat-1 Hello"),
        (("Deleting", "Paused"), "status --watch 10s"),
        (("Paused", "Failed"), "deploy tiny/p-eagle --platform local"),
    ],
)
def test_what_comes_next_is_what_can_be_done_with_what_is_there(statuses: tuple[str, ...], following: str) -> None:
    listed = [Deployed(f"chat-{i}", "local", "here", one, "", None, (), None) for i, one in enumerate(statuses)]
    assert " ".join(_next(listed)) == following


def test_a_platform_that_is_named_has_to_answer() -> None:
    with pytest.raises(PlatformError, match="the token has expired"):
        status(platform="sagemaker")


def test_an_unknown_endpoint_gets_the_nearest_name() -> None:
    error = unknown_endpoint("spiner")
    assert isinstance(error, EndpointNotFound)
    assert error.hint.startswith("Did you mean spinner?")
    assert EXPIRED in error.message


def test_where_not_all_platforms_answer_a_name_is_not_called_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["destroy", "spiner", "--yes"]) == 3
    assert EXPIRED in capsys.readouterr().err


def let_aws_be(session: str) -> None:
    entry = registry._platforms()["sagemaker"]
    registry.register_platform("sagemaker", replace(entry, session=f"{__name__}:{session}"))


def test_a_list_that_aws_cut_short_is_shown_and_marked(capsys: pytest.CaptureFixture[str]) -> None:
    let_aws_be("THROTTLED")
    assert run(["status", "--platform", "sagemaker"]) == 3
    shown = capsys.readouterr()
    assert re.search(r"^chat .+ InService +\? +- +-$", shown.out, re.MULTILINE)
    assert "Not read (-), to make fewer calls: instances and prices of 1 of 1 endpoints." in shown.out
    assert "there may be more. Ask again in a minute" in shown.err
    run(["status", "--platform", "sagemaker", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [(item["name"], item["described"]) for item in document["endpoints"]] == [("chat", False)]
    assert document["not_described"] == 1
    assert "there may be more" in document["not_listed"][0]


def test_a_list_of_which_nothing_came_is_an_error() -> None:
    let_aws_be("EMPTY")
    with pytest.raises(PlatformError, match="there may be more"):
        status(platform="sagemaker")


def test_only_the_names_that_are_asked_for_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [item.name for item in status("spin*", "other", platform="local")] == ["spinner"]
    assert list(status("pin*", platform="local")) == []
    assert run(["status", "pin*", "--platform", "local"]) == 1
    assert run(["status", "spin*", "--platform", "local"]) == 0
    assert "spinner" in capsys.readouterr().out


class Region(ToyBox):
    """It has an endpoint of each name, in a region."""

    def __init__(self, region: str) -> None:
        super().__init__()
        self._region = region

    def endpoints(self, is_wanted: Callable[[str], bool], details: bool | None) -> Found:
        held = [
            Deployed(name, "sagemaker", self._region, "InService", "", 0.0, (), 0.0)
            for name in ("east", "west", "here", "machine")
        ]
        return Found(tuple(item for item in held if is_wanted(item.name)))


class RegionsSession(ToySession):
    """An account whose own region is us-west-2."""

    def scope(self, recipe: Recipe) -> str | None:
        return recipe.region

    def glance(self, scope: str | None) -> ToyBox:
        return Region(scope or "us-west-2")

    running = glance


REGIONS = RegionsSession()


def on_aws(folder: Path, name: str, region: str = "") -> str:
    """The file of a recipe of that name: on AWS in that region, or without one on this machine."""
    platform = {"name": "sagemaker", "region": region} if region else {"name": "local"}
    models = {"target": {"model": "openai/gpt-oss-20b"}, "speculation": {"method": "ngram"}}
    recipe = {"name": name, **models, "engine": {"version": "0.31.0"}, "platform": platform}
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(recipe))
    return str(path)


def test_each_recipe_is_looked_for_where_it_is(tmp_path: Path) -> None:
    """Recipes of another platform do not change that; they are looked for where this one is asked anyway."""
    let_aws_be("REGIONS")
    east, west = on_aws(tmp_path, "east", "us-east-1"), on_aws(tmp_path, "west", "us-west-2")
    machine = on_aws(tmp_path, "machine")

    def found(*names: str) -> list[tuple[str, str]]:
        return [(item.name, item.region) for item in status(*names) if item.platform == "sagemaker"]

    assert found(east, west) == [("east", "us-east-1"), ("west", "us-west-2")]
    assert found(east, machine) == [("east", "us-east-1"), ("machine", "us-east-1")]
    assert found(machine) == [("machine", "us-west-2")]
    assert found(east, "here", west) == [("east", "us-east-1"), ("here", "us-west-2"), ("west", "us-west-2")]
    assert found(west, "we*") == [("west", "us-west-2")], "once"


def test_a_list_is_shown_again_until_ctrl_c(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert run(["status", "--platform", "local", "--watch", "2s"]) == 0
    assert pauses == [2.0] * 3
    assert capsys.readouterr().out.count("spinner") == 3
    assert run(["status", "--platform", "local", "--watch", "2s", "--json"]) == 2
