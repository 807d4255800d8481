"""One stand-in for AWS for all tests here, empty for each."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from botocore.client import ClientCreator
from botocore.hooks import EventAliaser, HierarchicalEmitter
from botocore.model import ServiceModel
from botocore.retries.standard import ExponentialBackoff
from hub import Hub, hub
from loopback_registry import running
from moto import backends
from standin import StandIn
from standin_user import User

from toolkit.platforms.sagemaker.rules.head_training import pins


@pytest.fixture(scope="session", autouse=True)
def _read_once() -> Iterator[None]:
    """What never changes is read once: botocore's service models by all clients, the names of moto's services.

    So are the 130 names of events that each session of botocore registers, which take half of the time that it takes.
    """
    loader = botocore.session.Session().get_component("data_loader")
    services = tuple(backends.list_of_moto_modules())
    event_name = cache(EventAliaser(HierarchicalEmitter())._alias_event_name)

    @cache
    def model(name: str, version: str | None) -> ServiceModel:
        return ServiceModel(loader.load_service_model(name, "service-2", version), name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("botocore.session.create_loader", lambda search_path_string=None: loader)
        patched.setattr(
            ClientCreator, "_load_service_model", lambda _, name, api_version=None: model(name, api_version)
        )
        patched.setattr(EventAliaser, "_alias_event_name", lambda _, name: event_name(name))
        patched.setattr(backends, "list_of_moto_modules", lambda: services)
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


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("ecr")) as host:
        yield host


@pytest.fixture
def server(folder: Path) -> Iterator[Hub]:
    """A hub that has one model: what lies in the test's `folder`."""
    with hub({"org/target": folder}) as server:
        yield server


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages of the right names, with nothing in them."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, _, version in (pin.partition("==") for pin in pins()):
        stem = f"{name.replace('-', '_')}-{version}"
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return folder
