"""What training asks of vLLM: heads in its format, answers of a target, the command that serves both."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.catalog import methods
from toolkit.engines.vllm.convert import convert
from toolkit.training.engine import Conversion, TrainingEngine

if TYPE_CHECKING:
    from toolkit.training.chat import Chat
    from toolkit.training.job import TrainingJob
    from toolkit.training.responses import Generator

NAME = "vllm"


class VllmTraining(TrainingEngine):
    """vLLM, without what needs more than a training job's image has."""

    def convert(self, head: Path, out: Path, *, target: Path | None = None) -> Conversion:
        return convert(head, out, target=target)

    def answering(self, job: TrainingJob, chat: Chat) -> AbstractContextManager[Generator] | None:
        if find_spec(NAME) is None:
            return None
        from toolkit.engines.vllm.generate import in_vllm  # loads PyTorch

        return in_vllm(job, chat)

    def serve_command(self, method: str, num_speculative_tokens: int) -> str:
        drafting = methods.method(method).engines[NAME]
        config = {
            "method": drafting.method,
            "model": "<this folder>",
            "num_speculative_tokens": num_speculative_tokens,
            **drafting.fixed,
        }
        return f"vllm serve TARGET --speculative-config '{json.dumps(config)}'"


TRAINING = VllmTraining()
