"""What training asks of vLLM: heads in its format, answers of a target, the command that serves both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.catalog import methods
from toolkit.engines.vllm.budget import limits
from toolkit.engines.vllm.convert import convert
from toolkit.memory import free_bytes
from toolkit.training.engine import Conversion, TrainingEngine

if TYPE_CHECKING:
    from toolkit.training.chat import Chat
    from toolkit.training.job import Dtype, TrainingJob
    from toolkit.training.responses import Answer, Generator, Question

NAME = "vllm"


class VllmTraining(TrainingEngine):
    """vLLM, without what needs more than a training job's image has."""

    def convert(self, head: Path, out: Path, *, target: Path | None = None) -> Conversion:
        return convert(head, out, target=target)

    def answering(self, job: TrainingJob, chat: Chat) -> AbstractContextManager[Generator] | None:
        if find_spec(NAME) is None:
            return None
        return _answering_in_vllm(job, chat)

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
    import torch
    from vllm import LLM, SamplingParams, TokensPrompt

    from toolkit.training.chat import Turn
    from toolkit.training.responses import Answer

    # On a CPU, compiling takes longer than the answers of a small model, and it is a small model there.
    eager = not torch.cuda.is_available()
    gpu = None if eager else torch.cuda.mem_get_info()
    engine = LLM(
        job.target,
        dtype=_dtype(job.dtype, on_cpu=eager),
        max_model_len=job.max_length,
        seed=job.seed,
        enforce_eager=eager,
        disable_log_stats=True,
        **limits(job.engine_args, free_bytes(), gpu),
    )

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


def _dtype(said: Dtype, *, on_cpu: bool) -> Dtype:
    """As it serves: in float32 on a CPU without arithmetic for bfloat16, which would take many times as long."""
    import torch

    return "float32" if on_cpu and said == "auto" and not torch.ops.mkldnn._is_mkldnn_bf16_supported() else said


TRAINING = VllmTraining()
