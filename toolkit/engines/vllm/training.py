"""What training asks of vLLM: heads in its format, answers of a target, the command that serves both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.catalog import methods
from toolkit.engines.vllm.convert import convert
from toolkit.engines.vllm.hidden_states import no_states, states_in_vllm, version
from toolkit.engines.vllm.job_arguments import job_arguments
from toolkit.training.engine import Conversion, TrainingEngine

if TYPE_CHECKING:
    from toolkit.training.chat import Chat
    from toolkit.training.job import TrainingJob
    from toolkit.training.responses import Answer, Generator, Question
    from toolkit.training.states import StateSource

NAME = "vllm"


class VllmTraining(TrainingEngine):
    """vLLM, without what needs more than a training job's image has."""

    def convert(self, head: Path, out: Path, *, target: Path | None = None) -> Conversion:
        return convert(head, out, target=target)

    def answering(self, job: TrainingJob, chat: Chat) -> AbstractContextManager[Generator] | None:
        if find_spec(NAME) is None:
            return None
        return _answering_in_vllm(job, chat)

    def version(self) -> str:
        return version()

    def no_states(self, job: TrainingJob) -> str:
        return no_states(job)

    def states(self, job: TrainingJob, layers: tuple[int, ...]) -> AbstractContextManager[StateSource]:
        return states_in_vllm(job, layers)

    def serve_command(self, method: str, num_speculative_tokens: int) -> str:
        drafting = methods.method(method).engines[NAME]
        config = {
            "method": drafting.method,
            "model": "<this folder>",
            "num_speculative_tokens": num_speculative_tokens,
            **drafting.fixed,
        }
        return f"vllm serve TARGET --speculative-config '{json.dumps(config)}'"


@contextmanager
def _answering_in_vllm(job: TrainingJob, chat: Chat) -> Iterator[Generator]:
    """Answers from vLLM in processes of its own, which end with the context, and their memory is free."""
    from vllm import LLM, SamplingParams, TokensPrompt

    from toolkit.training.chat import Turn
    from toolkit.training.responses import Answer

    engine = LLM(**job_arguments(job), max_model_len=job.max_length)

    def generate(questions: Sequence[Question]) -> Sequence[Answer | None]:
        settings = [
            SamplingParams(temperature=job.temperature, seed=job.seed, max_tokens=one.max_tokens, detokenize=False)
            for one in questions
        ]
        prompts = [TokensPrompt(prompt_token_ids=question.prompt) for question in questions]
        answered = [list(output.outputs[0].token_ids) for output in engine.generate(prompts, settings, use_tqdm=False)]
        return [
            Answer(Turn(question.prompt, tokens), chat.text(tokens))
            for question, tokens in zip(questions, answered, strict=True)
        ]

    try:
        yield generate
    finally:
        engine.llm_engine.engine_core.shutdown()


TRAINING = VllmTraining()
