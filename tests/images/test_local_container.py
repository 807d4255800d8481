"""`platform: {name: local, run: container}`: the image of a recipe, built and run here as SageMaker would run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError
from build_tools import install, own_storage, tool
from other_user import as_nobody
from processes import processes_in, until
from standin_base import push_standin

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.catalog import lookup
from toolkit.errors import ApplyError, EndpointFailed, InvocationError, PlatformError
from toolkit.home import home
from toolkit.images.registry import Registry
from toolkit.platforms.local import daemon
from toolkit.platforms.local.clients import DaemonSession
from toolkit.platforms.local.engine import gpu_options

RECIPE = toolkit.load("tiny/p-eagle").path


@pytest.fixture(scope="module")
def base(host: str) -> Iterator[str]:
    install("iptables")  # podman publishes ports with it
    with TemporaryDirectory() as folder, own_storage(Path(folder)), Registry(host) as registry:
        yield push_standin(registry, "standin/local")


@pytest.fixture(autouse=True)
def _nothing_is_left(base: str) -> Iterator[None]:
    yield
    daemon.stop(home() / "local")
    assert containers() == []


@pytest.fixture
def recipe(base: str, tmp_path: Path) -> Callable[..., Path]:
    """The tiny recipe, in an image on that base, with that one of the engine's variables."""

    def write(variable: str = "ROUND", base: str = base, more: str = "") -> Path:
        text = RECIPE.read_text().replace("./", f"{RECIPE.parent}/").replace("env: {", f'env: {{{variable}: "1", ')
        run = f"platform: {{name: local, run: container{more}}}\ncontainer: {{base: '{base}'}}"
        path = tmp_path / "recipe.yaml"
        path.write_text(text.replace("platform: {name: local}", run))
        return path

    return write


def deploy(recipe: Path) -> Endpoint:
    return toolkit.deploy(recipe, progress=Silent())


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
    assert toolkit.build(written, progress=Silent()).startswith("localhost/toolkit/")
    said = ask(endpoint)
    assert " --port 8080 --model /opt/ml/model " in " ".join(said["arguments"])
    assert said["mounted"]["/opt/ml/model/config.json"] == "read-only"
    assert said["mounted"]["/opt/ml/additional-model-data-sources/drafter/config.json"] == "read-only"
    assert "HTTPS_PROXY" not in said["environment"]
    assert any(line.startswith("serve: vLLM") for line in endpoint.logs())
    assert endpoint.platform.pause_between_arms(endpoint.name) > 1
    assert toolkit.plan(written).changes == []

    toolkit.destroy(written, progress=Silent())
    assert containers() == []


def test_the_container_has_the_memory_of_the_instance_type_and_its_images_user(recipe: Callable[..., Path]) -> None:
    endpoint = deploy(recipe(more=", instance_types: [ml.c7i.large]"))
    (container,) = containers()
    said = json.loads(tool("podman", "inspect", container))[0]
    host = said["HostConfig"]
    assert (host["Memory"], host["ShmSize"], host["ReadonlyRootfs"]) == (4 * 1024**3, 1024**3, False)
    assert host["NanoCpus"] == min(2, os.cpu_count() or 1) * 10**9
    assert (ask(endpoint)["user"], said["Config"]["User"]) == (0, "0")


@pytest.mark.parametrize("is_named", [True, False])
def test_podman_gives_the_gpus_that_a_cdi_file_names_and_refuses_others(
    recipe: Callable[..., Path], tmp_path: Path, is_named: bool
) -> None:
    """The file lies where podman looks in the mounts of this test alone, with a variable in place of a device."""
    image = toolkit.build(recipe(), progress=Silent())
    device = {"name": "all", "containerEdits": {"env": ["GPU=given"]}}
    cdi = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device]}
    file = tmp_path / "cdi" / "nvidia.json"
    file.parent.mkdir()
    file.write_text(json.dumps(cdi))
    options = gpu_options(lookup.instance("ml.g6.xlarge"), [file.parent])
    if not is_named:
        file.unlink()
    see = f'mkdir -p /run/cdi && mount --bind {file.parent} /run/cdi && exec "$@"'
    run = ["podman", "run", "--rm", "--network", "none", *options, "--entrypoint", "/usr/bin/env", image]
    done = subprocess.run(["unshare", "--mount", "sh", "-c", see, "sh", *run], capture_output=True, text=True)
    assert ("GPU=given" in done.stdout.splitlines()) is is_named
    assert ("unresolvable CDI devices nvidia.com/gpu=all" in done.stderr) is not is_named


def test_an_update_lets_the_old_container_finish_what_it_began(recipe: Callable[..., Path]) -> None:
    endpoint = deploy(recipe("OLD"))
    (old,) = containers()
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(ask, endpoint, wait=True)
        until(lambda: "waits" in endpoint.logs())
        toolkit.deploy(recipe("NEW"), wait=False, progress=Silent())
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
    until(lambda: any("starting it again" in line for line in endpoint.logs()))


def test_an_image_that_was_never_built_is_refused() -> None:
    sagemaker: Any = DaemonSession(daemon.start(home() / "local")).client("sagemaker")
    role, container = "arn:aws:iam::123456789012:role/any", {"Image": "localhost/toolkit/none:1"}
    with pytest.raises(ClientError, match=r"Requested image localhost/toolkit/none:1 not found\. Build it"):
        sagemaker.create_model(ModelName="none", ExecutionRoleArn=role, PrimaryContainer=container)


def test_a_base_that_is_not_there_is_named(recipe: Callable[..., Path], host: str) -> None:
    with pytest.raises(ApplyError, match=f"image {host}/no/such:1 does not exist"):
        deploy(recipe(base=f"{host}/no/such:1"))


def test_without_podman_and_docker_both_are_named(
    recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        with pytest.raises(PlatformError, match="podman is not installed; docker is not installed") as refused:
            deploy(recipe())
    assert "run: process" in refused.value.hint


def test_other_users_of_the_machine_reach_its_port_and_nothing_else(recipe: Callable[..., Path]) -> None:
    """The port is loopback's, and whoever is on this machine may ask the model there; SECURITY.md says so."""
    deploy(recipe("HF_TOKEN_OF_THE_OWNER"))
    (container,) = containers()
    host, port = tool("podman", "port", container, "8080/tcp").split(":")
    assert host == "127.0.0.1"
    assert b"arguments" in as_nobody(posted, port)
    for file in ("environment", "session", "opt/ml/model/config.json"):
        (path,) = home().glob(f"local/endpoints/*/*/*/{file}")
        with pytest.raises(PermissionError):
            as_nobody(Path.read_bytes, path)
    for pid in processes_in(home() / "local"):
        assert b"HF_TOKEN_OF_THE_OWNER" not in as_nobody(Path.read_bytes, Path(f"/proc/{pid}/cmdline"))
    with pytest.raises(PermissionError):
        as_nobody(os.kill, keeper(), signal.SIGTERM)


def posted(port: str) -> bytes:
    with urlopen(f"http://127.0.0.1:{port}/invocations", b"{}", timeout=30) as answer:
        return bytes(answer.read())


def test_the_container_of_a_pod_runs_without_rights_and_with_its_image_read_only(base: str, tmp_path: Path) -> None:
    """As its manifest says, by a real container runtime, with the programs and the volumes that the manifest names."""
    parts = toolkit.render(toolkit.load("gpt-oss-20b/p-eagle"))
    (spec,) = (item["spec"]["template"]["spec"] for item in parts["serve"] if item["kind"] == "Deployment")
    (programs,) = (item["data"] for item in parts["base"] if item["kind"] == "ConfigMap")
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    tmp_path.chmod(0o755)  # as a ConfigMap is mounted
    (container,), user = spec["containers"], spec["securityContext"]["runAsUser"]
    security = container["securityContext"]
    assert (security["readOnlyRootFilesystem"], security["capabilities"]["drop"]) == (True, ["ALL"])
    options = ["--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    options += ["--user", f"{user}:{user}", "--volume", f"{tmp_path}:/opt/toolkit:ro", "--network", "none"]
    mounts = {item["mountPath"] for item in container["volumeMounts"]} - {"/opt/toolkit", "/dev/shm"}
    options += [option for mount in sorted(mounts) for option in ("--tmpfs", f"{mount}:mode=1777")]
    options += [option for item in container["env"] for option in ("--env", f"{item['name']}={item['value']}")]
    image = ["--tls-verify=false", base, *container["command"][1:]]
    name = tool("podman", "run", "--detach", *options, "--entrypoint", container["command"][0], *image)
    try:
        ask_it = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8080/ping').status)"
        until(lambda: running_in(name, ask_it) == "200")
        assert "Read-only file system" in running_in(name, "open('/usr/bin/new', 'w')")
        assert running_in(name, "open('/cache/new', 'w')") == ""
        assert running_in(name, "import os; print(os.getuid(), open('/proc/1/status').read())").startswith(str(user))
        assert "CapEff:\t0000000000000000" in running_in(name, "print(open('/proc/1/status').read())")
    finally:
        tool("podman", "rm", "--force", "--time", "0", name)


def running_in(container: str, code: str) -> str:
    """What Python code says in the container, or how it fails."""
    done = subprocess.run(["podman", "exec", container, "python3", "-c", code], capture_output=True, text=True)
    return f"{done.stdout}{done.stderr}".strip()
