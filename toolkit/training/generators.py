"""The target that answers: behind an OpenAI-compatible server, or in transformers in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import httpx
import torch
from pydantic import BaseModel
from transformers import GenerationConfig, PreTrainedModel

from toolkit import documents
from toolkit.errors import PlatformError
from toolkit.training.chat import Chat, Token, Turn, Unmaskable
from toolkit.training.responses import Answer, Question

KEY_VARIABLE = "OPENAI_API_KEY"

_ANSWER_SECONDS = 600.0
_TRIES = 6
_REFUSALS = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)
_TRANSIENT = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_ROWS_AT_ONCE = 32


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    token_ids: list[Token] | None = None


class _Completion(BaseModel):
    choices: list[_Choice]
    prompt_token_ids: list[Token] | None = None


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


def server_client(address: str) -> httpx.Client:
    """A client of a server, with the user's key from OPENAI_API_KEY. No proxy reaches one on this machine."""
    key = os.environ.get(KEY_VARIABLE)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    trust_env = not documents.is_loopback(address)
    with documents.making_client():
        return httpx.Client(base_url=address, headers=headers, timeout=_ANSWER_SECONDS, trust_env=trust_env)


def served_model(client: httpx.Client) -> str:
    """The name of the first model that a server lists. Raises PlatformError."""
    try:
        answer = documents.request(client, "GET", "models")
        return documents.parse(_Models, answer.content).data[0].id
    except (httpx.HTTPError, documents.Unfit, IndexError) as error:
        hint = f"training.responses is the address of an OpenAI-compatible server, with /v1; ${KEY_VARIABLE} its key."
        raise PlatformError(f"{client.base_url} does not list its models: {error}", hint=hint) from error


class FromServer:
    """Answers from a server's chat completions, `concurrency` at once.

    `client` has the server's address (with `/v1`) and its credentials. A server that returns no token ids, which is
    vLLM's `return_token_ids`, gives texts, and the chat template makes tokens of them.
    """

    def __init__(
        self,
        client: httpx.Client,
        model: str,
        chat: Chat,
        temperature: float = 0.0,
        seed: int = 0,
        concurrency: int = 64,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._chat, self._concurrency, self._sleep = client, chat, concurrency, sleep
        self._settings = {"model": model, "temperature": temperature, "seed": seed, "return_token_ids": True}

    def __call__(self, questions: Sequence[Question]) -> Sequence[Answer | None]:
        """The answer to each question; None for one that the server refuses. Raises PlatformError."""
        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(self._ask, questions))

    def _ask(self, question: Question) -> Answer | None:
        body = {**self._settings, "messages": question.messages, "max_tokens": question.max_tokens}
        if question.tools:  # vLLM shows them with `none` too, and then leaves calls in the text
            body |= {"tools": question.tools, "tool_choice": "none"}
        problem = ""
        for trial in range(_TRIES):
            if trial:
                self._sleep(2.0**trial)
            try:
                answer = documents.request(self._client, "POST", "chat/completions", json=body)
            except (httpx.HTTPError, documents.Unfit) as error:
                problem = f"did not answer: {type(error).__name__}"
                continue
            if answer.status_code == HTTPStatus.OK:
                return self._answer(question, answer.content)
            if answer.status_code in _REFUSALS:
                return None
            problem = f"answered {answer.status_code}"
            if answer.status_code not in _TRANSIENT and answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
                break
        hint = "Check that it serves the target under that name. Answers so far are kept: start again to go on."
        raise PlatformError(f"{self._client.base_url} {problem}", hint=hint)

    def _answer(self, question: Question, content: bytes) -> Answer | None:
        try:
            completion = documents.parse_quickly(_Completion, content)
            choice = completion.choices[0]
        except (documents.Unfit, IndexError) as error:
            hint = "Give the address of an OpenAI-compatible server, with /v1."
            raise PlatformError(f"{self._client.base_url} does not answer with chat completions", hint=hint) from error
        text = choice.message.content or ""
        if choice.token_ids:
            return Answer(Turn(completion.prompt_token_ids or question.prompt, choice.token_ids), text)
        return self._from_text(question, choice.message, ended=choice.finish_reason == "stop")

    def _from_text(self, question: Question, message: _Message, *, ended: bool) -> Answer | None:
        text = message.content or ""
        told = {"role": "assistant", "content": text}
        if message.reasoning_content:
            told["reasoning_content"] = message.reasoning_content
        try:
            turn = self._chat.last_turn((*question.messages, told), question.tools)
        except Unmaskable:
            return None
        if not ended and turn.answer[-1] in self._chat.end_tokens:
            turn = Turn(turn.prompt, turn.answer[:-1])
        return Answer(turn, text)


class InTransformers:
    """Answers from a model of transformers in this process: slower than an engine, and needs nothing else.

    Of the model's generation_config.json only the end tokens count, as in an engine that is asked for tokens: penalties
    and the like would have it say what a head is not trained towards.
    """

    def __init__(self, model: PreTrainedModel, chat: Chat, temperature: float = 0.0, seed: int = 0) -> None:
        self._model: Any = model
        self._chat = chat
        sampled = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        settings = sampled if temperature else {"do_sample": False}
        model.generation_config = GenerationConfig(**settings, eos_token_id=sorted(chat.end_tokens), pad_token_id=0)
        torch.manual_seed(seed)

    def __call__(self, questions: Sequence[Question]) -> Sequence[Answer | None]:
        """The answer to each question."""
        by_length = sorted(range(len(questions)), key=lambda index: len(questions[index].prompt))
        answers: list[Answer | None] = [None] * len(questions)
        for start in range(0, len(questions), _ROWS_AT_ONCE):
            chosen = by_length[start : start + _ROWS_AT_ONCE]
            for index, tokens in zip(chosen, self._generate([questions[index] for index in chosen]), strict=True):
                answers[index] = Answer(Turn(questions[index].prompt, tokens), self._chat.text(tokens))
        return answers

    @torch.inference_mode()
    def _generate(self, questions: Sequence[Question]) -> list[list[int]]:
        """The answers of a batch, whose prompts are padded at their beginnings."""
        longest = max(len(question.prompt) for question in questions)
        tokens = torch.tensor([[0] * (longest - len(one.prompt)) + one.prompt for one in questions])
        mask = torch.tensor([[0] * (longest - len(one.prompt)) + [1] * len(one.prompt) for one in questions])
        found = self._model.generate(
            tokens.to(self._model.device),
            attention_mask=mask.to(self._model.device),
            max_new_tokens=max(question.max_tokens for question in questions),
        )
        return [
            self._until_end(row[longest : longest + question.max_tokens].tolist())
            for row, question in zip(found, questions, strict=True)
        ]

    def _until_end(self, tokens: list[int]) -> list[int]:
        end = next((index for index, token in enumerate(tokens) if token in self._chat.end_tokens), len(tokens) - 1)
        return tokens[: end + 1]
