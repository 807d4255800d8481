"""From conversations to samples, draft vocabulary and hidden states; and what is said of data that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from hub import COMMIT, hub
from safetensors.torch import save_file
from scripted_http import Reply, scripted

from toolkit.errors import PlatformError, UsageError
from toolkit.recipe.hub import HubFiles, hub_client
from toolkit.training.chat import Chat, Turn
from toolkit.training.data import Prepared, prepare_data, read_draft_vocabulary
from toolkit.training.job import TrainingJob
from toolkit.training.progress import TrainingProgress
from toolkit.training.responses import Answer, Generator, Question
from toolkit.training.samples import Sample, Samples, SampleWriter

TARGET = Path(__file__).parents[3] / "recipes" / "tiny" / "models" / "target"
LAYERS = (2, 3, 5)


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"Count from {n} to {n + 2}.", "response": f"{n}\n{n + 1}\n{n + 2}"} for n in range(10, 10 + count)
    ]


def write(path: Path, found: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


def job(folder: Path, *data: Path | str, **changes: Any) -> TrainingJob:
    settings = {"responses": "keep", "held_out": 0.2, "max_length": 64, "dtype": "float32", **changes}
    work, checkpoints = str(folder / "work"), str(folder / "checkpoints")
    return TrainingJob(
        name="tiny", method="p-eagle", target=str(TARGET), target_name="tiny", data=tuple(map(str, data)),
        work=work, checkpoints=checkpoints, **settings,
    )  # fmt: skip


class Prepares:
    """Prepares a job's data; `said` and `progress` are what it told."""

    def __init__(self, target: Any = None, **options: Any) -> None:
        self.said: list[str] = []
        self.progress: list[TrainingProgress] = []
        engine = SimpleNamespace(answering=lambda _, chat: target(chat)) if target else None
        self._options = {"engine": engine, **options}

    def __call__(self, wanted: TrainingJob) -> Prepared:
        return prepare_data(wanted, LAYERS, self.progress.append, self.said.append, **self._options)


def refusal(wanted: TrainingJob, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        Prepares(**options)(wanted)
    return str(error.value)


def test_every_sample_keeps_the_name_of_its_source(tmp_path: Path) -> None:
    """Of the same question in two files, the first file's counts."""
    found = rows(20)
    data = write(tmp_path / "a.jsonl", found[:12]), write(tmp_path / "b.jsonl", found[8:])
    Prepares()(job(tmp_path, *data))
    names = [
        samples.origin(index).source
        for samples in (Samples(tmp_path / "work" / "train"), Samples(tmp_path / "work" / "held-out"))
        for index in range(len(samples))
    ]
    assert (names.count("a.jsonl"), names.count("b.jsonl")) == (12, 8)


def test_kept_answers_become_samples_with_states(tmp_path: Path) -> None:
    prepare = Prepares()
    data = write(tmp_path / "a.jsonl", [*rows(20), rows(1)[0]])
    prepared = prepare(job(tmp_path, data, draft_vocab_size=40))
    assert (prepared.train.samples + prepared.held_out.samples, prepared.held_out.samples > 0) == (20, True)
    samples = Samples(tmp_path / "work" / "train")
    samples = Samples(tmp_path / "work" / "train")
    states = [samples.states(index) for index in range(len(samples))]
    assert [len(one.hidden_states) for one in states] == samples.lengths
    assert states[0].hidden_states.shape[1] == 3 * 256
    assert prepared.skipped == f"duplicates: 1 ({data}:21)"
    assert prepared.coverage
    assert prepared.coverage > 0.9
    vocabulary = read_draft_vocabulary(job(tmp_path, data, draft_vocab_size=40))
    assert vocabulary
    assert (len(vocabulary.d2t), int(vocabulary.t2d.sum()), bool(vocabulary.t2d[2])) == (40, 40, True)
    assert prepare.said[0].startswith(f"{prepared.train.samples} samples to train on (")
    assert "the hidden states take 0.00 GB on the disk" in prepare.said
    assert prepare.progress[-1] == TrainingProgress("states", 2, 2)


def test_no_question_stands_on_both_sides(tmp_path: Path) -> None:
    Prepares()(job(tmp_path, write(tmp_path / "a.jsonl", rows(20))))
    train, held_out = (
        {tuple(sample.input_ids[sample.loss_mask == 0].tolist()) for sample in Samples(tmp_path / "work" / side)}
        for side in ("train", "held-out")
    )
    assert train
    assert held_out
    assert not train & held_out


def test_done_once_is_done_until_the_data_changes(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", rows(6))
    first, again, changed = Prepares(), Prepares(), Prepares()
    before = first(job(tmp_path, data))
    assert again(job(tmp_path, data)) == before
    assert len(again.said) == 1, "the size only"
    write(data, rows(7))
    after = changed(job(tmp_path, data))
    assert after.train.samples + after.held_out.samples == 7


def test_other_settings_are_prepared_anew(tmp_path: Path) -> None:
    """Answers at another temperature, or a smaller part to hold out, are other data."""
    wanted = job(tmp_path, write(tmp_path / "a.jsonl", rows(6)))
    Prepares()(wanted)
    changes: dict[str, Any] = {"temperature": 0.5, "max_new_tokens": 9, "held_out": 0.4, "max_length": 500, "seed": 3}
    for key, value in changes.items():
        wanted, again = wanted.model_copy(update={key: value}), Prepares()
        again(wanted)
        assert len(again.said) == 2, key


@contextmanager
def echo(_: Chat) -> Iterator[Generator]:
    """A target that answers `9` to everything."""

    def generate(questions: Sequence[Question]) -> Sequence[Answer | None]:
        return [Answer(Turn(question.prompt, [28, 2]), "9") for question in questions]

    yield generate


def nobody(_: Chat) -> Any:
    raise AssertionError("the target is not needed")


def test_answers_of_the_target_are_asked_for_once(tmp_path: Path) -> None:
    wanted = job(tmp_path, write(tmp_path / "a.jsonl", rows(6)), responses="target")
    Prepares(target=echo)(wanted)
    for sample in Samples(tmp_path / "work" / "train"):
        assert sample.input_ids[sample.loss_mask == 1].tolist() == [28, 2]
    (tmp_path / "work" / "data.json").unlink()
    assert Prepares(target=nobody)(wanted).train.tokens > 0


def test_a_server_with_the_target_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    models = Reply(parts=[b'{"data": [{"id": "served"}]}'])
    choice = {"message": {"content": "3"}, "token_ids": [23, 24, 2], "finish_reason": "stop"}
    answer = Reply(parts=[json.dumps({"choices": [choice], "prompt_token_ids": [1, 287]}).encode()])
    data = write(tmp_path / "a.jsonl", [{"prompt": f"Count to {n}."} for n in range(10)])
    with scripted(models, answer) as server:
        prepared = Prepares()(job(tmp_path, data, responses=f"{server.url}/v1"))
    assert prepared.train.samples + prepared.held_out.samples == 10
    assert Samples(tmp_path / "work" / "train")[0].input_ids.tolist() == [1, 287, 23, 24, 2]
    listing, *asked = server.requests
    assert listing.path == "/v1/models"
    assert {json.loads(request.body)["model"] for request in asked} == {"served"}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer secret"}


def test_a_server_that_lists_no_model_is_named(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", rows(10))
    with scripted(Reply(parts=[b"<html>"])) as server, pytest.raises(PlatformError, match="does not list its models"):
        Prepares()(job(tmp_path, data, responses=f"{server.url}/v1"))


def test_a_data_set_of_the_hub(tmp_path: Path) -> None:
    """Only its training split, and its files are brought once."""
    folder = tmp_path / "hub" / "data"
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(6)), folder / "train-00000-of-00001.parquet")
    write(folder / "test.jsonl", [{"no": "conversation"}])
    source = f"hf://org/chats@{COMMIT}"
    with hub({"datasets/org/chats": tmp_path / "hub"}) as server:

        def dataset(repo: str, revision: str | None) -> HubFiles:
            return HubFiles(repo, revision, hub_client(server.url), "datasets")

        for _ in range(2):
            prepared = Prepares(dataset=dataset)(job(tmp_path, source))
            (tmp_path / "work" / "data.json").unlink()
        assert server.sent["train-00000-of-00001.parquet"] == (folder / "train-00000-of-00001.parquet").stat().st_size
        assert prepared.train.samples + prepared.held_out.samples == 6
        (folder / "train-00000-of-00001.parquet").unlink()
        (folder / "test.jsonl").unlink()
        message = refusal(job(tmp_path / "other", source), dataset=dataset)
    assert "org/chats on the hub has no file of conversations" in message


def test_a_folder_of_captured_requests(tmp_path: Path) -> None:
    (tmp_path / "capture" / "2026" / "11").mkdir(parents=True)
    records = [
        {"captureData": {"endpointInput": {"data": json.dumps({"messages": [{"role": "user", "content": f"{n}?"}]})}}}
        for n in range(6)
    ]
    write(tmp_path / "capture" / "2026" / "11" / "a.jsonl", records)
    prepared = Prepares(target=echo)(job(tmp_path, tmp_path / "capture", responses="target"))
    assert prepared.train.samples + prepared.held_out.samples == 6


def test_samples_that_were_prepared_before(tmp_path: Path) -> None:
    Prepares()(job(tmp_path / "one", write(tmp_path / "a.jsonl", rows(12))))
    prepared = Prepares()(job(tmp_path / "two", tmp_path / "one" / "work" / "train"))
    assert prepared.train.samples + prepared.held_out.samples == len(Samples(tmp_path / "one" / "work" / "train"))


def test_samples_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    with SampleWriter(tmp_path / "samples", "another digest") as writer:
        writer.add(Sample(torch.tensor([1, 2], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.uint8)))
    message = refusal(job(tmp_path, tmp_path / "samples"))
    assert f"the samples in {tmp_path / 'samples'} were made with another tokenizer than the target's" in message


@pytest.mark.parametrize(
    ("content", "changes", "words"),
    [
        ("", {}, ["a.jsonl has no rows", "Write a conversation on each line"]),
        ('{"prompt": "a"}\n{"prompt": \n', {}, ["a.jsonl:2: it is not JSON"]),
        ('{"prompt": "a"}\n{"text": "b"}\n', {}, ["a.jsonl:2: no prompt: the row has the columns `text`"]),
        ('{"prompt": "a"}\n{"prompt": "b"}\n', {},
         ["without an answer of the assistant: 2 (", "a.jsonl:1", "a.jsonl:2", "training.responses: target"]),
        ('{"messages": [{"role": "assistant", "content": "a"}]}\n', {},
         ["no message of a user", "Correct `training.data`"]),
        ('{"prompt": "a", "answer": "b"}\n' * 3, {}, ["asks 1 different question", "at least 2"]),
        ('{"prompt": "a", "answer": "b"}\n{"prompt": "c", "answer": "d"}\n', {"max_length": 5},
         ["no answer to train on", "answers to prompts that are longer than max_length: 2", "raise training.max_len"]),
        ('{"prompt": "a"}\n' * 2, {"responses": "target", "target_answers": False}, ["asks 1 different question"]),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used(tmp_path: Path, content: str, changes: dict[str, Any], words: list[str]) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    options = {} if changes.pop("target_answers", True) else {"target": echo}
    message = refusal(job(tmp_path, tmp_path / "a.jsonl", **changes), **options)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere.jsonl", "does not exist"),
        ("empty", "has no file of conversations"),
        ("s3://bucket/capture/", "can be read only with a platform that has S3"),
    ],
)
def test_sources_that_are_not_there(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    path = source if source.startswith("s3://") else tmp_path / source
    assert words in refusal(job(tmp_path, path))


def test_a_continued_head_keeps_its_draft_vocabulary(tmp_path: Path) -> None:
    head = tmp_path / "head"
    head.mkdir()
    save_file({"d2t": torch.full((40,), 2)}, head / "model.safetensors")
    data = write(tmp_path / "a.jsonl", rows(6))
    Prepares()(job(tmp_path, data, draft_vocab_size=40, start_from=str(head)))
    vocabulary = read_draft_vocabulary(job(tmp_path, data, draft_vocab_size=40))
    assert vocabulary
    assert vocabulary.t2d.nonzero().flatten().tolist() == list(range(2, 42))
    message = refusal(job(tmp_path, data, draft_vocab_size=50, start_from=str(head)))
    assert "drafts 40 tokens, not 50" in message
    assert "training.draft_vocab_size: 40" in message


def test_longer_answers_are_cut_and_counted(tmp_path: Path) -> None:
    data = write(
        tmp_path / "a.jsonl", [*rows(6), {"prompt": "Count to 30.", "response": "\n".join(map(str, range(30)))}]
    )
    prepared = Prepares()(job(tmp_path, data))
    assert prepared.skipped == f"ends of answers that are longer than max_length: 1 ({data}:7)"
    lengths = [length for side in ("train", "held-out") for length in Samples(tmp_path / "work" / side).lengths]
    assert max(lengths) == 64


def test_a_captured_chat_of_several_turns_is_asked_once(tmp_path: Path) -> None:
    chats = [[{"role": "user", "content": f"Count from {n} to {n + 2}."}] for n in range(10, 20)]
    longer = [[*chat, {"role": "assistant", "content": "?"}, {"role": "user", "content": "And on."}] for chat in chats]
    data = write(tmp_path / "a.jsonl", [{"body": {"messages": chat}} for chat in (*chats, *longer)])
    asked: list[Question] = []

    @contextmanager
    def target(chat: Chat) -> Iterator[Generator]:
        def answer(questions: Sequence[Question]) -> list[Answer | None]:
            asked.extend(questions)
            return [Answer(Turn(one.prompt, [*chat.encode("1"), *chat.end_tokens]), "1") for one in questions]

        yield answer

    prepared = Prepares(target)(job(tmp_path, data, responses="target", max_length=128))
    assert len(asked) == 20  # two turns of ten chats
    assert "beginnings of chats that go on in another row: 10" in prepared.skipped


def test_a_source_is_used_up_to_its_share(tmp_path: Path) -> None:
    other = [{"prompt": f"Say w{n} q{n} once.", "response": f"w{n}"} for n in range(30)]
    data = write(tmp_path / "own.jsonl", rows(28)), write(tmp_path / "general.jsonl", other)
    prepared = Prepares()(job(tmp_path, *data, shares=(None, 0.3)))
    assert prepared.train.samples + prepared.held_out.samples == 28 + 12
    assert "beyond the share of general.jsonl: 18" in prepared.skipped
