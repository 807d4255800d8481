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
