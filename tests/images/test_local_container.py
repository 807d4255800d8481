"""`platform: {name: local, run: container}`: the image of a recipe, built and run here as SageMaker would run it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from build_tools import install, own_storage, tool
from processes import until
from standin_base import push_standin

import toolkit
from toolkit import api
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.errors import ApplyError, EndpointFailed, InvocationError, PlatformError
from toolkit.home import home
from toolkit.images.registry import Registry
from toolkit.platforms.local import daemon
from toolkit.platforms.local.clients import session

RECIPE = toolkit.load("tiny/p-eagle").path


@pytest.fixture(scope="module")
def base(host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    install("iptables")  # podman publishes ports with it
    with own_storage(tmp_path_factory.mktemp("storage")), Registry(host) as registry:
        yield push_standin(registry, "standin/local")


@pytest.fixture(autouse=True)
def _nothing_is_left(base: str) -> Iterator[None]:
    yield
    daemon.stop(home() / "local")
    assert containers() == []


@pytest.fixture
def recipe(base: str, tmp_path: Path) -> Callable[..., Path]:
    """The tiny recipe, in an image on that base, with that one of the engine's variables."""

    def write(variable: str = "ROUND", base: str = base) -> Path:
        text = RECIPE.read_text().replace("./", f"{RECIPE.parent}/").replace("env: {", f'env: {{{variable}: "1", ')
        run = f"platform: {{name: local, run: container}}\ncontainer: {{base: '{base}'}}"
        path = tmp_path / "recipe.yaml"
        path.write_text(text.replace("platform: {name: local}", run))
        return path

    return write


def deploy(recipe: Path) -> Endpoint:
    return api.deploy(recipe, progress=Silent())


def ask(endpoint: Endpoint, **request: Any) -> dict[str, Any]:
    """What the stand-in for vLLM says that it was started with."""
    return dict(endpoint.platform.invoke(endpoint.name, {"prompt": "x", **request}))


def answers(endpoint: Endpoint) -> bool:
    try:
        ask(endpoint)
    except InvocationError:
        return False
    return True


def running() -> daemon.LocalDaemon:
    found = daemon.running(home() / "local")
    assert found is not None
    return found


def keeper() -> int:
    """Its process."""
    (session,) = home().glob("local/endpoints/*/*/*/session")
    return int(session.read_text())


def containers() -> list[str]:
    return tool("podman", "ps", "--all", "--quiet").split()


def test_the_image_is_built_and_runs_as_on_sagemaker(
    recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://192.0.2.1:3128")
    written = recipe()
    endpoint = deploy(written)
    assert api.build(written, progress=Silent()).startswith("localhost/toolkit/")
    said = ask(endpoint)
    assert " --port 8080 --model /opt/ml/model " in " ".join(said["arguments"])
    assert said["mounted"]["/opt/ml/model/config.json"] == "read-only"
    assert said["mounted"]["/opt/ml/additional-model-data-sources/drafter/config.json"] == "read-only"
    assert "HTTPS_PROXY" not in said["environment"]
    assert any(line.startswith("serve: vLLM") for line in endpoint.logs())
    assert api.plan(written).changes == []

    api.destroy(written, progress=Silent())
    assert containers() == []


def test_an_update_lets_the_old_container_finish_what_it_began(recipe: Callable[..., Path]) -> None:
    endpoint = deploy(recipe("OLD"))
    (old,) = containers()
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, endpoint, wait=True)
        until(lambda: "waits" in endpoint.logs())
        api.deploy(recipe("NEW"), wait=False, progress=Silent())
        until(lambda: "NEW" in ask(endpoint)["environment"])
        assert old in containers()
        tool("podman", "kill", "--signal", "USR1", old)
        assert "OLD" in under_way.result()["environment"]
    until(lambda: old not in containers())


def test_a_container_that_dies_at_its_start_gives_its_last_words(recipe: Callable[..., Path]) -> None:
    with pytest.raises(EndpointFailed, match="It ended with exit code 1") as failed:
        deploy(recipe("DIES"))
    assert "no such head" in failed.value.logs


def test_a_killed_daemon_takes_its_container_along(recipe: Callable[..., Path]) -> None:
    deploy(recipe())
    os.kill(running().pid, signal.SIGKILL)
    until(lambda: not containers())


def test_what_a_daemon_killed_with_its_keeper_left_is_cleared_away(recipe: Callable[..., Path]) -> None:
    deploy(recipe())
    killed = running().pid
    os.kill(killed, signal.SIGSTOP)  # so that it cannot react to the keeper's death
    os.kill(keeper(), signal.SIGKILL)
    os.kill(killed, signal.SIGKILL)
    until(lambda: daemon.running(home() / "local") is None)
    assert containers() != [], "nobody is left to end it"
    daemon.stop(home() / "local")
    assert containers() == []


@pytest.mark.parametrize("killed", ["container", "keeper"])
def test_what_dies_in_service_is_removed_and_comes_back(killed: str, recipe: Callable[..., Path]) -> None:
    endpoint = deploy(recipe())
    (first,) = containers()
    if killed == "container":
        tool("podman", "kill", first)
    else:
        os.kill(keeper(), signal.SIGKILL)
    until(lambda: first not in containers())
    until(lambda: answers(endpoint))
    assert any("starting it again" in line for line in endpoint.logs())


def test_an_image_that_was_never_built_is_refused() -> None:
    sagemaker: Any = session(daemon.start(home() / "local")).client("sagemaker")
    role, container = "arn:aws:iam::123456789012:role/any", {"Image": "localhost/toolkit/none:1"}
    with pytest.raises(ClientError, match=r"Requested image localhost/toolkit/none:1 not found\. Build it"):
        sagemaker.create_model(ModelName="none", ExecutionRoleArn=role, PrimaryContainer=container)


def test_a_base_that_is_not_there_is_named(recipe: Callable[..., Path], host: str) -> None:
    with pytest.raises(ApplyError, match=f"cannot pull the base image {host}/no/such:1"):
        deploy(recipe(base=f"{host}/no/such:1"))


def test_without_podman_and_docker_both_are_named(
    recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        with pytest.raises(PlatformError, match="podman is not installed; docker is not installed") as refused:
            deploy(recipe())
    assert "run: process" in refused.value.hint
