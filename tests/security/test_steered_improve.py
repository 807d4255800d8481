"""Callers of an endpoint who want to choose what its next head learns, or which head is promoted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from toolkit.api.traffic import Traffic, read_traffic
from toolkit.measure.arm import GENERAL, Arm
from toolkit.measure.load import Ask, Timing, body
from toolkit.recipe.prompts import Message
from toolkit.recipe.training_schema import TrainingSection
from toolkit.training.chat import load_chat
from toolkit.training.conversations import Conversation, Skipped, conversation_of, distinct
from toolkit.training.data import prepare_data
from toolkit.training.job import TrainingJob
from toolkit.training.samples import Samples
from toolkit.training.shares import HOUR, KIND, Mark, mark_of, split, within_shares

TARGET = str(Path(__file__).parents[2] / "recipes" / "tiny" / "models" / "target")
INVENTED, ANSWERED = "Invented words", "Answered words"
ASKED: Message = {"role": "user", "content": "Go on."}
SAID: Message = {"role": "assistant", "content": INVENTED}


def record(request: Any, answer: str | None = ANSWERED, hour: str = "", finish: str = "stop") -> dict[str, Any]:
    """What SageMaker captures of a request and its answer."""
    output = {"choices": [{"message": {"role": "assistant", "content": answer}, "finish_reason": finish}]}
    data = {"endpointInput": {"data": json.dumps(request), "encoding": "JSON"}}
    if answer is not None:
        data["endpointOutput"] = {"data": json.dumps(output), "encoding": "JSON"}
    event = {"eventId": "1", "inferenceTime": f"{hour}:00:00Z"} if hour else {"eventId": "1"}
    return {"captureData": data, "eventMetadata": event, "eventVersion": "0"}


def messages(*more: Message) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Hello"}, *more]}


def write(path: Path, rows: Sequence[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def learned(tmp_path: Path, rows: Sequence[Any]) -> str:
    """All tokens with mask 1 of a job with `responses: keep`, as text."""
    numbered = [
        json.loads(json.dumps(row).replace("Hello", f"Hello {word}")) for row in rows for word in ("you", "there all")
    ]
    job = TrainingJob(
        name="tiny", method="p-eagle", target=TARGET, target_name="tiny", responses="keep", max_length=200,
        data=(write(tmp_path / "a.jsonl", numbered),), held_out=0.5, work=str(tmp_path / "work"),
        checkpoints=str(tmp_path / "checkpoints"),
    )  # fmt: skip
    prepare_data(job, (2, 3, 5), lambda _: None, lambda _: None)
    chat = load_chat(TARGET)
    samples = [sample for side in ("train", "held-out") for sample in Samples(tmp_path / "work" / side)]
    return " ".join(chat.text(sample.input_ids[sample.loss_mask.bool()].tolist()) for sample in samples)


CLAIMS = (
    messages(SAID, ASKED),
    messages(SAID, ASKED, SAID),
    {**messages(), "response": INVENTED, "answer": INVENTED, "completion": INVENTED, "output": INVENTED},
    {"prompt": "Hello", "response": INVENTED},
    {"question": "Hello", "answer": INVENTED},
    {"body": messages(SAID, ASKED)},
    {**messages(), "conversations": [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": INVENTED}]},
)


@pytest.mark.parametrize("answer", [ANSWERED, None])
def test_what_a_caller_says_was_answered_is_never_learned(tmp_path: Path, answer: str | None) -> None:
    found = learned(tmp_path, [record(messages(ASKED)), *(record(one, answer) for one in CLAIMS)])
    assert ANSWERED in found
    assert INVENTED not in found


def test_an_answer_into_which_the_caller_put_words_is_not_learned(tmp_path: Path) -> None:
    how: list[dict[str, Any]] = [
        {"echo": True},
        {"continue_final_message": True, "add_generation_prompt": False},
        {"structured_outputs": {"choice": [INVENTED]}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": INVENTED}}}},
        {"logit_bias": {"7": 100}},
        {"chat_template": "{{ messages }}"},
    ]
    put = [record({**messages({"role": "user", "content": str(key)}), **key}, INVENTED) for key in how]
    found = learned(tmp_path, [record(messages(ASKED)), *put])
    assert ANSWERED in found
    assert INVENTED not in found


def test_an_answer_that_was_cut_is_not_learned_as_if_it_ended_there(tmp_path: Path) -> None:
    rows = [record(messages(ASKED)), record({**messages(), "max_tokens": 2}, INVENTED, finish="length")]
    assert INVENTED not in learned(tmp_path, rows)


def test_a_request_that_somebody_sent_vouches_for_no_answer_in_other_files_either() -> None:
    sent = {"custom_id": "1", "body": messages(SAID, ASKED), "response": INVENTED}
    found = conversation_of(sent, "batch.jsonl:1")
    assert found
    assert not found.answered


def test_for_a_file_of_conversations_its_owner_vouches(tmp_path: Path) -> None:
    assert INVENTED in learned(tmp_path, [messages(SAID, ASKED, SAID)])


def test_what_a_measurement_asks_is_nobodys_traffic() -> None:
    skipped = Skipped()
    nowhere: Any = None
    measured = body(Arm("speculative", nowhere), Ask(GENERAL, 0), Timing(0.0))
    rows = [("a:1", record(measured)), ("a:2", record({**messages(), "user": "somebody"}))]
    assert [one.location for one in distinct(rows, True, skipped)] == ["a:2"]
    assert skipped.counts == {"captured requests that are not chats of a caller": 1}


# ---- floods ----

_CHANCE = random.Random(0)
_VOCABULARY = ["".join(_CHANCE.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(3000)]


def texts(count: int) -> list[str]:
    """Different texts of words of which some are frequent, as people's are."""
    weights = [1 / (rank + 1) for rank in range(len(_VOCABULARY))]
    return [f"{' '.join(_CHANCE.choices(_VOCABULARY, weights, k=12))} {number}" for number in range(count)]


def hours(count: int) -> Iterator[str]:
    """One after the other, of fifty hours."""
    return (f"2026-11-{1 + number % 50 // 24:02}T{number % 50 % 24:02}" for number in range(count))


def asks(questions: Sequence[str], when: Iterator[str], **more: Any) -> list[dict[str, Any]]:
    return [
        record({"messages": [{"role": "user", "content": question}], **more}, hour=hour)
        for question, hour in zip(questions, when, strict=False)
    ]


REAL = texts(1000)
FLOODS = {
    "numbered": [f"Flood number {number} about a lighthouse" for number in range(3000)],
    "a word of each its own": [f"Say in a few words what {word} may mean to you" for word in _VOCABULARY],
    "wrapped": [f"{'!' * (number // 55)}Tell ME: a lighthouse {'1' * (number % 55)}" for number in range(3000)],
    "in Chinese": [f"请告诉我关于灯塔管理员{chr(0x4E00 + number)}的一个故事" for number in range(3000)],
}


def traffic(tmp_path: Path, rows: Sequence[Any]) -> Traffic:
    settings = TrainingSection(data=[write(tmp_path / "a.jsonl", rows)], held_out=0.3)
    return read_traffic(settings, lambda prefix: pytest.fail(prefix))


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_nearly_one_text_is_a_tenth_of_what_decides(tmp_path: Path, name: str) -> None:
    flood = FLOODS[name]
    found = traffic(tmp_path, [*asks(flood, hours(3000)), *asks(REAL, hours(1000))])
    deciding = [prompt.text for prompt in found.held_out.prompts]
    assert len(deciding) == 200
    assert len([text for text in deciding if text in flood]) <= KIND * 200
    assert found.left_out["captured requests of nearly one text, beyond their share"] > 2000


def test_a_flood_of_one_hour_is_a_quarter_of_what_decides(tmp_path: Path) -> None:
    flood = texts(3000)
    when = iter(["2026-11-09T10"] * 3000)
    found = traffic(tmp_path, [*asks(flood, when), *asks(REAL, hours(1000))])
    deciding = [prompt.text for prompt in found.held_out.prompts]
    assert len(deciding) == 200
    assert 0 < len(set(deciding) & set(flood)) <= HOUR * 200
    assert found.left_out["captured requests of one hour, beyond its share"] > 2000


def marks_of(texts: Sequence[str], given: int = 1) -> list[Mark]:
    asked = [Conversation(({"role": "user", "content": text},), "a:1", given) for text in texts]
    sides = split(asked, 0.3, 0)
    return [mark_of(one, sides) for one in asked]


@pytest.mark.parametrize("aside", [True, False])
def test_neither_side_of_the_split_can_be_chosen_by_a_flood(aside: bool) -> None:
    """The side follows from the question and a seed that may be known: all of a flood can stand on one."""
    marks = marks_of([*FLOODS["numbered"], *REAL])
    chosen = [mark for number, mark in enumerate(marks) if number >= 3000 or mark.aside == aside]
    first = len(chosen) - len(REAL)
    numbers = [number for number in within_shares(chosen).numbers if chosen[number].aside == aside]
    assert 0 < len([number for number in numbers if number < first]) <= KIND * len(numbers)


def test_a_job_learns_no_more_of_a_flood_than_is_measured(tmp_path: Path) -> None:
    flood = FLOODS["numbered"][:150]
    said: list[str] = []
    job = TrainingJob(
        name="tiny", method="p-eagle", target=TARGET, target_name="tiny", responses="keep", max_length=200,
        data=(write(tmp_path / "a.jsonl", [*asks(flood, hours(150)), *asks(REAL[:50], hours(50))]),),
        held_out=0.3, work=str(tmp_path / "work"), checkpoints=str(tmp_path / "checkpoints"),
    )  # fmt: skip
    prepared = prepare_data(job, (2, 3, 5), lambda _: None, said.append)
    assert 50 < prepared.train.samples + prepared.held_out.samples <= 50 / (1 - KIND) + 1
    assert "captured requests of nearly one text, beyond their share: 145 (" in "".join(said)


def test_what_is_no_flood_is_taken_whole() -> None:
    assert len(within_shares(marks_of(REAL)).numbers) == len(REAL)
    assert len(within_shares(marks_of(FLOODS["numbered"])).numbers) == 3000, "an endpoint that is always asked the same"
    assert len(within_shares(marks_of([*FLOODS["numbered"], *REAL], given=0)).numbers) == 4000, (
        "a file of the user's own"
    )
