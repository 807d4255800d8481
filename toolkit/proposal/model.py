"""What a user wishes, and what is proposed, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from toolkit.catalog.methods import Method
from toolkit.recipe.facts import Lock, ModelFacts

Goal = Literal["latency", "throughput"]
"""What matters more: a fast answer to few, or many answers for the money."""


@dataclass(frozen=True)
class Wishes:
    """What the endpoint should be like. None leaves a choice to the toolkit.

    `max_price` is in US dollars per hour, `context` the longest prompt and answer together, in tokens, `hardware` a
    part of the names of instance types or accelerators.
    """

    model: str
    platform: str = "sagemaker"
    method: str | None = None
    goal: Goal = "latency"
    max_price: float | None = None
    context: int | None = None
    region: str | None = None
    hardware: str | None = None


@dataclass(frozen=True)
class Drafter:
    """A way to draft for a target. `model` and `facts` are None where it drafts without a model of its own.

    `recipe` is the recipe of the toolkit with this pair, whose engine `version` is known to work; empty if there is
    none. `settings` are keys of its engine to take over, where they are compiled in. `exact` is False if it was trained
    for a relative of the target, `served` if nobody has
    published what it was served with.
    """

    method: str
    tokens: int
    why: str
    tokens_why: str
    model: str | None = None
    facts: ModelFacts | None = None
    exact: bool = True
    served: bool = True
    recipe: str = ""
    version: str = ""
    longest_context: int | None = None
    shortest_context: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The method, with the drafter if there is one."""
        return f"{self.method} ({self.model})" if self.model else self.method


def with_default_k(method: Method, why: str, facts: ModelFacts | None = None) -> Drafter:
    """A drafter that drafts as many tokens as its method does by default; `facts` are those of its model."""
    tokens_why, model = f"the default of {method.name}", facts.model if facts else None
    return Drafter(method.name, method.default_num_speculative_tokens, why, tokens_why, model, facts)


@dataclass(frozen=True)
class Choice:
    """One choice: the recipe's key, its value, the reason, and what else was possible."""

    key: str
    value: Any
    why: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """A recipe as data, the reason of each choice, the facts for its lock, and what a reader should know besides."""

    recipe: Mapping[str, Any]
    choices: Sequence[Choice]
    lock: Lock
    notes: Sequence[str] = field(default=())
