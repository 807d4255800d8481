"""A target that answers in vLLM, inside a training job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from toolkit.training.chat import Chat, Turn
from toolkit.training.job import TrainingJob
from toolkit.training.responses import Answer, Generator, Question


@contextmanager
def in_vllm(job: TrainingJob, chat: Chat) -> Iterator[Generator]:
    """Answers from vLLM in processes of its own, which end with the context, and their memory is free."""
    from vllm import LLM, SamplingParams, TokensPrompt

    # On a CPU, compiling takes longer than the answers of a small model, and it is a small model there.
    eager = not torch.cuda.is_available()
    engine = LLM(
        job.target,
        dtype=job.dtype,
        max_model_len=job.max_length,
        seed=job.seed,
        enforce_eager=eager,
        disable_log_stats=True,
    )

    def generate(questions: Sequence[Question]) -> Sequence[Answer | None]:
        settings = [
            SamplingParams(temperature=job.temperature, seed=job.seed, max_tokens=one.max_tokens, detokenize=False)
            for one in questions
        ]
        prompts = [TokensPrompt(prompt_token_ids=question.prompt) for question in questions]
        found = [list(output.outputs[0].token_ids) for output in engine.generate(prompts, settings, use_tqdm=False)]
        return [
            Answer(Turn(question.prompt, tokens), chat.text(tokens))
            for question, tokens in zip(questions, found, strict=True)
        ]

    try:
        yield generate
    finally:
        engine.llm_engine.engine_core.shutdown()
