"""Wait until endpoints are in service, and tell failed from timed out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from toolkit.apply.diagnose import diagnose
from toolkit.apply.progress import Progress
from toolkit.errors import EndpointFailed, EndpointNotFound, WaitTimeout
from toolkit.planning.planner import UNDER_WAY

_LAST_LINES = 15
# What vLLM 0.32 prints when it comes to a stage of its start; the last that was printed counts.
_STAGES = (
    ("Application startup complete", "answering"),
    ("Starting vLLM server", "starting the server"),
    ("init engine", "warming up"),
    ("Loading weights took", "making the KV cache"),
    ("Loading drafter model", "loading the drafter"),
    ("Starting to load model", "loading the target"),
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("serve: exec", "importing vLLM"),
)


@dataclass(frozen=True)
class EndpointStatus:
    """Status of an endpoint in SageMaker's words, and the EndpointConfig that it runs."""

    name: str
    status: str
    config: str
    failure_reason: str = ""


@dataclass(frozen=True)
class LogLine:
    """One line that a container wrote. `stream` is `<variant>/<instance>`, `time` seconds since 1970."""

    stream: str
    time: float
    text: str


class Waitable(Protocol):
    """What waiting needs of a platform."""

    @property
    def poll_seconds(self) -> float:
        """The pause between two looks at an endpoint."""

    def status(self, endpoint: str) -> EndpointStatus:
        """The endpoint's status now. Raises EndpointNotFound."""

    def logs(self, endpoint: str) -> Iterator[LogLine]:
        """What the endpoint's containers have written since it was created; the newest container comes last."""


def wait_in_service(
    platform: Waitable,
    configs: Mapping[str, str],
    progress: Progress,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when every endpoint is InService with its EndpointConfig (`configs`: endpoint to config).

    Raises EndpointFailed, with cause and last lines, as soon as one has failed or its update was rolled back;
    WaitTimeout after `timeout` seconds; EndpointNotFound when one vanishes.
    """
    deadline = clock() + timeout
    waiting = dict(configs)
    while True:
        for endpoint, config in list(waiting.items()):
            status = platform.status(endpoint)
            if status.status == "Failed" or (status.status == "InService" and status.config != config):
                raise _failed(platform, status)
            if status.status == "InService":
                progress.say(f"{endpoint} is in service")
                del waiting[endpoint]
        if not waiting:
            return
        if clock() > deadline:
            first = next(iter(waiting))
            hint = f"See: toolkit logs {first}. The same command goes on waiting; toolkit destroy {first} gives up."
            raise WaitTimeout(f"{', '.join(waiting)} not in service after {timeout:.0f} s", hint=hint)
        progress.update(", ".join(f"{endpoint}: {_stage(_newest(platform, endpoint))}" for endpoint in waiting))
        sleep(platform.poll_seconds)


def wait_settled(
    platform: Waitable,
    endpoint: str,
    timeout: float,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the endpoint may be changed, which AWS refuses while something is under way. Raises WaitTimeout."""
    deadline = clock() + timeout
    try:
        while (status := platform.status(endpoint).status) in (*UNDER_WAY, "Deleting"):
            if clock() > deadline:
                raise WaitTimeout(
                    f"{endpoint} is still {status} after {timeout:.0f} s", hint="Run the same command again."
                )
            progress.update(f"{endpoint} is {status.lower()}; it can be changed when that is over")
            sleep(platform.poll_seconds)
    except EndpointNotFound:
        return


def wait_deleted(
    platform: Waitable,
    endpoint: str,
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the endpoint is gone. Raises WaitTimeout after `timeout` seconds."""
    deadline = clock() + timeout
    try:
        while clock() <= deadline:
            platform.status(endpoint)
            sleep(platform.poll_seconds)
    except EndpointNotFound:
        return
    raise WaitTimeout(f"{endpoint} is still being deleted after {timeout:.0f} s", hint="Run the same command again.")


def _failed(platform: Waitable, status: EndpointStatus) -> EndpointFailed:
    lines = _newest(platform, status.name)
    cause = diagnose(lines)
    why = cause.line if cause else status.failure_reason or "no reason is given"
    what = "failed" if status.status == "Failed" else f"was rolled back and still runs {status.config}"
    hint = cause.hint if cause and cause.hint else f"The container's log: toolkit logs {status.name}"
    return EndpointFailed(f"{status.name} {what}: {why}", hint=hint, logs=lines[-_LAST_LINES:])


def _newest(platform: Waitable, endpoint: str) -> list[str]:
    """What the newest container has written."""
    lines = list(platform.logs(endpoint))
    return [line.text for line in lines if line.stream == lines[-1].stream]


def _stage(lines: Sequence[str]) -> str:
    stages = (stage for line in reversed(lines) for mark, stage in _STAGES if mark in line)
    return next(stages, "provisioning")
