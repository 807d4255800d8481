"""What is asked: prompts, by workload."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.endpoint.generation import Message


@dataclass(frozen=True)
class Prompt:
    """The messages of one chat. `max_tokens` limits its answer; None: the measurement's limit."""

    messages: tuple[Message, ...]
    max_tokens: int | None = None


@dataclass(frozen=True)
class Workload:
    """Prompts of one kind. With `fixed_length` every answer has exactly its `max_tokens` (`ignore_eos`)."""

    name: str
    prompts: tuple[Prompt, ...]
    fixed_length: bool = False
