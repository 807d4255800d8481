"""A chat request: its options, by OpenAI's names and those that engines add, and its body."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from toolkit.errors import UsageError

Message = Mapping[str, str]


class ChatOptions(TypedDict, total=False):
    """Sampling, length and format of an answer. `extra_body` holds any other field of the engine's own API."""

    chat_template_kwargs: Mapping[str, Any]
    extra_body: Mapping[str, Any]
    frequency_penalty: float
    ignore_eos: bool
    include_reasoning: bool
    logit_bias: Mapping[str, float]
    logprobs: bool
    max_completion_tokens: int
    max_tokens: int
    min_p: float
    min_tokens: int
    model: str
    parallel_tool_calls: bool
    presence_penalty: float
    reasoning_effort: str
    repetition_penalty: float
    response_format: Mapping[str, Any]
    seed: int
    skip_special_tokens: bool
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    structured_outputs: Mapping[str, Any]
    temperature: float
    tool_choice: str | Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]]
    top_k: int
    top_logprobs: int
    top_p: float
    user: str


def chat_body(prompt: str | Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
    """A streamed chat request with usage and token ids: greedy and at most 256 tokens, unless `options` differ.

    Raises UsageError for an option that chat requests do not have, and for more than one answer.
    """
    _require_known(options)
    options = {**options, **options.get("extra_body", {})}
    options.pop("extra_body", None)
    if options.get("n", 1) != 1:
        hint = "Send the request as often as you want answers, with a temperature above 0."
        raise UsageError(f"a request has one answer here, not n={options['n']}", hint=hint)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    defaults = {"max_tokens": 256, "temperature": 0}
    fixed = {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    return {"messages": messages, **defaults, **options, **fixed}


def _require_known(options: Iterable[str]) -> None:
    """Raise UsageError for an option that is not one of ChatOptions, with the nearest name."""
    known = ChatOptions.__optional_keys__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            meant = f"Did you mean `{near[0]}`? " if near else ""
            hint = f"{meant}For a field of the engine's own: extra_body={{{name!r}: …}}."
            raise UsageError(f"a chat request has no option `{name}`", hint=hint)
