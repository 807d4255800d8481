"""An endpoint is updated while eight callers stream from it: no request is lost, no answer is another than before."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.apply.waiter import wait_settled
from toolkit.endpoint.generation import Generation
from toolkit.errors import EndpointFailed
from toolkit.platforms.local import daemon
from toolkit.platforms.local.platform import LocalPlatform
from toolkit.recipe.recipe import Recipe

pytestmark = pytest.mark.serving
TOKENS = 16
THINKING_S = 1.0  # between two questions of a caller, so that the new engine gets CPU time to start
PATIENCE_S = 120.0


@dataclass(frozen=True)
class BrokenUpdate:
    """What was seen of it: `running` is the EndpointConfig of before."""

    endpoint: Endpoint
    running: str
    failure: EndpointFailed
    callers: Callers


class Callers:
    """Eight, each with a prompt of its own that it asks again and again, greedily, as a stream."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = _asked_once(endpoint)
        self._prompts = [prompt.text for prompt in endpoint.workloads[0].prompts]
        self._news = threading.Condition()
        self._enough = threading.Event()
        self._asking: Sequence[Future[None]] = ()
        self.expected = [self._ask(prompt) for prompt in self._prompts]
        self.answers: list[list[Generation]] = [[] for _ in self._prompts]
        self.meanwhile = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They ask from before what happens in this block until after it. Raises what went wrong with a request."""
        with ThreadPoolExecutor(len(self._prompts)) as threads:
            self._asking = [threads.submit(self._go_on, number) for number in range(len(self._prompts))]
            try:
                self._wait_for_answers()
                before = self.count
                yield
                self.meanwhile = self.count - before
                self._wait_for_answers()
            finally:
                self._enough.set()
        for asking in self._asking:
            asking.result()

    @property
    def count(self) -> int:
        """Answers so far."""
        return sum(map(len, self.answers))

    @property
    def different(self) -> list[Generation]:
        """Answers that lack a token, or have another one than before."""
        return [
            answer
            for expected, answers in zip(self.expected, self.answers, strict=True)
            for answer in answers
            if (answer.token_ids, answer.finish_reason) != (expected.token_ids, expected.finish_reason)
        ]

    def __str__(self) -> str:
        arms = Counter(_arm(answer) for answers in self.answers for answer in answers)
        slowest = max(answer.latency for answers in self.answers for answer in answers)
        return f"{self.count} requests, {self.meanwhile} meanwhile, by {dict(arms)}; the slowest took {slowest:.2f} s"

    def _go_on(self, number: int) -> None:
        while not self._enough.wait(THINKING_S):
            answer = self._ask(self._prompts[number])
            with self._news:
                self.answers[number].append(answer)
                self._news.notify_all()

    def _ask(self, prompt: str) -> Generation:
        answer = self._endpoint.chat(prompt, max_tokens=TOKENS)
        assert len(answer.token_ids) == answer.completion_tokens
        assert answer.completion_tokens == TOKENS or answer.finish_reason == "stop"
        return answer

    def _wait_for_answers(self) -> None:
        """Return when each has asked and was answered since now, or one has failed."""
        wanted = [len(answers) + 2 for answers in self.answers]  # the first may have been asked before

        def is_so() -> bool:
            return all(len(answers) >= n for answers, n in zip(self.answers, wanted, strict=True)) or any(
                asking.done() for asking in self._asking
            )

        with self._news:
            assert self._news.wait_for(is_so, PATIENCE_S), f"no answers for {PATIENCE_S:.0f} s: {self}"


@pytest.fixture(scope="module")
def home(serving_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose local platform holds nothing else."""
    home = tmp_path_factory.mktemp("load")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TOOLKIT_HOME", str(home))
        yield home
    daemon.stop(home / "local")


@pytest.fixture(autouse=True)
def _at_home(home: Path, _in_serving_home: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(home))


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return replace(toolkit.load("tiny/p-eagle"), name="tiny-load")


@pytest.fixture(scope="module")
def broken_update(home: Path, recipe: Recipe) -> BrokenUpdate:
    """An update to a KV cache that holds no request: no check compares the two, vLLM does when it has loaded."""
    endpoint = toolkit.deploy(recipe, progress=Silent())
    too_small = {**recipe.engine.args, "kv-cache-memory-bytes": 65536}
    broken = replace(recipe, engine=recipe.engine.edit(args=too_small))
    running, callers = endpoint.status().config, Callers(endpoint)
    with callers.at_work():
        with pytest.raises(EndpointFailed) as failed:
            toolkit.deploy(broken, progress=Silent())
        wait_settled(endpoint.platform, endpoint.name, PATIENCE_S, Silent())  # the cause is told before all has ended
    print(f"broken update: {callers}")
    return BrokenUpdate(endpoint, running, failed.value, callers)


def test_an_update_to_p_eagle_loses_no_request(recipe: Recipe) -> None:
    callers = Callers(toolkit.deploy(replace(recipe, speculation=None), progress=Silent()))

    with callers.at_work():
        toolkit.deploy(recipe, progress=Silent())

    print(f"update to P-EAGLE: {callers}")
    assert {_arm(answers[0]) for answers in callers.answers} == {"baseline"}
    assert {_arm(answers[-1]) for answers in callers.answers} == {"P-EAGLE"}
    assert callers.different == []


def test_a_broken_update_ends_with_its_cause(broken_update: BrokenUpdate) -> None:
    cause = broken_update.failure.cause
    assert cause
    assert cause.code == "kv-cache-memory"


def test_a_broken_update_is_rolled_back_and_loses_no_request(broken_update: BrokenUpdate) -> None:
    assert broken_update.callers.meanwhile > 0
    assert broken_update.callers.different == []
    status = broken_update.endpoint.status()
    assert (status.status, status.config) == ("InService", broken_update.running)


def test_destroy_leaves_nothing_of_both_updates(broken_update: BrokenUpdate, home: Path) -> None:
    broken_update.endpoint.destroy()

    assert _left(broken_update.endpoint, home) == {}


def _asked_once(endpoint: Endpoint) -> Endpoint:
    """It would ask again for what was refused, and so hide that."""

    def never(_: float) -> NoReturn:
        raise AssertionError("a request was refused, and would be sent again")

    assert isinstance(endpoint.platform, LocalPlatform)
    return replace(endpoint, platform=replace(endpoint.platform, sleep=never))


def _arm(answer: Generation) -> str:
    return "P-EAGLE" if answer.acceptance else "baseline"


def _left(endpoint: Endpoint, home: Path) -> dict[str, Any]:
    """All that the account still holds, but for logs, which AWS keeps too."""
    assert isinstance(endpoint.platform, LocalPlatform)
    clients = endpoint.platform.clients
    held: dict[str, Sequence[Any]] = {
        "endpoints": clients.sagemaker.list_endpoints()["Endpoints"],
        "configurations": clients.sagemaker.list_endpoint_configs()["EndpointConfigs"],
        "models": clients.sagemaker.list_models()["Models"],
        "buckets": clients.s3.list_buckets()["Buckets"],
        "roles": clients.iam.list_roles()["Roles"],
        "tagged": clients.tagging.get_resources()["ResourceTagMappingList"],
        "folders of containers": list((home / "local" / "endpoints").iterdir()),
    }
    return {kind: things for kind, things in held.items() if things}
