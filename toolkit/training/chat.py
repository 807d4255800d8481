"""Conversations as tokens, by the target's chat template: what the target is asked with, and what it generates.

Prompt and answer are tokenised apart from each other, as they are when the target serves. A template that shows the
target earlier answers in another form than it gave them, such as Qwen3's, which drops their reasoning, makes several
samples of one conversation: each is a sequence that the target really sees.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from toolkit.errors import UsageError
from toolkit.recipe.content import digest
from toolkit.recipe.prompts import Message
from toolkit.training.reading import reading
from toolkit.training.samples import Sample
from toolkit.training.template import Refused, Rendered, Renderer, Template, shared_renderer

_DEFAULT, _WITH_TOOLS = "default", "tool_use"
_GENERATION = re.compile(r"\{%-?\s*generation\b")
# What precedes the answer proper in the text of a model that reasons: Qwen3's and DeepSeek's mark, and gpt-oss'.
_REASONING_ENDS = ("</think>", "<|channel|>final<|message|>")


class Unmaskable(ValueError):
    """The template does not tell which tokens of this conversation are the target's own."""


Tool = Mapping[str, Any]
"""The schema of a function that the target may call, as OpenAI's chat completions have it."""

Token = Annotated[int, Field(ge=0, lt=2**31)]
"""A token's id, as samples hold it."""


@dataclass(frozen=True)
class Turn:
    """One answer of the target: the tokens of the whole prompt, and those that it generates."""

    prompt: list[Token]
    answer: list[Token]


@dataclass(frozen=True)
class Cut:
    """Samples of a conversation, how many of its answers were cut at the limit, and how many had no room at all."""

    samples: tuple[Sample, ...]
    cut: int = 0
    dropped: int = 0


class Chat:
    """A tokenizer with its chat template, which is in the file `source`.

    `end_tokens` are those with which the target ends its answer.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        end_tokens: Iterable[int],
        source: str = "tokenizer_config.json",
        renderer: Renderer | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self.end_tokens = frozenset(end_tokens)
        found = tokenizer.chat_template
        named = found if isinstance(found, dict) else {_DEFAULT: found}
        self._texts = {name: text for name, text in named.items() if text and isinstance(text, str)}
        if _DEFAULT not in self._texts:
            hint = f"Train for a chat model, or add the chat template to {source}."
            raise UsageError("the target's tokenizer has no chat template", hint=hint)
        variables, process = tokenizer.special_tokens_map, renderer or shared_renderer()
        self._templates = {name: Template(text, variables, source, process) for name, text in self._texts.items()}

    @property
    def digest(self) -> str:
        """Of tokens and their ids; the same as in a recipe's lock."""
        return digest(sorted(self._tokenizer.get_vocab().items()))

    @property
    def special_tokens(self) -> frozenset[int]:
        """Ids of special tokens, and those that end an answer."""
        return self.end_tokens | frozenset(self._tokenizer.all_special_ids)

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[int]:
        """The tokens that the target is asked with. Raises Unmaskable for what the template refuses."""
        return self.encode(self._render(messages, tools, ask=True).text)

    def text(self, answer: list[int]) -> str:
        """An answer as a client shows it to the target again: without reasoning and special tokens."""
        text = str(self._tokenizer.decode(answer, skip_special_tokens=False))
        for mark in _REASONING_ENDS:
            text = text.rpartition(mark)[2]
        return str(self._tokenizer.decode(self.encode(text), skip_special_tokens=True)).strip()

    def turns(self, messages: Sequence[Message], start: int = 0, tools: Sequence[Tool] = ()) -> Iterator[Turn]:
        """The answers that a conversation has from message `start` on. Raises Unmaskable."""
        for end, message in enumerate(messages):
            if message["role"] == "assistant" and end >= max(1, start):
                yield self.last_turn(messages[: end + 1], tools)

    def last_turn(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Turn:
        """The answer that the last message is. Raises Unmaskable."""
        marks_answers = _GENERATION.search(self._texts[self._name(tools)])
        turn = (self._marked if marks_answers else self._extended)(messages, tools)
        self._require_text(turn, messages[-1])
        return turn

    def _extended(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Turn:
        """The answer is what the template adds to the prompt of the same conversation, up to the end token."""
        prompt, whole = self._render(messages[:-1], tools, ask=True).text, self._render(messages, tools).text
        if not whole.startswith(prompt):
            raise Unmaskable("the chat template writes an answer differently from the prompt for it")
        answer = self.encode(whole[len(prompt) :])
        ends = [index for index, token in enumerate(answer) if token in self.end_tokens]
        return Turn(self.encode(prompt), answer[: ends[-1] + 1] if ends else answer)

    def _marked(self, messages: Sequence[Message], tools: Sequence[Tool]) -> Turn:
        """The answer is what the template marks with {% generation %}, and the end token after it."""
        rendered = self._render(messages, tools, marks=True)
        encoded = self._tokenizer(rendered.text, add_special_tokens=False)
        tokens = list(encoded["input_ids"])
        mask = [0] * len(tokens)
        for start, end in rendered.marks:
            if (first := encoded.char_to_token(start)) is not None and start < end:
                last = encoded.char_to_token(end - 1)
                after = len(tokens) if last is None else last + 1
                mask[first:after] = [1] * (after - first)
        if 1 not in mask:
            raise Unmaskable("the chat template marks no token of the answer")
        end = len(mask) - mask[::-1].index(1)
        start = end - (mask[:end][::-1].index(0) if 0 in mask[:end] else end)
        if end < len(tokens) and tokens[end] in self.end_tokens:
            end += 1
        return Turn(tokens[:start], tokens[start:end])

    def _require_text(self, turn: Turn, message: Message) -> None:
        """The masked tokens are the answer: its text is in what they decode to, and the names of what it calls."""
        content = message["content"]
        decoded = unicodedata.normalize("NFKC", str(self._tokenizer.decode(turn.answer)))
        for mark in _REASONING_ENDS:
            content = content.rpartition(mark)[2]
        if not turn.answer or unicodedata.normalize("NFKC", content.strip()) not in decoded:
            raise Unmaskable("the chat template changes the text of the answer")
        if any(call["function"]["name"] not in decoded for call in message.get("tool_calls", ())):
            raise Unmaskable("the chat template leaves out what the answer calls")

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Tool], *, ask: bool = False, marks: bool = False
    ) -> Rendered:
        try:
            return self._templates[self._name(tools)].render(messages, tools, ask=ask, marks=marks)
        except Refused as error:
            raise Unmaskable("the chat template refuses it") from error

    def _name(self, tools: Sequence[Tool]) -> str:
        """Which of several templates transformers and engines take."""
        return _WITH_TOOLS if tools and _WITH_TOOLS in self._texts else _DEFAULT

    def encode(self, text: str) -> list[int]:
        """The tokens of a text by itself."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))


def load_chat(target: str, revision: str = "main", renderer: Renderer | None = None) -> Chat:
    """The chat template of a folder or a hub id. Raises UsageError."""
    with reading(f"the tokenizer of {target}", _TOKENIZER_HINT, target):
        tokenizer = AutoTokenizer.from_pretrained(target, revision=revision)
        tokenizer.encode("")  # some settings come to an error only when it is used
    return Chat(tokenizer, _end_tokens(target, revision, tokenizer), _template_file(target), renderer)


_TOKENIZER_HINT = "Check that its tokenizer.json and tokenizer_config.json are those that the model's publisher made."


def _template_file(target: str) -> str:
    """Where the chat template is: in a file of its own, which has precedence, or in the tokenizer's."""
    own = Path(target) / "chat_template.jinja"
    return str(own if own.is_file() else own.with_name("tokenizer_config.json"))


def _end_tokens(target: str, revision: str, tokenizer: PreTrainedTokenizerBase) -> set[int]:
    found = None
    if not Path(target).is_dir() or (Path(target) / "generation_config.json").is_file():  # a model may have none
        with reading(f"generation_config.json of {target}", "Check that it is as its publisher made it.", target):
            found = GenerationConfig.from_pretrained(target, revision=revision).eos_token_id
    ends = found if isinstance(found, list) else [found]
    if not all(isinstance(token, int | None) for token in ends):
        hint = "Give the id of a token there, or several in a list."
        raise UsageError(f"generation_config.json of {target}: `eos_token_id` is no token", hint=hint)
    return {token for token in (*ends, tokenizer.eos_token_id) if token is not None}


def samples_of(turns: Iterable[Turn], max_length: int) -> Cut:
    """Samples of at most `max_length` tokens: one for as many turns as continue each other token by token."""
    rows: list[tuple[list[int], list[int]]] = []
    cut = dropped = 0
    for turn in turns:
        if len(turn.prompt) >= max_length or not turn.answer:
            dropped += 1
            continue
        answer = turn.answer[: max_length - len(turn.prompt)]
        cut += len(answer) < len(turn.answer)
        tokens, mask = rows[-1] if rows else ([], [])
        if not tokens or turn.prompt[: len(tokens)] != tokens:
            tokens, mask = [], []
            rows.append((tokens, mask))
        asked = turn.prompt[len(tokens) :]
        tokens += asked + answer
        mask += [0] * len(asked) + [1] * len(answer)
    samples = (
        Sample(torch.tensor(ids, dtype=torch.int32), torch.tensor(mask, dtype=torch.uint8)) for ids, mask in rows
    )
    return Cut(tuple(samples), cut, dropped)
