"""The eight classes of prompts of AWS's study on speculative decoding with Trainium: 64 tokens in, up to 600 out.

https://github.com/aws-neuron/aws-neuron-eks-samples, speculative_decoding_trn2_vllm: llmperf asks there to repeat lines
of a text, which is one line again and again in seven classes, and Shakespeare's sonnets in one. The wording is ours.
"""

from __future__ import annotations

import random
import re

from toolkit.measure.workload import Prompt, Workload

_LINES = {
    "counting": "counting numbers from 1",
    "a": "a",
    "hello-world": "hello world",
    "cat": "the cat sat on the mat.",
    "json": "Output valid JSON with fixed keys",
    "python": "Write a simple Python function skeleton",
    "list-numbers": "List numbers from one to twenty",
}
_ASK = "Repeat lines of the following text, in any order, until you have written 600 tokens. Do not stop before:\n\n"
_INPUT_TOKENS, _OUTPUT_TOKENS = 64, 600
_SHAKESPEARE_PROMPTS = 8
_SONNETS = """\
Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimmed,
And every fair from fair sometime declines,
By chance, or nature's changing course untrimmed:
But thy eternal summer shall not fade,
Nor lose possession of that fair thou ow'st,
Nor shall death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st,
So long as men can breathe, or eyes can see,
So long lives this, and this gives life to thee."""


def study_workloads() -> tuple[Workload, ...]:
    """A workload for each class, named `study/json` and so on. The same prompts on every call."""
    shuffle = random.Random(0)  # noqa: S311 - an order, no secret
    lines = _SONNETS.splitlines()
    sonnets = [shuffle.sample(lines, len(lines)) for _ in range(_SHAKESPEARE_PROMPTS)]
    repeated = {name: [[line] * _INPUT_TOKENS] for name, line in _LINES.items()}
    texts = {**repeated, "shakespeare": sonnets}
    return tuple(Workload(f"study/{name}", tuple(map(_prompt, prompts))) for name, prompts in texts.items())


def _prompt(lines: list[str]) -> Prompt:
    """The request with as many lines as make about 64 tokens, which words and marks stand for here."""
    text = _ASK
    for line in lines:
        if _tokens(text + line) > _INPUT_TOKENS:
            break
        text += f"{line}\n"
    return Prompt(({"role": "user", "content": text},), _OUTPUT_TOKENS)


def _tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))
