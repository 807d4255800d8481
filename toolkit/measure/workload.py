"""What is asked: prompts, by workload."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.recipe.prompts import Prompt as Prompt


@dataclass(frozen=True)
class Workload:
    """Prompts of one kind. With `fixed_length` every answer has exactly its `max_tokens` (`ignore_eos`).

    `note` is what a reader of the report has to know, such as what part of a data set this is.
    """

    name: str
    prompts: tuple[Prompt, ...]
    fixed_length: bool = False
    note: str = ""


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
