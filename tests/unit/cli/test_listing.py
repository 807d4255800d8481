"""`status` and the look for an endpoint: a platform that does not answer hides no other."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from toys import ToyBox, ToySession

from toolkit import registry
from toolkit.api.listing import status, unknown_endpoint
from toolkit.cli.main import run
from toolkit.endpoint.platform import Deployed
from toolkit.errors import EndpointNotFound, PlatformError

EXPIRED = "listing endpoints: the token has expired (ExpiredToken)"


class Box(ToyBox):
    """Holds one endpoint."""

    def endpoints(self) -> list[Deployed]:
        return [Deployed("spinner", "local", "", "InService", "spinner-1", time.time(), (), 0.0)]


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
