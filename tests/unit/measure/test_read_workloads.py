"""Workloads by name: the shipped ones, files, data sets of the hub, and captured requests."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import COMMIT, hub

from toolkit.errors import HubError, UsageError
from toolkit.measure.arm import Workload
from toolkit.measure.read_workloads import DATASETS, HubDataset, read_workloads
from toolkit.recipe.hub import HubFiles, hub_client


def only(what: str, dataset: HubDataset | None = None) -> Workload:
    (workload,) = read_workloads(what, dataset=dataset) if dataset else read_workloads(what)
    return workload


def test_the_shipped_ones() -> None:
    assert only("structured").prompts[0].text == "Count from 274 to 338."
    assert len(only("open-ended").prompts) == 8


def test_the_eight_classes_of_the_study_ask_64_tokens_in_and_600_out() -> None:
    workloads = read_workloads("study")
    assert len(workloads) == 8
    assert [len(workload.prompts) for workload in workloads] == [1, 1, 1, 1, 1, 1, 1, 8]
    assert {prompt.max_tokens for workload in workloads for prompt in workload.prompts} == {600}
    for prompt in only("study/shakespeare").prompts:
        assert len(prompt.text.split()) >= 40
        assert len(re.findall(r"\w+|[^\w\s]", prompt.text)) <= 64  # words and marks stand for tokens
    assert (
        "Output valid JSON with fixed keys\nOutput valid JSON with fixed keys\n" in only("study/json").prompts[0].text
    )
    assert read_workloads("study") == workloads


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("support-chats.csv", "prompt\nWhere is my parcel?\n"),
        ("support-chats", '{"prompt": "Where is my parcel?"}\n'),  # of JSONL, where no ending says otherwise
    ],
)
def test_a_file_is_a_workload_of_its_name(tmp_path: Path, file: str, text: str) -> None:
    path = tmp_path / file
    path.write_text(text)
    workload = only(str(path))
    assert (workload.name, workload.prompts[0].text) == ("support-chats", "Where is my parcel?")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("structurd", "no workload is called structurd"),
        ("study/jsonn", "no workload is called study/jsonn"),
        ("missing.jsonl", "file missing.jsonl does not exist"),
        ("s3://bucket/capture/", "can be read only with a platform that has S3"),
    ],
)
def test_what_is_not_there(what: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        read_workloads(what)
    assert refusal.value.hint


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    with pytest.raises(UsageError, match=r"empty\.jsonl contains no prompts"):
        read_workloads(str(path))


MASK = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
FILES = {
    "org/one": {"question.jsonl": '{"turns": ["Hi", "And you?"]}\n', "README.md": "words"},
    "org/two": {"main/train.jsonl": '{"question": "no"}\n', "main/test.jsonl": '{"question": "yes"}\n'},
    "org/many": {"a/test.jsonl": '{"prompt": "a"}\n', "b/test.jsonl": '{"prompt": "b"}\n'},
    "nvidia/SPEED-Bench": {
        "qualitative/test-00000-of-00001.jsonl": f'{{"turns": ["Hi"]}}\n{{"turns": ["{MASK}"]}}\n',
        "throughput_1k/test-00000-of-00001.jsonl": '{"turns": ["long"]}\n',
    },
    "org/none": {"README.md": "words"},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubDataset]:
    root = tmp_path_factory.mktemp("hub")
    for repo, files in FILES.items():
        for name, content in files.items():
            (root / repo / name).parent.mkdir(parents=True, exist_ok=True)
            (root / repo / name).write_text(content)
    with hub({f"datasets/{repo}": root / repo for repo in FILES}) as server, hub_client(server.url) as client:
        yield lambda repo, revision: HubFiles(repo, revision, client, "datasets")


@pytest.mark.parametrize(
    ("what", "name", "text"),
    [
        ("org/one", "one", "Hi"),
        ("org/two", "two", "yes"),
        ("org/two:train", "two", "no"),
        (f"org/many@{COMMIT}:b/", "many", "b"),
        ("speed-bench", "speed-bench", "Hi"),
    ],
)
def test_data_sets_of_the_hub(dataset: HubDataset, what: str, name: str, text: str) -> None:
    """The test split where there is one, else what is named by a part of its path."""
    workload = only(what, dataset)
    assert (workload.name, [prompt.text for prompt in workload.prompts]) == (name, [text])
    assert COMMIT[:12] in workload.note


def test_masked_prompts_are_left_out_and_counted(dataset: HubDataset) -> None:
    assert "1 of 2 prompts are masked and were left out" in only("speed-bench", dataset).note


def test_a_file_that_is_not_clear_is_asked_for(dataset: HubDataset) -> None:
    with pytest.raises(UsageError, match=r"2 files that could be meant: a/test\.jsonl, b/test\.jsonl") as refusal:
        only("org/many", dataset)
    assert "org/many:PART" in refusal.value.hint
    with pytest.raises(UsageError, match="0 files that could be meant"):
        only("org/none", dataset)
    with pytest.raises(HubError, match="404"):
        only("org/missing", dataset)


def test_short_names_are_data_sets() -> None:
    assert set(DATASETS) == {"gsm8k", "humaneval", "mt-bench", "speed-bench"}


def captured(body: object, encoding: str = "JSON") -> bytes:
    data = body if isinstance(body, str) else json.dumps(body)
    if encoding == "BASE64":
        data = base64.b64encode(data.encode()).decode()
    payload = {"observedContentType": "application/json", "mode": "INPUT", "data": data, "encoding": encoding}
    record = {"captureData": {"endpointInput": payload}, "eventMetadata": {"eventId": "e"}, "eventVersion": "0"}
    return json.dumps(record).encode() + b"\n"


def test_captured_requests_are_a_workload() -> None:
    asked: list[str] = []

    def objects(prefix: str) -> Iterator[tuple[str, bytes]]:
        asked.append(prefix)
        chat = {"messages": [{"role": "user", "content": "one"}], "max_tokens": 50}
        yield "2026/a.jsonl", captured(chat) + captured({"prompt": "two"}, "BASE64")
        yield "2026/b.jsonl", captured("1.5,2.5", "CSV") + b"broken\n" + captured({"inputs": "three"})

    (workload,) = read_workloads("s3://bucket/capture/", objects)
    assert asked == ["s3://bucket/capture/"]
    assert [(prompt.text, prompt.max_tokens) for prompt in workload.prompts] == [("one", 50), ("two", None)]
    assert workload.note == "captured: 2 captured requests; 3 lines were no requests for text"


def test_no_more_of_a_capture_is_read_than_can_be_asked() -> None:
    def objects(prefix: str) -> Iterator[tuple[str, bytes]]:
        yield "a", captured({"prompt": "Hi"}) * 1000
        raise AssertionError(f"more of {prefix} was read")

    (workload,) = read_workloads("s3://bucket/capture/", objects)
    assert len(workload.prompts) == 1000


def test_a_capture_without_requests_is_refused_without_its_text() -> None:
    with pytest.raises(UsageError, match=r"holds no captured requests for text \(1 other lines\)") as refusal:
        read_workloads("s3://bucket/", lambda _: [("a", captured("secret"))])
    assert "secret" not in str(refusal.value)
