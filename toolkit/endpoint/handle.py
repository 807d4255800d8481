"""The deployed thing: ask it, stream from it, read its log, prove it, remove it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from toolkit.apply.progress import Progress, default_progress
from toolkit.apply.waiter import EndpointStatus, Waitable, wait_in_service
from toolkit.endpoint.generation import Generation, Invoker, Message, Stream, chat_body
from toolkit.endpoint.prove import DEFAULT_PROMPTS, Proof, prove
from toolkit.errors import UsageError
from toolkit.planning.plan import Plan

if TYPE_CHECKING:
    from openai import OpenAI


class EndpointPlatform(Waitable, Invoker, Protocol):
    """All that a handle needs of a platform."""

    @property
    def pause_between_arms(self) -> float:
        """Seconds after which an arm that has answered no longer takes time from the other."""

    def openai_access(self, endpoint: str) -> tuple[str, str]:
        """Base URL and key for an OpenAI client."""


@dataclass(frozen=True)
class Endpoint:
    """An endpoint on a platform.

    `baseline` is the name of its twin without speculation, None when there is none; `speculative` is False when its own
    recipe has method `none`.
    """

    name: str
    platform: EndpointPlatform = field(repr=False)
    destroyer: Callable[[str], Plan] = field(repr=False)
    baseline: str | None = None
    speculative: bool = True
    workloads: Mapping[str, Sequence[str]] = field(repr=False, default_factory=lambda: DEFAULT_PROMPTS)
    expected: Mapping[str, float] = field(repr=False, default_factory=dict)

    def chat(self, prompt: str | Sequence[Message], **options: Any) -> Generation:
        """The whole answer: greedy, at most 256 tokens, unless `options` of OpenAI's chat (`max_tokens`, …) differ."""
        return self.stream(prompt, **options).result

    def stream(self, prompt: str | Sequence[Message], **options: Any) -> Stream:
        """The answer piece by piece: iterate for text, then ask `.result` for times and acceptance."""
        return Stream(self.platform.stream(self.name, chat_body(prompt, options)))

    def openai(self) -> OpenAI:
        """An OpenAI client of this endpoint; the model's name is the endpoint's. Needs the `openai` package."""
        try:
            from openai import OpenAI
        except ImportError as error:
            raise UsageError("the openai package is not installed", hint="pip install 'toolkit[openai]'") from error
        base_url, key = self.platform.openai_access(self.name)
        return OpenAI(base_url=base_url, api_key=key)

    def status(self) -> EndpointStatus:
        """What SageMaker says of it now."""
        return self.platform.status(self.name)

    def wait(self, timeout: float = 3600, progress: Progress | None = None) -> Endpoint:
        """Return when it is in service with its present configuration. Raises EndpointFailed or WaitTimeout."""
        names = [self.name, self.baseline] if self.baseline else [self.name]
        configs = {name: self.platform.status(name).config for name in names}
        wait_in_service(self.platform, configs, progress or default_progress(), timeout)
        return self

    def logs(self) -> Iterator[str]:
        """What its containers have written, oldest first."""
        return (line.text for line in self.platform.logs(self.name))

    def prove(self, requests: int | None = None, max_tokens: int = 256) -> Proof:
        """Ask `requests` prompts of each workload (None: all): is speculation on and lossless, and how much faster?"""
        workloads = {name: prompts[:requests] for name, prompts in self.workloads.items()}
        pause = partial(time.sleep, self.platform.pause_between_arms)
        return prove(self.platform, self.name, self.baseline, workloads, self.expected, max_tokens, pause)

    def destroy(self) -> Plan:
        """Remove it, its baseline and everything made for them; the plan that was applied."""
        return self.destroyer(self.name)

    def to_dict(self) -> dict[str, Any]:
        """Name, baseline and status."""
        status = self.status()
        return {"name": self.name, "baseline": self.baseline, "status": status.status, "config": status.config}

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{key}</td><td><code>{escape(str(value))}</code></td></tr>"
            for key, value in self.to_dict().items()
        )
        return f"<table>{rows}</table>"
