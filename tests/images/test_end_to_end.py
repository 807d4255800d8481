"""Images that are built, pushed, pulled by digest and run without network: the same answers whoever built them, and
once with a real vLLM inside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from build_tools import Container, container, docker_engine, our_image, own_storage, tool
from standin_base import VENV, push_standin

import toolkit
from toolkit.engines.arguments import environment
from toolkit.home import cache
from toolkit.images.append import AppendBuilder
from toolkit.images.buildah import BuildahBuilder
from toolkit.images.docker import DockerBuilder
from toolkit.images.registry import Registry
from toolkit.images.spec import Builder

MODELS = Path(toolkit.__file__).parent.parent / "recipes" / "tiny" / "models"
PROMPT = "Write JSON records of the books 205 to 215."
BUILDERS: dict[str, Callable[[], Builder]] = {
    "append": lambda: AppendBuilder(Registry),
    "buildah": BuildahBuilder,
    "docker": DockerBuilder,
}


@pytest.fixture(scope="module", autouse=True)
def _tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_storage(tmp_path_factory.mktemp("storage")), docker_engine(tmp_path_factory.mktemp("engine")):
        yield


@pytest.fixture(scope="module")
def base(host: str) -> str:
    with Registry(host) as registry:
        return push_standin(registry, "standin/vllm")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text("{}")
    return folder


def built(builder: str, base: str, host: str, fragment: str = "") -> str:
    """The image by digest; what the builder keeps of it is removed, so that who wants it has to pull it."""
    digest = BUILDERS[builder]().build(our_image(base, fragment), f"{host}/end-to-end/{builder}:1", print)
    tool("buildah", "rmi", "--all", "--force")
    return f"{host}/end-to-end/{builder}@{digest}"


def answer(image: str, model: Path) -> dict[str, Any]:
    """What the stand-in for vLLM says that it was started with."""
    variables = {"SM_VLLM_MAX_MODEL_LEN": "1024", "SM_VLLM_ENFORCE_EAGER": "true"}
    with container(image, variables, ["--volume", f"{model}:/opt/ml/model:ro"]) as running:
        running.wait_for_ping(60)
        said = running.request("/invocations", {"prompt": "x"}).json()
        assert running.stop(20) == 0
    return dict(said)


def test_whoever_built_it_the_image_answers_alike(base: str, host: str, model: Path) -> None:
    append, buildah, docker = (answer(built(builder, base, host), model) for builder in BUILDERS)
    assert append["files"]["/opt/toolkit/deep/er/note"][0] == "-rw-r-----"
    assert append == buildah
    assert append == docker


@pytest.mark.parametrize("builder", ["buildah", "docker"])
def test_what_a_recipes_own_step_made_is_there_when_it_runs(builder: str, base: str, host: str, model: Path) -> None:
    step = "RUN echo made > /opt/toolkit/made\nENV MADE=yes\n"
    said = answer(built(builder, base, host, step), model)
    assert said["environment"]["MADE"] == "yes"
    assert "/opt/toolkit/made" in said["files"]


@pytest.mark.serving
def test_a_real_vllm_speculates_in_the_image_and_finishes_what_it_began(base: str, host: str) -> None:
    image, recipe = built("buildah", base, host), toolkit.load("tiny/p-eagle")
    options = ["--shm-size", "1g"]  # vLLM's processes talk through 160 MiB of it
    (cache() / "vllm").mkdir(parents=True, exist_ok=True)
    options += ["--volume", f"{cache() / 'vllm'}:/opt/cache"]  # what vLLM found out about the models' classes
    for source, target in {
        sys.prefix: VENV,
        MODELS / "target": "/opt/ml/model",
        MODELS / "p-eagle": "/opt/ml/additional-model-data-sources/drafter",
    }.items():
        options += ["--volume", f"{source}:{target}:ro"]
    messages = [{"role": "user", "content": PROMPT}]
    request = {"model": recipe.name, "messages": messages, "max_tokens": 64, "temperature": 0}
    # Bound, all of vLLM's processes on this machine share one core.
    variables = {"VLLM_CACHE_ROOT": "/opt/cache", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    with container(image, {**environment(recipe), **variables}, options) as running:
        running.wait_for_ping(600)
        completion = running.request("/invocations", request).json()
        assert completion["usage"]["completion_tokens"] == 64
        assert metric(running, "vllm:spec_decode_num_accepted_tokens_total") > 0
        long = {**request, "max_tokens": 900, "ignore_eos": True, "stream": True}
        command = running.request_command("/invocations", long)
        with subprocess.Popen([*command, "--no-buffer"], stdout=subprocess.PIPE, text=True) as open_request:
            assert open_request.stdout
            assert open_request.stdout.readline().startswith("data: ")  # it is under way
            exit_code = running.stop(grace_seconds=120)
            rest = open_request.stdout.read()
        assert (rest.split()[-2:], exit_code) == (["[DONE]", "200"], 0), running.logs()


def metric(running: Container, name: str) -> float:
    lines = running.request("/metrics").body.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))
