"""One stand-in for AWS for all tests here, empty for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.retries.standard import ExponentialBackoff
from standin import StandIn
from standin_user import User


@pytest.fixture(scope="session")
def _standin() -> Iterator[StandIn]:
    with StandIn() as standin:
        yield standin


@pytest.fixture
def standin(_standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in, as new. botocore's retries do not wait."""
    _standin.reset()
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.0)
    return _standin


@pytest.fixture
def user(standin: StandIn) -> User:
    return User(standin)
