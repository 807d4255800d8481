import json
from pathlib import Path

from tools.tiny.__main__ import write_prompts
from tools.tiny.conversations import general, shifted
from tools.tiny.corpus import examples, held_out_open_ended, held_out_structured, is_open_ended

PROMPTS = Path(__file__).parents[2] / "recipes" / "tiny" / "prompts"
TRAINING = PROMPTS.with_name("training")


MEASURED = {example.prompt for example in (*held_out_structured(), *held_out_open_ended())}


def conversations(name: str) -> list[list[dict[str, str]]]:
    return [json.loads(line)["messages"] for line in (TRAINING / f"{name}.jsonl").read_text().splitlines()]


def test_a_seed_always_gives_the_same_texts() -> None:
    assert list(examples(1, 50)) == list(examples(1, 50))
    assert list(examples(1, 50)) != list(examples(2, 50))


def test_prompts_for_measuring_are_not_trained_on() -> None:
    held_out = {example.prompt for example in (*held_out_structured(), *held_out_open_ended())}

    assert len(held_out) == 16
    assert held_out.isdisjoint(example.prompt for example in examples(7, 10_000))


def test_the_conversations_to_train_on_are_the_corpus_and_hold_nothing_to_measure_with() -> None:
    """But for open-ended answers, which are the target's own."""
    made = general()
    written = {question["content"]: answer["content"] for question, answer in conversations("general")}
    assert len(written) == 2000
    assert written.keys() == {example.prompt for example in made}
    assert written.keys().isdisjoint(MEASURED)
    assert all(written[one.prompt] == one.answer for one in made if not is_open_ended(one))


def test_the_shifted_ones_are_chats_of_four_questions_none_of_which_is_measured() -> None:
    talks = conversations("shifted")
    asked = [tuple(message["content"] for message in talk[::2]) for talk in talks]
    assert asked == shifted()
    assert {len(questions) for questions in asked} == {4}
    assert {question for questions in asked for question in questions}.isdisjoint(MEASURED)
    assert {message["role"] for talk in talks for message in talk[1::2]} == {"assistant"}


def test_counting_goes_from_the_first_number_to_the_last() -> None:
    counting = held_out_structured()[0]
    numbers = [int(line) for line in counting.answer.splitlines()]

    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert counting.prompt == f"Count from {numbers[0]} to {numbers[-1]}."


def test_every_json_record_is_json_of_the_kind_of_the_prompt() -> None:
    records = next(example for example in held_out_structured() if "JSON" in example.prompt)

    for line in records.answer.splitlines():
        kind, number = next(iter(json.loads(line).items()))
        assert f"{kind}s" in records.prompt
        assert isinstance(number, int)


def test_written_code_runs() -> None:
    code = next(example for example in held_out_structured() if "Python" in example.prompt)
    compile(code.answer, "answer", "exec")


def test_the_shipped_prompts_are_the_held_out_ones(tmp_path: Path) -> None:
    write_prompts(tmp_path)
    for name in ("structured.jsonl", "open-ended.jsonl"):
        assert (PROMPTS / name).read_bytes() == (tmp_path / name).read_bytes()
