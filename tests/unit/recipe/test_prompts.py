"""Prompts in the shapes that public prompt sets have, and what is said of a file that has none."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from toolkit.errors import UsageError
from toolkit.recipe.prompts import parse_prompts, read_prompts

USER = {"role": "user", "content": "Hi"}
SHAREGPT = (("human", "gpt"), ("user", "chatgpt"), ("human", "bing"), ("human", "bard"))


def texts(content: str | bytes, name: str) -> list[str]:
    raw = content if isinstance(content, bytes) else content.encode()
    return [prompt.text for prompt in parse_prompts(raw, name)]


def parquet(**columns: list[Any]) -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), written)
    return written.getvalue()


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi", "category": "greeting"},
        {"prompt": ["Hi", "And you?"]},
        {"turns": ["Hi", "And you?"], "question_id": 81},
        {"question": "Hi", "answer": "42"},
        {"messages": [USER]},
        {"messages": [USER, {"role": "assistant", "content": "Hello."}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]},
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}]},
        {"conversation": [{**USER, "language": "English"}, {"role": "assistant", "content": "Hello."}], "turn": 1},
        {"custom_id": "1", "url": "/v1/chat/completions", "body": {"messages": [USER]}},
    ],
    ids=[
        "vLLM custom",
        "MT-Bench prompts",
        "SPEED-Bench",
        "GSM8K",
        "chat",
        "training",
        "parts",
        "ShareGPT",
        "WildChat",
        "batch",
    ],
)
def test_shapes_of_public_prompt_sets(row: dict[str, Any]) -> None:
    (prompt,) = parse_prompts(json.dumps(row).encode(), "a.jsonl")
    assert prompt.messages == (USER,)


def test_a_system_message_and_earlier_turns_are_kept() -> None:
    messages = [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "Hello."}, USER]
    (prompt,) = parse_prompts(json.dumps({"messages": messages}).encode(), "a.jsonl")
    assert list(prompt.messages) == messages


@pytest.mark.parametrize("column", ["system", "system_prompt"])
@pytest.mark.parametrize("prompt", [{"conversations": [{"from": "human", "value": "Hi"}]}, {"question": "Hi"}])
def test_a_system_prompt_in_a_column_of_its_own_is_asked_too(column: str, prompt: dict[str, Any]) -> None:
    """ShareGPT as LLaMA-Factory has it, and OpenOrca."""
    (found,) = parse_prompts(json.dumps({column: "Be brief.", **prompt}).encode(), "a.jsonl")
    assert found.messages == ({"role": "system", "content": "Be brief."}, USER)


def test_a_system_prompt_stands_before_the_first_of_several_turns_and_not_twice() -> None:
    row = {"system": "Be brief.", "turns": ["Hi", "And you?"]}
    (found,) = parse_prompts(json.dumps(row).encode(), "a.jsonl")
    assert found.messages == ({"role": "system", "content": "Be brief."}, USER)
    assert found.later == ({"role": "user", "content": "And you?"},)
    messages = [{"role": "system", "content": "Be kind."}, USER]
    (found,) = parse_prompts(json.dumps({"system": "Be brief.", "messages": messages}).encode(), "a.jsonl")
    assert list(found.messages) == messages


@pytest.mark.parametrize("text", ['[{"a": 1}] as CSV, please', '[{"a": 1}]', "[{'role' is a word"])
def test_a_question_may_begin_as_json_does(text: str) -> None:
    assert texts(json.dumps({"prompt": text}), "a.jsonl") == [text]


def test_json_with_a_row_on_each_line() -> None:
    """As many data sets of the hub have it."""
    assert texts('{"prompt": "one"}\r\n{"prompt": "two"}\r\n', "train.json") == ["one", "two"]


def test_a_compressed_file_is_called_so() -> None:
    with pytest.raises(UsageError, match=r"a\.jsonl\.zst: it is compressed: unpack it first"):
        texts(b"\x28\xb5\x2f\xfd", "a.jsonl.zst")


def test_prompts_are_read_in_order_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('\ufeff{"prompt": "one"}\n\n{"prompt": "two\u2028lines", "max_tokens": 30}\n', encoding="utf-8")
    one, two = read_prompts(path)
    assert (one.text, one.max_tokens) == ("one", None)
    assert (two.text, two.max_tokens) == ("two\u2028lines", 30)


def test_csv_with_a_prompt_of_several_lines() -> None:
    (prompt,) = parse_prompts(b'id,prompt,max_tokens\r\n7,"one\nline, ""two""",20\r\n', "a.csv")
    assert (prompt.text, prompt.max_tokens) == ('one\nline, "two"', 20)
    assert texts("prompt\tid\nHi\t1\n", "a.tsv") == ["Hi"]
    assert texts('messages\n"[{""role"": ""user"", ""content"": ""Hi""}]"\n', "a.csv") == ["Hi"]


def test_json_and_parquet() -> None:
    assert texts('[{"prompt": "one"}, {"prompt": "two"}]', "a.json") == ["one", "two"]
    assert texts(parquet(question=["one", "two"], answer=["1", "2"]), "a.parquet") == ["one", "two"]
    assert texts(parquet(turns=[["one", "more"], ["two"]]), "a.parquet") == ["one", "two"]


def test_messages_in_a_cell_may_begin_with_any_of_their_keys() -> None:
    cell = json.dumps([{"id": 1, **USER}])
    assert texts(json.dumps({"messages": cell}), "a.jsonl") == ["Hi"]
    assert texts(json.dumps({"prompt": cell}), "a.jsonl") == [cell]


def test_the_number_of_a_conversation_beside_a_prompt_is_no_prompt() -> None:
    for number in ("c-17", 17):
        assert texts(json.dumps({"prompt": "Hi", "conversation": number}), "a.jsonl") == ["Hi"]


def test_of_sharegpts_conversations_those_that_ask_nothing_are_left_out() -> None:
    def said(*turns: tuple[str, str]) -> dict[str, Any]:
        return {"id": "a", "conversations": [{"from": who, "value": text} for who, text in turns]}

    asked = [said((who, "Hi"), (other, "Yes?"), (who, "Why?"), (other, "So.")) for who, other in SHAREGPT]
    instructed = {**said(("gpt", "Hello.")), "system": "Be brief."}
    rows = [said(), said(("gpt", "Hello.")), instructed, *asked, said(("human", " "), ("gpt", "Hello."))]
    prompts = parse_prompts(json.dumps(rows).encode(), "ShareGPT_V3_unfiltered_cleaned_split.json")
    why = {"role": "user", "content": "Why?"}
    assert [list(prompt.messages) for prompt in prompts] == [[USER, {"role": "assistant", "content": "Yes?"}, why]] * 4


def test_an_empty_file_has_no_prompts() -> None:
    for name in ("a.jsonl", "a.csv"):
        assert texts("\n\n" if name == "a.jsonl" else "prompt\n", name) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"prompt": "a"}\nb\n', "a.jsonl:2: it is not JSON"),
        ("a.jsonl", '{"text": "a"}\n', "a.jsonl:1: no prompt: the row has the columns `text`"),
        ("a.jsonl", "{}\n", "a.jsonl:1: no prompt: the row has no columns"),
        ("a.jsonl", '{"prompt": 7}\n', "a.jsonl:1: `prompt`: should be text, turns or messages, not a number"),
        ("a.jsonl", '{"prompt": " "}\n', "a.jsonl:1: `prompt` is empty"),
        ("a.jsonl", '{"messages": [{"role": "pirate", "content": "a"}]}', "a.jsonl:1: `messages`: a message's role"),
        ("a.jsonl", '{"messages": [{"role": "assistant", "content": "a"}]}', "a.jsonl:1: `messages` is empty"),
        ("a.jsonl", '{"messages": []}', "a.jsonl:1: `messages` is empty"),
        ("a.jsonl", '{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "must be text; images"),
        ("a.jsonl", '{"prompt": "a", "max_tokens": 0}', "`max_tokens` must be a whole number of at least 1"),
        ("a.jsonl", '["prompt"]\n', "a.jsonl:1: a row must be an object, not a list"),
        ("a.jsonl", b'{"prompt": "a"}\n\xff\n', "a.jsonl:2: it is not UTF-8"),
        ("a.json", '{\n"prompt": "a"}', "a.json: should be a list of rows, not an object"),
        ("a.csv", 'prompt\na\n"b\n', "a.csv:3: it is not CSV"),
        ("a.csv", "prompt,id\na,1\n,2\n", "a.csv:3: `prompt` is empty"),
        ("a.parquet", "PAR1", "a.parquet: it is not Parquet, or damaged"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        texts(content, name)
    assert message in refusal.value.message
    assert "A row needs a `prompt`" in refusal.value.hint
