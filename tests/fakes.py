"""Platforms and endpoints in memory, small and strict: they refuse what AWS refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from toolkit.apply.progress import Progress
from toolkit.apply.waiter import EndpointStatus, LogLine
from toolkit.errors import EndpointNotFound, PlatformError
from toolkit.planning.names import ENDPOINT_TAG
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.recipe.recipe import Recipe
from toolkit.registry import rules_of

ACCOUNT = Account("123456789012", "us-west-2")
_KINDS = [kind.kind for kind in rules_of("sagemaker").kinds]
Key = tuple[str, str]


class FakeClock:
    """Seconds that pass only when someone sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Told:
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.updates: list[str] = []
        self.details: list[str] = []
        self.said: list[str] = []

    def stage(self, name: str) -> AbstractContextManager[None]:
        self.stages.append(name)
        return nullcontext()

    def update(self, text: str, detail: str = "") -> None:
        self.updates.append(text)
        self.details.append(detail)

    def say(self, text: str) -> None:
        self.said.append(text)


class Interrupting(Told):
    """Presses Ctrl-C once a moment has come."""

    def __init__(self, moment: Callable[[], bool]) -> None:
        super().__init__()
        self._moment = moment

    def update(self, text: str, detail: str = "") -> None:
        if self._moment():
            raise KeyboardInterrupt


class MemoryPlatform:
    """AWS in memory. `interrupt_in(n)` presses Ctrl-C at the n-th moment from now: before, after or amid an action."""

    name = "sagemaker"
    poll_seconds = 1.0

    def __init__(self) -> None:
        self.resources: dict[Key, dict[str, Any]] = {}
        self._moments_left: int | None = None

    def pause_between_arms(self, endpoint: str) -> float:
        return 0.0

    def interrupt_in(self, moments: int | None) -> None:
        self._moments_left = moments

    def account(self, recipe: Recipe | None = None) -> Account:
        return ACCOUNT

    def lease(self, endpoint: str) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        wanted = {(item.kind, item.name) for item in desired}
        found = [self._existing(key) for key in self.resources]
        return Observed(
            tuple(
                item
                for item in found
                if item.kind == "Bucket" or (item.kind, item.name) in wanted or set(item.endpoints) & set(endpoints)
            )
        )

    def execute(self, action: Action, progress: Progress) -> None:
        key: Key = (action.kind, action.name)
        self._moment()
        if action.kind == "Endpoint" and action.verb != "create":
            self._settle(action.name)
        if action.verb in ("delete", "replace"):
            self._delete(key)
            self._moment()
        if action.verb != "delete":
            self._put(key, action)
        self._moment()

    def status(self, endpoint: str) -> EndpointStatus:
        """The status now; what was under way is done when it is asked for again."""
        state = self.resources.get(("Endpoint", endpoint))
        if state is None:
            raise EndpointNotFound(f"there is no endpoint {endpoint}")
        self._moment()
        seen = EndpointStatus(endpoint, state["EndpointStatus"], state["EndpointConfigName"])
        self._settle(endpoint)
        return seen

    def logs(
        self,
        endpoint: str,
        since: float = 0.0,
        bookmarks: MutableMapping[str, str] | None = None,
        *,
        written_since: float = 0.0,
    ) -> Iterator[LogLine]:
        return iter(())

    def _put(self, key: Key, action: Action) -> None:
        kind, name = key
        if action.verb == "create" and key in self.resources and kind != "Weights":
            raise PlatformError(f"{kind} {name} exists already")
        self._require_what_it_refers_to(kind, action.request)
        if kind == "Weights":
            for files in range(len(action.request["Files"]) + 1):
                self.resources[key] = {**action.request, "Source": "forgotten", "There": files}
                self._moment()
        elif kind == "Endpoint" and action.verb == "update":
            there = self.resources[key]
            there["Previous"] = there["EndpointConfigName"]
            self._moment()
            there.update({**action.request, "EndpointStatus": "Updating"})
        elif kind == "Endpoint":
            self.resources[key] = {**action.request, "EndpointStatus": "Creating"}
        else:
            self.resources[key] = dict(action.request)

    def _require_what_it_refers_to(self, kind: str, request: Mapping[str, Any]) -> None:
        required: dict[str, Callable[[], Key]] = {
            "WeightsReference": lambda: ("Bucket", request["Bucket"]),
            "Weights": lambda: ("Bucket", request["Bucket"]),
            "RolePolicy": lambda: ("Role", request["RoleName"]),
            "Model": lambda: ("Role", request["ExecutionRoleArn"].rpartition("/")[2]),
            "EndpointConfig": lambda: ("Model", request["ProductionVariants"][0]["ModelName"]),
            "Endpoint": lambda: ("EndpointConfig", request["EndpointConfigName"]),
        }
        if kind in required and required[kind]() not in self.resources:
            raise PlatformError(f"{kind} refers to {required[kind]()}, which does not exist")

    def _delete(self, key: Key) -> None:
        kind, name = key
        if kind == "Bucket" and any(other in ("Weights", "WeightsReference") for other, _ in self.resources):
            raise PlatformError(f"the bucket {name} is not empty")
        if kind == "Role" and any(
            other == "RolePolicy" and has.startswith(f"{name}/") for other, has in self.resources
        ):
            raise PlatformError(f"the role {name} has policies")
        self.resources.pop(key, None)

    def _settle(self, endpoint: str) -> None:
        state = self.resources.get(("Endpoint", endpoint))
        if state and state["EndpointStatus"] in ("Creating", "Updating"):
            state["EndpointStatus"] = "InService"

    def _existing(self, key: Key) -> Existing:
        kind, name = key
        request = self.resources[key]
        told = ("Bucket", "Key", "Prefix", "PolicyDocument", "EndpointStatus")
        state: dict[str, Any] = {key: request[key] for key in told if key in request}
        if kind == "Weights":
            state["Files"] = request["There"]
        if kind == "Endpoint":
            state["EndpointConfigName"] = state["Running"] = request["EndpointConfigName"]
            state["Previous"] = request.get("Previous")
        if kind == "EndpointConfig":
            state["Models"] = [request["ProductionVariants"][0]["ModelName"]]
            state["Instances"] = []
        if kind == "Model":
            container = request["PrimaryContainer"]
            sources = [container["ModelDataSource"], *container.get("AdditionalModelDataSources", [])]
            state["Prefixes"] = [item["S3DataSource"]["S3Uri"].split("/", 3)[3] for item in sources]
            state["Content"] = request
        return Existing(kind, name, True, self._users(kind, name), state)

    def _users(self, kind: str, name: str) -> tuple[str, ...]:
        if kind == "WeightsReference":
            return (name.partition("/")[2],)
        if kind in ("Bucket", "Weights"):
            uses = [use.partition("/") for other, use in self.resources if other == "WeightsReference"]
            return tuple(sorted({user for weights, _, user in uses if kind == "Bucket" or weights == name}))
        if kind == "RolePolicy":
            return (name.partition("/")[2],)
        if kind == "Role":
            return (name.removeprefix("toolkit-").removesuffix(f"-{ACCOUNT.region}"),)
        tags = {tag["Key"]: tag["Value"] for tag in self.resources[kind, name]["Tags"]}
        return (tags[ENDPOINT_TAG],)

    def _moment(self) -> None:
        if self._moments_left is not None:
            self._moments_left -= 1
            if self._moments_left < 0:
                raise KeyboardInterrupt


def by_kind(resources: Mapping[Key, Any]) -> list[Key]:
    """Keys in the order in which resources are made."""
    return sorted(resources, key=lambda key: (_KINDS.index(key[0]), key[1]))


def event_stream(events: Sequence[Mapping[str, Any]], end: bytes = b"data: [DONE]\n\n") -> bytes:
    """Events as vLLM sends them."""
    return b"".join(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in events) + end


def answer_events(
    token_ids: Sequence[int], histogram: Sequence[int] | None = None, prompt_token_ids: Sequence[int] = (1, 2)
) -> list[dict[str, Any]]:
    """vLLM's events for an answer of one token a piece; `histogram` is what speculation reports."""
    pieces = [{"choices": [{"delta": {"content": f"<{token}>"}, "token_ids": [token]}]} for token in token_ids]
    usage: dict[str, Any] = {"prompt_tokens": len(prompt_token_ids), "completion_tokens": len(token_ids)}
    metrics = {"metrics": {"speculative_decoding": {"acceptance_histogram": list(histogram)}}} if histogram else {}
    return [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}], "prompt_token_ids": list(prompt_token_ids)},
        *pieces,
        {"choices": [{"delta": {"content": ""}, "finish_reason": "stop"}]},
        {"choices": [], "usage": usage, **metrics},
    ]
