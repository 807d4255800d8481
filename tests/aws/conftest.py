"""One stand-in for AWS for all tests here, empty for each."""

from __future__ import annotations

from collections.abc import Iterator

import botocore.session
import pytest
from botocore.retries.standard import ExponentialBackoff
from standin import StandIn
from standin_user import User


@pytest.fixture(scope="session", autouse=True)
def _one_loader() -> Iterator[None]:
    """Sessions share what botocore reads of its service models: each would read a tenth of a second for each client."""
    loader = botocore.session.Session().get_component("data_loader")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("botocore.session.create_loader", lambda search_path_string=None: loader)
        yield


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
