"""What training asks of the engine that will serve its heads. `engine_registry.training_engine` finds it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from toolkit.training.chat import Chat
    from toolkit.training.job import TrainingJob
    from toolkit.training.responses import Generator
    from toolkit.training.states import StateSource


@dataclass(frozen=True)
class Conversion:
    """A head in the engine's format.

    `format` is the exporter (`speculators`, `nemo-automodel`, `specforge`) or the engine, whose format it had already.
    `method` is the method to write in a recipe (one of `TRAINED_METHODS`), `changes` a sentence for each change,
    `out` the new folder.
    """

    format: str
    method: str
    changes: tuple[str, ...]
    out: Path


class TrainingEngine(Protocol):
    """An engine as training sees it. It loads nothing that a training job's image lacks, such as its EngineRules."""

    def convert(self, head: Path, out: Path, *, target: Path | None = None) -> Conversion:
        """Write the head in folder `head` to `out` in the engine's format. `head` itself is not changed.

        `target` is the target's folder, needed for the layers of hidden states if the export does not name them. Raises
        UnreadableModel for a head that is broken or cannot be converted, UsageError if `out` is not empty.
        """

    def answering(self, job: TrainingJob, chat: Chat) -> AbstractContextManager[Generator] | None:
        """The job's target, which answers as long as the context is open; None where the engine is not installed."""

    def version(self) -> str:
        """Name and version of the engine that is installed; empty without one."""

    def no_states(self, job: TrainingJob) -> str:
        """Why the engine that is installed does not give the hidden states of the job's target; empty if it does."""

    def states(self, job: TrainingJob, layers: tuple[int, ...]) -> AbstractContextManager[StateSource]:
        """The job's target as the engine serves it, whose hidden states are read as long as the context is open."""

    def serve_command(self, method: str, num_speculative_tokens: int) -> str:
        """The command that serves TARGET with a head in `<this folder>`, for those who do not use the toolkit."""
