"""What a user does on a cluster: a genuine control plane, and in the containers of its pods a real vLLM.

The recipe is a shipped one, moved to the cluster. Its instance type has a GPU, as a recipe's for vLLM's image must; the
containers have CPUs.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub import COMMIT, hub
from pairs import recipe_with

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.errors import EndpointFailed
from toolkit.platforms.kubernetes.cluster import Cluster, is_ours, path
from toolkit.platforms.kubernetes.rules.kinds import KINDS
from toolkit.platforms.kubernetes.session import DEFAULT_NAMESPACE, SESSION
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.recipe.lock import read_models, write_lock
from toolkit.recipe.recipe import Recipe

sys.path.append(str(Path(__file__).parents[1] / "kubernetes"))
from container import NETWORK, why_not
from node import Node
from pod_volumes import Storage, known_classes
from real_server import WITHOUT, real_server, write_kubeconfig

pytestmark = [pytest.mark.serving, pytest.mark.allow_hosts(["127.0.0.1", NETWORK])]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "recipes" / "tiny"
BUILT_IN = ("v1", "apps", "batch", "autoscaling", "networking.k8s.io", "policy", "resource.k8s.io")
MODELS = ("target", "draft-model")
TOKEN = "hf_hunter2"
TEXT = "$(HOME) costs $5"  # as no shell and no kubelet shall read it
# Else both arms share one core, and each process of vLLM imports it anew.
UNBOUND = 'VLLM_CPU_OMP_THREADS_BIND: nobind, OMP_NUM_THREADS: "1", TOOLKIT_VLLM_FORKS: "1"'
# On a busy machine a start takes minutes, and an hour at this pace is six of them.
PLATFORM = "{name: kubernetes, instance_types: [g6.xlarge], health_check_timeout: 3600, hub_token_secret: hub}"
PACE = 10.0
PATIENCE_SECONDS = 600.0
PROMPT = "Write JSON records of the books 205 to 215."
REQUEST: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 60}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """`tiny/draft-model` on a cluster, with its lock: the models are the hub's."""
    text = (TINY / "draft-model.yaml").read_text()
    for ours, theirs in (
        ("./models/", "tiny/"),
        ("./prompts/", f"{TINY / 'prompts'}/"),
        ("{name: local}", PLATFORM),
        ("env: {", f"env: {{TEXT: '{TEXT}', {UNBOUND}, "),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    file = tmp_path_factory.mktemp("recipe") / "recipe.yaml"
    file.write_text(text)
    with hub({f"tiny/{name}": TINY / "models" / name for name in MODELS}) as server, hub_client(server.url) as client:
        loaded = toolkit.load(file)
        write_lock(loaded, read_models(loaded, lambda source: HubFiles(source.model, source.revision, client)))
    return toolkit.load(file)


@pytest.fixture(scope="module")
def node(serving_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Of a cluster that our kubeconfig names; the hub's token is in a Secret there."""
    if WITHOUT or why_not():
        pytest.skip(WITHOUT or why_not())
    folder = tmp_path_factory.mktemp("cluster")
    storage = Storage(folder / "buckets", warm_cache(known_classes(folder / "cache")))
    with real_server(folder) as config, pytest.MonkeyPatch.context() as environment:
        write_kubeconfig(config, folder, environment)
        cluster = SESSION.open(None).cluster
        prepare(cluster)
        with Node(cluster, storage, PACE, ROOT) as node:
            yield node


@pytest.fixture(scope="module")
def endpoint(node: Node, recipe: Recipe) -> Endpoint:
    """The recipe and its baseline, in service. They end with the last test, or with the node."""
    return toolkit.deploy(recipe, baseline=True, progress=Silent())


def warm_cache(folder: Path) -> Path:
    """A pod's cache after it has fetched the models, as huggingface_hub lays it out."""
    for name in MODELS:
        repository = folder / "huggingface" / "hub" / f"models--tiny--{name}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(COMMIT)
        shutil.copytree(TINY / "models" / name, repository / "snapshots" / COMMIT)
    return folder


def prepare(cluster: Cluster) -> None:
    """As `kubectl create namespace` and `kubectl create secret` do."""
    cluster.call("POST", path("Namespace", ""), {"metadata": {"name": DEFAULT_NAMESPACE}})
    secret = {"metadata": {"name": "hub"}, "stringData": {"token": TOKEN}}
    cluster.call("POST", f"/api/v1/namespaces/{DEFAULT_NAMESPACE}/secrets", secret)


def test_both_arms_are_in_service(endpoint: Endpoint) -> None:
    found = {item.name: item.status for item in toolkit.endpoints(platform="kubernetes")}

    assert found == {"tiny-draft-model": "InService", "tiny-draft-model-baseline": "InService"}


def test_a_stream_comes_in_pieces_and_says_what_chat_says(endpoint: Endpoint) -> None:
    whole = endpoint.chat(PROMPT, max_tokens=60)
    pieces = list(endpoint.stream(PROMPT, max_tokens=60))

    assert len(pieces) > 5
    assert "".join(pieces) == whole.text
    assert whole.acceptance
    assert whole.acceptance.length > 2


def test_openais_client_asks_and_streams(endpoint: Endpoint) -> None:
    with endpoint.openai() as client:
        whole = client.chat.completions.create(model=endpoint.name, **REQUEST)
        pieces = client.chat.completions.create(model=endpoint.name, stream=True, **REQUEST)
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces)

    assert whole.choices[0].message.content == text == endpoint.chat(PROMPT, max_tokens=60).text


def test_speculation_is_on_and_lossless(endpoint: Endpoint) -> None:
    proof = endpoint.prove(requests=6, seconds=300)

    holds = {verdict.claim: verdict.holds for verdict in proof.verdicts if verdict.claim != "pays"}  # on a busy machine
    assert holds == dict.fromkeys(("on", "accepted", "baseline", "same-target", "lossless"), True), proof
    assert {arm.identical for arm in proof.arms if arm.arm == "speculative"} == {1.0}


def test_metrics_are_those_of_the_engine(endpoint: Endpoint) -> None:
    before = endpoint.metrics().invocations
    endpoint.chat(PROMPT, max_tokens=60)
    metrics = endpoint.metrics()

    assert metrics.invocations == before + 1
    assert (metrics.client_errors, metrics.server_errors) == (0, 0)
    assert metrics.engine
    assert metrics.engine.acceptance_length
    assert metrics.engine.acceptance_length > 2
    assert metrics.engine.ttft


def test_the_log_has_what_kubernetes_and_the_container_say(endpoint: Endpoint) -> None:
    lines = list(endpoint.logs())

    assert "kubernetes: Started: Started container engine" in lines
    assert any(line.startswith("serve: the first generation worked") for line in lines)
    assert not any(TOKEN in line for line in lines)


def test_the_container_gets_values_as_the_recipe_has_them_and_the_hubs_token(endpoint: Endpoint, node: Node) -> None:
    (life,) = (life for name, life in node.lives.items() if "-baseline-" not in name)
    entries = Path(f"/proc/{life.container.first_process}/environ").read_text().split("\0")

    assert {f"TEXT={TEXT}", f"HF_TOKEN={TOKEN}"} <= set(entries)


def test_the_benchmarks_job_measures_both_arms(endpoint: Endpoint, node: Node, recipe: Recipe) -> None:
    """It finds them by the names of their Services."""
    program, *others = toolkit.render(recipe, baseline=True)["benchmark"]
    shorter = program["data"]["benchmark.py"].replace("OUTPUT_TOKENS = 600", "OUTPUT_TOKENS = 15")  # two CPUs
    for item in ({**program, "data": {"benchmark.py": shorter}}, *others):
        node.cluster.apply(path(item["kind"], DEFAULT_NAMESPACE, item["metadata"]["name"]), item)
    pod = ended(node, others[-1]["metadata"]["name"])

    assert pod["status"]["phase"] == "Succeeded", node.lines(pod["metadata"]["name"])
    lines = [json.loads(line) for line in node.lines(pod["metadata"]["name"])]
    cases = {variant: {line["TestCase"] for line in lines if line["Variant"] == variant} for variant in ("SD", "Base")}
    assert cases["SD"] == cases["Base"]
    assert len(cases["SD"]) == 8
    assert all(0 < line["OutputTokens"] <= 15 for line in lines)  # the tiny model may end earlier
    assert all(line["AcceptanceLength"] >= 1 for line in lines if line["Variant"] == "SD")


def ended(node: Node, job: str) -> dict[str, Any]:
    """The Job's pod."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for pod in [*node.pods.values()]:
            is_its = pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job
            if is_its and pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                return pod
        time.sleep(0.1)
    raise TimeoutError(f"{job} does not end")


def test_an_engine_that_dies_at_its_start_gives_its_last_words(node: Node, recipe: Recipe) -> None:
    engine = recipe.engine.edit(args={**recipe.engine.args, "load-format": "sharded_state"})
    broken = replace(recipe, name="tiny-broken", engine=engine)

    with pytest.raises(EndpointFailed, match="Could not find checkpoint files") as failed:
        toolkit.deploy(broken, progress=Silent())

    toolkit.destroy(broken, progress=Silent())
    assert failed.value.cause
    assert failed.value.cause.code == "tensors"
    assert "only pre-sharded checkpoints are currently supported" in failed.value.cause.line
    assert failed.value.logs


def test_a_secret_that_is_not_there_is_told(node: Node, recipe: Recipe) -> None:
    broken = recipe_with(recipe, name="tiny-broken", hub_token_secret="huub")

    with pytest.raises(EndpointFailed, match='"huub" not found') as failed:
        toolkit.deploy(broken, progress=Silent())

    toolkit.destroy(broken, progress=Silent())
    assert failed.value.cause
    assert failed.value.cause.code == "container-config"


def test_a_removal_leaves_nothing_of_ours(endpoint: Endpoint, node: Node) -> None:
    """The last one: it ends what the others share."""
    endpoint.destroy()

    kinds = [rule.kind for rule in KINDS if rule.api.version.partition("/")[0] in BUILT_IN]
    left = [item for kind in (*kinds, "Pod") for item in node.cluster.items(path(kind, DEFAULT_NAMESPACE), {})]
    assert [item["metadata"]["name"] for item in left if is_ours(item)] == []
