"""What `toolkit render` gives runs: on a genuine control plane, in containers, with the real vLLM.

The instance type has a GPU, as a recipe's for vLLM's image must; the containers have CPUs.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toolkit
from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.rules.storage import bucket_folders
from toolkit.platforms.kubernetes.runtime import proxy
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.recipe.recipe import Recipe

sys.path.append(str(Path(__file__).parents[1] / "kubernetes"))
from container import NETWORK, why_not
from node import Node
from pod_volumes import Storage, known_classes
from real_server import WITHOUT, real_server, write_kubeconfig

pytestmark = [pytest.mark.serving, pytest.mark.allow_hosts(["127.0.0.1", NETWORK])]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "tiny"
NAME, NAMESPACE = "tiny-p-eagle", "ml"
# Each process of vLLM imports it anew otherwise, and all want the same core.
UNBOUND = 'VLLM_CPU_OMP_THREADS_BIND: nobind, OMP_NUM_THREADS: "1", TOOLKIT_VLLM_FORKS: "1"'
# On a busy machine a start takes minutes, an hour at this pace is six of them, and a stream is slow.
KUBERNETES = f"{{namespace: {NAMESPACE}, weights_bucket: ours, pod: {{drain_seconds: 500}}}}"
PLATFORM = f"{{name: kubernetes, instance_types: [g6.xlarge], health_check_timeout: 3600, kubernetes: {KUBERNETES}}}"
PACE = 10.0
PATIENCE_SECONDS = 300.0
STREAMS = 8
SHOWN_LINES = 60
LONG = {"model": NAME, "prompt": "One, two, three,", "max_tokens": 900, "ignore_eos": True, "stream": True}
SHORT = {**LONG, "max_tokens": 90}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """`tiny/p-eagle` on a cluster."""
    text = (TINY / "p-eagle.yaml").read_text()
    for ours, theirs in (("./", f"{TINY}/"), ("{name: local}", PLATFORM), ("env: {", f"env: {{{UNBOUND}, ")):
        assert ours in text
        text = text.replace(ours, theirs)
    file = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    file.write_text(text)
    return toolkit.load(file)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, recipe: Recipe) -> Iterator[Node]:
    """The only one of a cluster that our kubeconfig names; both models are in the bucket."""
    if WITHOUT or why_not():
        pytest.skip(WITHOUT or why_not())
    folder = tmp_path_factory.mktemp("cluster")
    for found in bucket_folders(recipe).values():
        assert found.source
        assert found.source.folder
        shutil.copytree(found.source.folder, folder / "buckets" / found.bucket / found.prefix)
    with real_server(folder) as config, pytest.MonkeyPatch.context() as environment:
        write_kubeconfig(config, folder, environment)
        storage = Storage(folder / "buckets", known_classes(folder / "cache"))
        with Node(SESSION.open(f"/{NAMESPACE}").cluster, storage, PACE, ROOT) as node:
            yield node
            for pod in node.lives:  # shown where a test has failed
                print(pod, *node.lines(pod)[-SHOWN_LINES:], sep="\n")


@pytest.fixture(scope="module")
def served(node: Node, recipe: Recipe) -> Recipe:
    """In service."""
    apply(node.cluster, toolkit.render(recipe))
    until(in_service, "the first version")
    return recipe


def apply(cluster: Cluster, parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """As `kubectl apply --server-side` does it of `namespace`, `base` and `serve`."""
    for item in (item for part in ("namespace", "base", "serve") for item in parts[part]):
        cluster.apply(path(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]), item)


def in_service() -> bool:
    (found,) = toolkit.status(NAME, platform="kubernetes")
    assert found.status != "Failed", found.failure_reason
    return found.status == "InService"


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what} does not come"
        time.sleep(0.1)


def streamed(cluster: Cluster, request: Mapping[str, Any], begun: Callable[[], object] = lambda: None) -> list[str]:
    """The events of an answer through the Service, to its end; `begun` is called when the first one is there."""
    with closing(cluster.open("POST", f"{proxy(cluster, NAME)}/v1/completions", request)) as answer:
        text = answer.read1()
        begun()
        text += b"".join(iter(answer.read1, b""))
    return [line.removeprefix("data: ") for line in text.decode().split("\n\n") if line]


def test_a_pod_reads_what_the_driver_has_mounted_and_answers(served: Recipe) -> None:
    endpoint = toolkit.connect(NAME, platform="kubernetes")
    answer = endpoint.chat("Write JSON records of the books 205 to 215.", max_tokens=60)
    assert answer.completion_tokens == 60 or answer.finish_reason == "stop"
    assert answer.acceptance
    assert answer.acceptance.length > 2


def test_its_container_is_nobody_without_a_right_or_a_file_of_its_image_to_write_to(served: Recipe, node: Node) -> None:
    (life,) = node.lives.values()
    text = Path(f"/proc/{life.container.first_process}/status").read_text()
    status = dict(line.split(":\t", 1) for line in text.splitlines())
    assert (status["Uid"].split()[0], status["CapBnd"], status["NoNewPrivs"]) == ("65534", "0" * 16, "1")


def test_an_update_cuts_none_of_eight_open_streams(served: Recipe, node: Node) -> None:
    """They are open on the old pod when it gets SIGTERM; each caller then asks again until the update is complete."""
    (old,) = node.lives
    node.may_be_ready.clear()
    updated = replace(served, engine=served.engine.edit(env={**served.engine.env, "VERSION": "2"}))
    apply(node.cluster, toolkit.render(updated))
    until(lambda: any(life.answers for name, life in node.lives.items() if name != old), "the second version")
    all_open, over = threading.Barrier(STREAMS + 1, timeout=PATIENCE_SECONDS), threading.Event()

    def ask() -> list[list[str]]:
        cluster = SESSION.open(f"/{NAMESPACE}").cluster
        answers = [streamed(cluster, LONG, all_open.wait)]
        while not over.is_set():
            answers.append(streamed(cluster, SHORT))
        return answers

    with ThreadPoolExecutor(STREAMS) as threads:
        callers = [threads.submit(ask) for _ in range(STREAMS)]
        all_open.wait()
        node.may_be_ready.set()
        try:
            until(lambda: old not in node.pods and in_service(), "the end of the first version")
        finally:
            over.set()
        answers = [answer for caller in callers for answer in caller.result()]
    assert {answer[-1] for answer in answers} == {"[DONE]"}
    assert len(answers) > STREAMS
    (drained,) = [line for line in node.lines(old) if line.startswith("serve: SIGTERM")]
    assert drained == f"serve: SIGTERM: {STREAMS} open requests get up to 500 s to finish"
