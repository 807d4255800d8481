"""Why a request was refused: in the answer that a client got, and nowhere else."""

from __future__ import annotations

import json

import pytest

import toolkit
from toolkit.apply.diagnose import diagnose
from toolkit.apply.stages import CONFIGURING, stage_of

ACCESS = '(APIServer pid=1) INFO:     10.0.1.7:5000 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
UNKNOWN_MODEL = "The model `chat` does not exist."
SERVED = ["INFO 11-27 09:00:00 [utils.py:233] non-default args: {}", "INFO:     Application startup complete."]


def answer(message: str, kind: str = "BadRequestError", code: int = 400) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def quoted(message: str, kind: str = "BadRequestError", code: int = 400) -> str:
    return f"Error code: {code} - {{'error': {{'message': '{message}', 'type': '{kind}', 'code': {code}}}}}"


REFUSED = quoted(UNKNOWN_MODEL, "NotFoundError", 404)


@pytest.mark.parametrize(
    "line",
    [
        answer(UNKNOWN_MODEL, "NotFoundError", 404),
        json.dumps({"object": "error", "message": UNKNOWN_MODEL, "type": "NotFoundError", "param": None, "code": 404}),
        REFUSED,
        f"openai.NotFoundError: {REFUSED}",
        "An error occurred (ModelError) when calling the InvokeEndpoint operation: Received client error (404) from "
        f'primary with message "{answer(UNKNOWN_MODEL, "NotFoundError", 404)}". See the log in account 1.',
        f"ModelError: Received client error (404) from primary with message {json.dumps(answer(UNKNOWN_MODEL))}",
    ],
)
def test_an_answer_tells_why_in_each_form_that_a_client_gets(line: str) -> None:
    for found in (toolkit.explain(line), toolkit.explain([line, ACCESS]), toolkit.explain(reason=line)):
        assert found.cause == "request-refused"
        assert "served-model-name" in found.hint
    assert diagnose([line]) is None


@pytest.mark.parametrize(
    ("message", "cause", "edit"),
    [
        ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', "request-refused",
         "tool-call-parser"),
        ("Requested sample logprobs of 25, which is greater than max allowed: 20", "request-refused", "max-logprobs"),
        ("This model's maximum context length is 7 tokens. However, you requested 8", "request-too-large", "shorten"),
        ("The model does not support Embeddings API", "request-refused", "runner: pooling"),
        ("At most 2 image(s) may be provided in one prompt.", "request-refused", "limit-mm-per-prompt"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "chat-template", "chat-template"),
        ("The lora adapter 'sql' cannot be found.", "lora", "lora-modules"),
        ("Grammar error: nobody ever said this", "request-refused", "structured-outputs-config"),
        ("top_p must be in (0, 1], got 2.0.", "request-refused", "correct that field"),
    ],
)  # fmt: skip
def test_an_answer_has_the_edit_of_what_it_says(message: str, cause: str, edit: str) -> None:
    found = toolkit.explain(answer(message))
    assert found.cause == cause
    assert edit in found.hint


CORE = "EngineCore encountered an issue. See stack trace (above) for the root cause."
LOGPROBS = "ValueError: Requested sample logprobs of 25, which is greater than max allowed: 20"
TOP_P = "ValueError: top_p must be in (0, 1], got 2.0."


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ([f"data: {answer(CORE)}"], None),
        ([f"data: {answer('Background loop has errored already.')}"], None),
        ([f"ModelError: Received client error (400) from primary with message {json.dumps(answer(CORE))}"], None),
        ([quoted(f"{UNKNOWN_MODEL} See stack trace (above) for the root cause.")], None),
        (["EngineCore encountered a fatal error.", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2",
          answer(CORE)], "gpu-memory"),
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", REFUSED], "gpu-memory"),
        ([quoted("CUDA out of memory. Tried to allocate 2.00 GiB.")], "gpu-memory"),
        ([REFUSED, "      Reason:       OOMKilled"], "memory-limit"),
        ([REFUSED, "/bin/serve: line 1: 7 Killed vllm serve"], "killed"),
        ([REFUSED, "Segmentation fault (core dumped)"], "segfault"),
        ([REFUSED, "  Warning  FailedScheduling  2m  default-scheduler  0/3 nodes are available: 3 Insufficient "
          "nvidia.com/gpu."], "gpu-devices"),
        ([REFUSED, "Engine core proc EngineCore_0 died unexpectedly, shutting down client."], None),
        ([REFUSED, "pod ended with exit code 137"], None),
        ([answer("nobody ever said this")], None),
        ([REFUSED.replace("Error code", 'user: "why Error code')], None),
        (["    Args:", '      --limit-mm-per-prompt={"image":2}', "    State:          Running"], None),
        (['{"PrimaryContainer": {"Environment": {"SM_VLLM_CHAT_TEMPLATE": "/opt/ml/chat_template.jinja"}}}'], None),
        (["--chat-template=/opt/ml/model/chat_template.jinja"], None),
        (["Using supplied chat template: None"], None),
        (["  Warning  BackOff  2m  kubelet  Back-off restarting failed container", "chat template: /x.jinja"], None),
        (["helm: error calling include: chat template"], None),
        (['app - POST /ask question="what does maximum context length is 4096 tokens mean"',
          'INFO:     10.0.1.7:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK'], None),
        (["user says: it is not a multimodal model"], None),
        (["user: \"why do I get 'type': 'BadRequestError' from vllm?\"", "pod ended with exit code 137"], None),
        (["openai.NotFoundError: Error code: 404 - {'detail': 'Not Found'}"], None),
        (["openai.AuthenticationError: Error code: 401 - {'error': {'message': 'Incorrect API key provided', 'type': "
          "'invalid_request_error', 'code': 'invalid_api_key'}}"], None),
        (["Error code: 413 - <html><head><title>413 Request Entity Too Large</title></head></html>"], None),
        (['{"error":"Unauthorized"}'], None),
        (["curl -s https://huggingface.co/api/whoami-v2", '{"error":"Unauthorized"}'], None),
        (['HTTP response body: {"kind":"Status","status":"Failure","reason":"Unauthorized","code":401}'], None),
        ([LOGPROBS, TOP_P], None),
        ([TOP_P, LOGPROBS], None),
        ([TOP_P, ACCESS], None),
    ],
)  # fmt: skip
def test_what_is_no_answer_or_not_the_last_word_is_no_refusal(log: list[str], cause: str | None) -> None:
    assert toolkit.explain("\n".join(log)).cause == cause


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Loading lora /adapters/sql failed",
        "ValueError: Named tool choice for Kimi K3 requires strict tool calling (VLLM_ENFORCE_STRICT_TOOL_CALLING) so "
        "the XTML structural tag can force the call",
        "ValueError: Invalid 'image_url': A valid 'image_url' must start with either 'data:image' or 'http'.",
        "ValueError: You set image=1 (or defaulted to 1) in `--limit-mm-per-prompt`, but passed 2 image items in the "
        "same prompt.",
        "ValueError: Long LoRA scaling factor 2.0 has not been initialized.",
    ],
)
def test_what_a_server_says_of_a_request_never_ends_a_deploy(line: str) -> None:
    for log in ([*SERVED, line], [line]):
        cause = diagnose(log)
        assert cause is None or not cause.fatal


def test_a_start_of_the_v0_engine_is_one_in_its_stages_too() -> None:
    assert stage_of(["INFO 01-27 09:00:00 api_server.py:529] args: Namespace(model='m')"]) == CONFIGURING
