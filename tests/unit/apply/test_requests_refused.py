"""Why a request was refused: what a client was answered, and what a server logs of it."""

from __future__ import annotations

import json

import pytest

import toolkit
from toolkit.apply.diagnose import diagnose

BAD = "{'object': 'error', 'message': 'nobody ever said this', 'type': 'BadRequestError', 'param': None, 'code': 400}"
LOGGED = "(APIServer pid=1) ERROR 11-27 10:00:00 [serving.py:7] ValueError: nobody ever said this"
ACCESS = '(APIServer pid=1) INFO:     10.0.1.7:5000 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
SENTENCE = "ValueError: top_p must be in (0, 1], got 2.0."
START = "(APIServer pid=1) INFO 11-27 09:00:00 [utils.py:233] non-default args: {}"


def answer(message: str, kind: str = "BadRequestError", code: int = 400) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


@pytest.mark.parametrize(
    "line",
    [
        f"openai.BadRequestError: Error code: 400 - {BAD}",
        f"Error code: 400 - {BAD}",
        json.dumps({"object": "error", "message": "nobody ever said this", "type": "BadRequestError", "code": 400}),
        f"ModelError: Received client error (400) from primary with message {json.dumps(answer('nobody said this'))}",
    ],
)
def test_any_answer_that_refuses_a_request_is_told_as_one(line: str) -> None:
    found = toolkit.explain(line)
    assert found.cause == "request-refused"
    assert "correct that field" in found.hint


@pytest.mark.parametrize(
    ("message", "cause", "edit"),
    [
        ("The model `chat` does not exist.", "request-refused", "served-model-name"),
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "request-refused",
         "tool-call-parser"),
        ("Requested sample logprobs of 25, which is greater than max allowed: 20", "request-refused", "max-logprobs"),
        ("This model's maximum context length is 7 tokens. However, you requested 8", "request-too-large", "shorten"),
        ("The model does not support Embeddings API", "request-refused", "runner: pooling"),
        ("At most 2 image(s) may be provided in one prompt.", "request-refused", "limit-mm-per-prompt"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "chat-template", "chat-template"),
        ("The lora adapter 'sql' cannot be found.", "lora", "lora-modules"),
        ("Grammar error: nobody ever said this", "request-refused", "structured-outputs-config"),
    ],
)  # fmt: skip
def test_an_answer_has_the_edit_of_what_it_says(message: str, cause: str, edit: str) -> None:
    found = toolkit.explain(answer(message))
    assert found.cause == cause
    assert edit in found.hint


def test_what_a_server_logs_of_a_refused_request_is_told_of_that_part_alone() -> None:
    assert toolkit.explain([LOGGED, ACCESS]).cause == "request-refused"
    assert toolkit.explain(SENTENCE).cause == "request-refused"
    for log in ([LOGGED, ACCESS], [SENTENCE]):
        assert toolkit.explain([START, *log]).cause is None
        assert diagnose(log) is None
    assert toolkit.explain([LOGGED]).cause is None
    assert toolkit.explain([ACCESS]).cause is None


def test_an_answer_of_an_error_of_the_server_is_no_refusal() -> None:
    assert toolkit.explain(answer("", "InternalServerError", 500)).cause is None
    assert (
        toolkit.explain(f"openai.InternalServerError: Error code: 500 - {BAD.replace('BadRequest', 'Internal')}").cause
        is None
    )
    assert toolkit.explain("openai.RateLimitError: Error code: 429 - {'error': 'slow down'}").cause is None


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "gpu-memory"),
        ("RuntimeError: nobody ever said this", None),
    ],
)
def test_an_error_behind_an_answer_tells_more_than_it(line: str, cause: str | None) -> None:
    assert toolkit.explain([answer("nobody ever said this"), line]).cause == cause


def test_a_tool_parser_that_cannot_read_an_answer_is_told() -> None:
    line = "ERROR 11-27 10:00:00 [hermes_tool_parser.py:7] Error in extracting tool call from response."
    assert toolkit.explain(line).cause == "tool-parser"
    assert toolkit.explain([START, line]).cause is None
    assert diagnose([line]) is None
