"""A local platform whose containers are the tiny ones in `containers/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_account import CONTAINERS, Account

from toolkit.platforms.local.daemon import start, stop


@pytest.fixture(autouse=True)
def no_real_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that would make a plain boto3 fail, or worse, work."""
    for name, value in {
        "AWS_PROFILE": "production",
        "AWS_ACCESS_KEY_ID": "AKIASECRETOFTHEUSER",
        "AWS_ENDPOINT_URL": "http://192.0.2.1",
        "AWS_USE_FIPS_ENDPOINT": "true",
        "HTTP_PROXY": "http://192.0.2.1:3128",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def account(home: Path) -> Iterator[Account]:
    """One daemon for the tests of a module; they use different names."""
    yield Account(start(home, CONTAINERS))
    stop(home)
