"""The two pods of a model on two nodes, as processes of the real vLLM: with the command, arguments and variables that
`toolkit render` gives them, and those that LeaderWorkerSet adds.

By tensor parallelism: pipeline stages end at their first request on vLLM 0.32's CPU build, whose runner makes room for
what comes from the stage before in a dummy run (v1/worker/gpu_model_runner.py), which enforce-eager leaves out.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3

import toolkit
from toolkit.home import cache
from toolkit.platforms.kubernetes.rules.several_nodes import LEADER_ADDRESS, WORKER_INDEX
from toolkit.platforms.local.container import free_port

pytestmark = pytest.mark.serving

TINY = Path(__file__).parents[2] / "recipes" / "tiny"
NAME = "tiny-p-eagle"
PLATFORM = "{name: kubernetes, instance_types: [g6.xlarge], kubernetes: {nodes: 2, weights_claim: models}}"
EDITS = (
    ("./", f"{TINY}/"),
    ("{name: local}", PLATFORM),
    # Each process of vLLM imports it anew otherwise, and all want the same core.
    ("env: {", 'env: {VLLM_CPU_OMP_THREADS_BIND: nobind, OMP_NUM_THREADS: "1", TOOLKIT_VLLM_FORKS: "1", '),
    ("args:\n", "args:\n    tensor-parallel-size: 2\n"),
)
PATIENCE_SECONDS = 300.0
MESSAGES = [{"role": "user", "content": "Write JSON records of the books 205 to 215."}]
REQUEST = {"model": NAME, "messages": MESSAGES, "max_tokens": 60, "temperature": 0}
_REFERENCE = re.compile(r"\$\(([A-Z_]+)\)")


@dataclass(frozen=True)
class Rank:
    """A pod's process."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass(frozen=True)
class Group:
    leader: Rank
    worker: Rank
    port: int

    def ask(self, method: str, path: str, body: Any = None) -> urllib3.BaseHTTPResponse:
        with urllib3.PoolManager() as pool:
            return pool.request(method, f"http://127.0.0.1:{self.port}{path}", json=body, retries=False, timeout=60)

    def is_ready(self) -> bool:
        """As the readiness probe asks it."""
        assert self.leader.process.poll() is None, self.leader.says()[-4000:]
        assert self.worker.process.poll() is None, self.worker.says()[-4000:]
        with suppress(urllib3.exceptions.HTTPError):
            return self.ask("GET", "/ping").status == 200
        return False


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.2)


def rendered(folder: Path) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The group's two pods, and the programs that are mounted into them."""
    text = (TINY / "p-eagle.yaml").read_text()
    for ours, theirs in EDITS:
        assert ours in text
        text = text.replace(ours, theirs)
    (folder / "recipe.yaml").write_text(text)
    parts = toolkit.render(folder / "recipe.yaml")
    (programs,) = [item["data"] for item in parts["base"] if item["kind"] == "ConfigMap"]
    (found,) = [item["spec"] for item in parts["serve"] if item["kind"] == "LeaderWorkerSet"]
    return found["leaderWorkerTemplate"], programs


def mounted(folder: Path, programs: Mapping[str, str]) -> dict[str, Path]:
    """A folder for each path of the container that its variables and command name; vLLM's cache outlives the test."""
    found = {path: folder / path.strip("/") for path in ("/opt/toolkit", "/opt/ml", "/cache")}
    for place in found.values():
        place.mkdir(parents=True)
    for name, text in programs.items():
        (found["/opt/toolkit"] / name).write_text(text)
    (cache() / "vllm").mkdir(parents=True, exist_ok=True)
    (found["/cache"] / "vllm").symlink_to(cache() / "vllm")
    (found["/opt/ml"] / "model").symlink_to(TINY / "models/target")
    (found["/opt/ml"] / "additional-model-data-sources").mkdir()
    (found["/opt/ml"] / "additional-model-data-sources/drafter").symlink_to(TINY / "models/p-eagle")
    return found


def start(pod: Mapping[str, Any], of_set: Mapping[str, str], of_machine: Mapping[str, str], folder: Path,
          programs: Mapping[str, str]) -> Rank:  # fmt: skip
    """The pod's container, as a process, where `of_machine` is what a pod's own network would make needless."""
    (container,) = pod["containers"]
    mounts = mounted(folder, programs)

    def here(text: str) -> str:
        text = _REFERENCE.sub(lambda found: of_set[found[1]], text)
        return re.sub("|".join(mounts), lambda found: str(mounts[found[0]]), text)

    variables = {item["name"]: here(item["value"]) for item in container["env"]}
    environment = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    environment |= {"SAGEMAKER_BASE_DIR": str(mounts["/opt/ml"]), **of_set, **variables, **of_machine}
    log = folder / "log"
    with log.open("wb") as out:
        command: Sequence[str] = [here(word) for word in container["command"]]
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    return Rank(process, log)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Of `tiny/p-eagle`: both of its pods are started at once."""
    folder = tmp_path_factory.mktemp("group")
    # vLLM's command wants its own package's version, which the CPU build calls another name.
    about = folder / "site/vllm-0.32.0+cpu.dist-info/METADATA"
    about.parent.mkdir(parents=True)
    about.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    port = free_port()
    of_machine = {
        "PYTHONPATH": str(folder / "site"),
        "SAGEMAKER_BIND_TO_PORT": str(port),
        "SM_VLLM_HOST": "127.0.0.1",
        "SM_VLLM_MASTER_PORT": str(free_port()),
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    pods, programs = rendered(folder)
    ranks: list[Rank] = []
    try:
        for index, part in enumerate(("leaderTemplate", "workerTemplate")):
            of_set = {LEADER_ADDRESS: "127.0.0.1", "LWS_GROUP_SIZE": str(pods["size"]), WORKER_INDEX: str(index)}
            ranks.append(start(pods[part]["spec"], of_set, of_machine, folder / part, programs))
        found = Group(ranks[0], ranks[1], port)
        until(found.is_ready, "readiness")
        yield found
    finally:
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.killpg(rank.process.pid, signal.SIGKILL)
            rank.process.wait()


def test_the_leader_answers_with_drafts_that_both_ranks_verify(group: Group) -> None:
    answer = group.ask("POST", "/v1/chat/completions", REQUEST).json()
    assert answer["usage"]["completion_tokens"] == 60 or answer["choices"][0]["finish_reason"] == "stop"
    page = group.ask("GET", "/metrics").data.decode()
    drafts, accepted = (
        float(found)
        for name in ("drafts", "accepted_tokens")
        for found in re.findall(rf"^vllm:spec_decode_num_{name}_total\S* (\S+)$", page, re.MULTILINE)
    )
    assert 1 + accepted / drafts > 2
    assert "world_size=2, local_world_size=1" in group.leader.says()


def test_the_worker_serves_nobody(group: Group) -> None:
    said = group.worker.says()
    assert "headless multiproc executor" in said
    assert "Application startup complete" not in said


def test_a_worker_that_dies_ends_its_container_of_which_the_set_makes_a_new_group(group: Group) -> None:
    (rank,) = re.findall(r"Worker_TP1 pid=(\d+)", group.worker.says())[:1]
    os.kill(int(rank), signal.SIGKILL)
    until(lambda: group.worker.process.poll() is not None, "the end of the worker's container")
