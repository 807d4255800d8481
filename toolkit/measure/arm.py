"""What is measured and what it is asked: an endpoint, an arm, how it is reached, energy, and prompts by workload."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, runtime_checkable

from toolkit.endpoint.generation import Acceptance
from toolkit.endpoint.platform import VARIANT_MARK, EndpointPlatform
from toolkit.endpoint.wire import Chunk
from toolkit.measure.result import RequestResult
from toolkit.recipe.prompts import Message, Prompt
from toolkit.recipe.rules import Scoring
from toolkit.recipe.schema import Expect

NO_PENALTIES: Mapping[str, float] = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
"""A server applies those of generation_config.json otherwise; greedy tokens are then not the model's first choices."""
FIXED_LENGTH = "ignore_eos"
"""The field of a request whose answer goes on to its `max_tokens`."""


@dataclass(frozen=True)
class Workload:
    """Prompts of one kind. With `fixed_length` every answer has exactly its `max_tokens` (`FIXED_LENGTH`).

    `note` is what a reader of the report has to know, such as what part of a data set this is. `arrivals` are the
    seconds at which the prompts of a trace are sent, in their order; without them, the load decides. With several
    `turns` a prompt begins a chat, and the results of each turn count as a workload of their own.
    """

    name: str
    prompts: tuple[Prompt, ...]
    fixed_length: bool = False
    note: str = ""
    arrivals: tuple[float, ...] = ()
    turns: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The workloads that its results are of: one for each turn."""
        return (self.name,) if self.turns == 1 else tuple(f"{self.name}, turn {n + 1}" for n in range(self.turns))

    def chat(self, index: int) -> list[tuple[Message, ...]]:
        """What its user says in each turn: the prompt, and what comes later, or else the prompts that follow it."""
        prompt = self.prompts[index]
        others = (self.prompts[(index + turn) % len(self.prompts)].messages[-1] for turn in range(1, self.turns))
        return [prompt.messages, *((message,) for message in (prompt.later or others))][: self.turns]


def prompts_of(*texts: str) -> tuple[Prompt, ...]:
    """Prompts of one user message each."""
    return tuple(Prompt(({"role": "user", "content": text},)) for text in texts)


GENERAL = Workload(
    "general",
    prompts_of(
        "Write a Python function that returns the n-th Fibonacci number.",
        "List the planets of the solar system with one fact each.",
        "Explain in three sentences what a hash table is.",
        "Write a short story about a lighthouse keeper.",
        "Translate into French: The library opens at nine and closes at six.",
        "Give a shell command that finds the ten largest files below a folder, and explain it.",
        "What are the main causes of inflation?",
        "Summarize the rules of chess for a beginner.",
    ),
)
"""What an endpoint without a recipe is asked."""


class Connection(Protocol):
    """A way to send requests to one served model."""

    def stream(self, body: Mapping[str, Any]) -> AsyncIterator[list[Chunk]]:
        """The answer to a chat completion, a few chunks at a time, which may end anywhere.

        They may be handed over later than they arrived. Raises InvocationError.
        """

    async def invoke(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The whole JSON answer to a completion (`prompt`) or a chat (`messages`). Raises InvocationError."""

    async def acceptance(self) -> Acceptance | None:
        """The acceptance of all drafts since the engine's start, by its own counters; None if it does not tell."""


@dataclass(frozen=True)
class Expected:
    """What a recipe lets expect, by workload: its `expect`, and the acceptance lengths of its `evidence`."""

    expect: Mapping[str, Expect] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """One served model: the baseline, or one way to speculate.

    `options` are added to each request (`temperature`, `seed`, …). `price_per_hour` is in US dollars, None if unknown.
    `reports_drafts` is False for an engine that does not count its draft tokens, None if its counters cannot be read.
    `target` is the model as the server names it, empty if it does not; `max_model_len` is the most tokens of a request
    with its answer, None if unknown. With `synthetic_acceptance_length` the engine accepts drafts by chance, that many
    tokens a step: only its speed means anything, its text is garbage. `expected` is what its own recipe says. `scoring`
    asks its engine how probable tokens are, None where it does not tell. `cache_salt` is the field of a request that
    keeps it from what is cached of other requests' prompts, empty if there is none. `energy` reads the joules that its
    machine has used so far, None where nothing tells. `refused` are fields of requests that are not sent to it.
    """

    name: str
    connection: Connection = field(repr=False)
    speculative: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    price_per_hour: float | None = None
    reports_drafts: bool | None = True
    target: str = ""
    max_model_len: int | None = None
    synthetic_acceptance_length: float | None = None
    expected: Expected = field(repr=False, default=Expected())
    scoring: Scoring | None = field(repr=False, default=None)
    cache_salt: str = ""
    energy: Callable[[], float | None] | None = field(repr=False, default=None)
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Served:
    """An endpoint on a platform, or one inference component or production variant of it.

    `baseline` is the same endpoint without speculation, as a name or `name/component`, if it exists; `speculative` is
    False if the recipe has method `none`; `price_per_hour` is in US dollars, None if unknown; `reports_drafts` is False
    for an engine that does not count its draft tokens; `served_with` is what a report says of engine and hardware;
    `target` is the recipe's target model with its revision, empty if unknown; `max_model_len` the most tokens of a
    request and its answer together; `engine` the recipe's, empty if unknown. With `synthetic_acceptance_length` it
    accepts drafts at random: its answers are garbage, and only its speed is measured.
    """

    name: str
    platform: EndpointPlatform
    baseline: str | None = None
    speculative: bool = True
    workloads: tuple[Workload, ...] = (GENERAL,)
    expected: Expected = field(default=Expected())
    component: str | None = None
    price_per_hour: float | None = None
    reports_drafts: bool = True
    served_with: Mapping[str, str] = field(default_factory=dict)
    synthetic_acceptance_length: float | None = None
    target: str = ""
    engine: str = ""
    max_model_len: int | None = None
    variant: str | None = None

    @property
    def address(self) -> str:
        """The name to send requests to: the endpoint's, `name/component`, or `name@variant`."""
        if self.variant:
            return f"{self.name}{VARIANT_MARK}{self.variant}"
        return f"{self.name}/{self.component}" if self.component else self.name

    @property
    def twin(self) -> Self | None:
        """Its baseline, as an endpoint of its own."""
        if self.baseline is None:
            return None
        name, _, component = self.baseline.partition("/")
        twin = replace(self, name=name, component=component or None, baseline=None, speculative=False)
        return replace(twin, synthetic_acceptance_length=None)


@runtime_checkable
class Metered(Protocol):
    """A platform whose endpoints run on a machine with a meter."""

    def energy(self) -> Callable[[], float | None] | None:
        """What reads the joules used so far; None where nothing tells."""


async def count_energy(read: Callable[[], float | None], block: Awaitable[list[RequestResult]]) -> list[RequestResult]:
    """The results of a block of requests, each with a share of the joules used meanwhile, by its output tokens.

    What idle GPUs use, and what other processes do, counts too.
    """
    before = read()
    results = await block
    tokens, after = sum(result.output_tokens for result in results), read()
    if not tokens or before is None or after is None:
        return results
    return [replace(item, joules=(after - before) * item.output_tokens / tokens) for item in results]
