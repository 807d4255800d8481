"""Traffic of agents: tools are shown to the target, and what it calls is what the head learns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from scripted_http import Reply, scripted

from tests.unit.training.test_chat import chat, texts
from toolkit.errors import UsageError
from toolkit.recipe.prompts import prompt_of
from toolkit.training.chat import Chat, Turn, Unmaskable
from toolkit.training.conversations import Conversation, Skipped, conversation_of, distinct
from toolkit.training.generators import FromServer
from toolkit.training.responses import Answer, Lengths, Question, Responses, respond

# As Qwen3's: the schemas stand in the first message, calls in an element of their own.
TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\n' }}{% for tool in tools %}{{- tool | tojson + '\n' }}{% endfor %}"
    "{{- '<|im_end|>\n' }}{% endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content }}"
    "{%- for call in m.tool_calls or [] %}{{- '<tool_call>\n' + "
    "({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '\n</tool_call>' }}{% endfor %}"
    "{{- '<|im_end|>\n' }}{% endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}"
)
DEAF = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
ROW: dict[str, Any] = {
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "wind"},
        {"role": "assistant", "content": "It will."},
    ],
}


@pytest.fixture(scope="module")
def qwen() -> Chat:
    return chat(TEMPLATE, "<|im_end|>")


def conversation(row: dict[str, Any]) -> Conversation:
    found = conversation_of(row, "a.jsonl:1")
    assert found
    return found


def test_a_call_is_an_answer_after_a_prompt_with_the_tools(qwen: Chat) -> None:
    one = conversation(ROW)
    first, second = (texts(qwen, turn) for turn in qwen.turns(one.messages, 0, one.tools))
    assert first[0].startswith('<|im_start|>system\n{"type": "function", "function": {"name": "weather"')
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn"}}\n</tool_call>' in first[1]
    assert "rain" in second[0]
    assert second[1] == "It will.<|im_end|>"


def test_a_template_that_leaves_calls_out_is_not_learned_from() -> None:
    one = conversation(ROW)
    with pytest.raises(Unmaskable, match="leaves out what the answer calls"):
        list(chat(DEAF, "<|im_end|>").turns(one.messages, 0, one.tools))


class Asked:
    """A target that answers `Yes.`; `texts` are the prompts."""

    def __init__(self, of: Chat) -> None:
        self.chat, self.texts = of, list[str]()

    def __call__(self, questions: Sequence[Question]) -> Sequence[Answer | None]:
        self.texts += [texts(self.chat, Turn(question.prompt, []))[0] for question in questions]
        return [Answer(Turn(question.prompt, self.chat.encode("Yes.")), "Yes.") for question in questions]


def test_the_target_is_asked_where_it_answered_and_tools_answer_to_what_the_data_called(
    qwen: Chat, tmp_path: Path
) -> None:
    (one,) = distinct([("a.jsonl:1", ROW)], keep=False, skipped=Skipped())
    target, responses = Asked(qwen), Responses(tmp_path / "r.jsonl", "s")
    respond([one], responses, target, qwen, Lengths(2000, 100), lambda _: None)
    assert len(target.texts) == 2, "at the question, and once after both tools"
    assert target.texts[0].endswith("Will it rain?<|im_end|>\n<|im_start|>assistant\n")
    assert '"city": "Bonn"' in target.texts[1]
    assert "Yes." not in target.texts[1]
    (answered,) = responses
    assert [qwen.text(turn.answer) for turn in answered.turns] == ["Yes.", "Yes."]


def test_a_server_gets_the_tools_and_leaves_calls_in_the_text(qwen: Chat) -> None:
    one = conversation(ROW)
    answer = {"choices": [{"message": {"content": ""}, "token_ids": [1, 2]}], "prompt_token_ids": [5]}
    with (
        scripted(Reply(parts=[json.dumps(answer).encode()])) as server,
        httpx.Client(base_url=f"{server.url}/v1") as client,
    ):
        (found,) = FromServer(client, "m", qwen)([Question(one.messages[:1], [5], 9, one.tools)])
        (asked,) = server.requests
    assert found
    assert found.turn == Turn([5], [1, 2])
    body = json.loads(asked.body)
    assert (body["tools"], body["tool_choice"]) == (ROW["tools"], "none")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tools": "weather"}, "not JSON"),
        ({"tools": ["weather"]}, "`tools` must be a list of objects"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{}]}]},
            "a tool call must",
        ),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}]}, "must be text"),
    ],
)
def test_what_is_no_tool_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=r"a\.jsonl:1") as error:
        conversation({**ROW, **change})
    assert said in str(error.value)


def test_a_workload_keeps_calls_as_a_request_has_them() -> None:
    question, call, *results = ROW["messages"]
    as_object = {**CALL, "function": {"name": "weather", "arguments": {"city": "Bonn"}}}
    prompt = prompt_of({"messages": [question, {**call, "tool_calls": [as_object]}, results[0]]}, "a.jsonl:1")
    assert prompt.messages[1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert prompt.messages[2]["tool_call_id"] == "c1"
