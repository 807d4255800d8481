"""One job trains a head of each method on the same answers and hidden states, each as a job of its own would."""

from __future__ import annotations

import gc
import io
import json
import shutil
import signal
import weakref
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from safetensors import safe_open
from speculators.models.eagle3 import Eagle3DraftModel

from tests.unit.training.forked_processes import launch_forks
from tests.unit.training.heads import job_for, save_target
from tests.unit.training.job_process import stopped_fork
from toolkit.training.__main__ import main, prepare
from toolkit.training.data import _responses
from toolkit.training.head import build_head
from toolkit.training.job import MARKOV_RANK, ComparedHead, TrainingJob, read_job
from toolkit.training.progress import FILE
from toolkit.training.responses import Answered
from toolkit.training.states import with_local_target

HEADS = (
    ComparedHead(method="p-eagle", layers=2, depth=4),
    ComparedHead(method="eagle3", layers=1, depth=3),
    ComparedHead(method="dflash", layers=2, depth=2),
    ComparedHead(method="dspark", layers=2, depth=2),
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    folder = tmp_path_factory.mktemp("job")
    chats = [
        [("user", f"Count to {number}."), ("assistant", " ".join(map(str, range(number))))] for number in range(4, 24)
    ]
    rows = [{"messages": [{"role": role, "content": text} for role, text in chat]} for chat in chats]
    (folder / "data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return job_for(
        save_target(folder / "target"),
        steps=8,
        batch_tokens=100,
        learning_rate=0.01,
        held_out=0.3,
        num_speculative_tokens=2,
        norms=True,
        responses="keep",
        data=(str(folder / "data.jsonl"),),
    )


@pytest.fixture(scope="module")
def compared(job: TrainingJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that was not interrupted."""
    folder = tmp_path_factory.mktemp("compared")
    job.model_copy(update={"compare": HEADS}).write(folder)
    assert main(folder) == 0
    return folder


def weights(head: Path) -> bytes:
    return (head / "model.safetensors").read_bytes()


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.method)
def test_each_head_is_the_one_that_a_job_of_its_own_trains(
    job: TrainingJob, compared: Path, tmp_path: Path, head: ComparedHead
) -> None:
    job.model_copy(update=head.model_dump()).write(tmp_path)
    assert main(tmp_path) == 0

    own, one = tmp_path / "head", compared / "head" / head.method
    assert weights(one) == weights(own)
    reports = [json.loads((folder / "report.json").read_text()) for folder in (own, one)]
    for report in reports:
        del report["seconds"]
    assert reports[0] == reports[1]


def test_a_dflash_head_is_written_as_its_authors_write_theirs_without_what_is_the_targets(compared: Path) -> None:
    """Each block sees all of itself: vLLM takes that from the lack of `causal`."""
    config = json.loads((compared / "head" / "dflash" / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["dflash_config"] == {"mask_token_id": 3, "target_layer_ids": [1, 2, 4]}
    assert (config["block_size"], config["num_hidden_layers"], config["model_type"]) == (3, 2, "qwen3")
    assert "speculators_config" not in config
    with safe_open(compared / "head" / "dflash" / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert {"fc.weight", "hidden_norm.weight", "norm.weight", "layers.1.self_attn.q_norm.weight"} <= names
    assert not [name for name in names if name.startswith(("verifier_", "embed_tokens", "lm_head"))]


def test_a_dspark_head_is_written_as_its_authors_write_theirs_with_what_it_adds_to_dflash(compared: Path) -> None:
    """Without a word of it vLLM leaves the confidence head out."""
    config = json.loads((compared / "head" / "dspark" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3DSparkModel"]
    assert (config["mask_token_id"], config["target_layer_ids"]) == (3, [1, 2, 4])
    assert (config["block_size"], config["sample_from_anchor"], config["num_depths"]) == (2, True, 2)
    assert (config["markov_rank"], config["enable_confidence_head"]) == (MARKOV_RANK, True)
    assert "GPUs alone" in (compared / "head" / "dspark" / "README.md").read_text()
    with safe_open(compared / "head" / "dspark" / "model.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert {"markov_head.markov_w1.weight", "markov_head.markov_w2.weight", "confidence_head.proj.bias"} <= names
    assert not [name for name in names if name.startswith(("verifier_", "embed_tokens", "lm_head"))]


def test_an_eagle3_head_has_the_norms_of_eagle_3_1_and_others_do_not(compared: Path) -> None:
    for method in ("eagle3", "p-eagle"):
        config = json.loads((compared / "head" / method / "config.json").read_text())
        is_normed = method == "eagle3"
        assert (config["fc_norm"], config["norm_output"]) == (is_normed, is_normed)
        assert ("EAGLE-3.1" in (compared / "head" / method / "README.md").read_text()) is is_normed
        with safe_open(compared / "head" / method / "model.safetensors", framework="pt") as file:
            assert ("fc_norm.2.weight" in file.keys()) is is_normed  # noqa: SIM118


def test_a_head_that_is_continued_has_the_norms_that_it_had(job: TrainingJob, compared: Path) -> None:
    own = {**HEADS[1].model_dump(), "norms": False, "start_from": str(compared / "head" / "eagle3")}
    again = build_head(job.model_copy(update=own))
    assert isinstance(again, Eagle3DraftModel)
    assert (again.config.fc_norm, again.config.norm_output) == (True, True)


def test_samples_and_states_are_made_once(compared: Path) -> None:
    """Samples are told of for the first head alone, and no states are newer than its checkpoint."""
    stages = [
        {json.loads(line)["stage"] for line in (compared / "checkpoints" / head.method / FILE).read_text().splitlines()}
        for head in HEADS
    ]
    assert stages == [{"data", "states", "train", "head"}, *[{"states", "train", "head"}] * (len(HEADS) - 1)]
    trained = (compared / "checkpoints" / "p-eagle" / "checkpoint.pt").stat().st_mtime_ns
    states = list((compared / "work").rglob("states-*"))
    assert states
    assert all(path.stat().st_mtime_ns < trained for path in states)


def test_an_answer_that_the_target_gave_for_one_head_is_there_for_all(job: TrainingJob, tmp_path: Path) -> None:
    given = Answered("digest", "question", "data.jsonl:1", ())
    heads = job.model_copy(update={"compare": HEADS, "checkpoints": str(tmp_path)}).heads
    _responses(heads[0]).add([given])
    assert [list(_responses(head)) for head in heads] == [[given]] * len(HEADS)


def test_stopped_amid_one_of_them_it_goes_on_with_that_and_ends_as_if_nothing_had_been(
    job: TrainingJob, compared: Path, tmp_path: Path
) -> None:
    job.model_copy(update={"compare": HEADS}).write(tmp_path)
    assert stopped_fork(tmp_path) == 128 + signal.SIGTERM
    assert not (tmp_path / "head").exists()

    assert main(tmp_path) == 0

    for head in HEADS:
        assert weights(tmp_path / "head" / head.method) == weights(compared / "head" / head.method)


def test_heads_that_are_there_are_not_trained_again(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = [path.stat().st_mtime_ns for path in sorted(compared.rglob("*.safetensors"))]
    assert main(compared) == 0
    assert "head 1 of" not in capsys.readouterr().out
    assert [path.stat().st_mtime_ns for path in sorted(compared.rglob("*.safetensors"))] == before != []


def test_two_processes_train_one_head_after_the_other(job: TrainingJob, tmp_path: Path) -> None:
    job.model_copy(update={"compare": HEADS[:2], "steps": 2}).write(tmp_path)

    assert main(tmp_path, processes=2, launcher=launch_forks) == 0
    assert sorted(path.name for path in (tmp_path / "head").iterdir()) == ["eagle3", "p-eagle"]


@pytest.mark.parametrize("lost", ["model.safetensors", "../head.json", ""])
def test_a_head_of_which_a_part_came_back_is_written_again(compared: Path, tmp_path: Path, lost: str) -> None:
    """As SageMaker brings back /opt/ml/checkpoints, file by file; without a word, a file that is cut."""
    shutil.copytree(compared, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "head")
    head = tmp_path / "checkpoints" / "eagle3" / "head"
    assert [one.is_done for one in read_job(tmp_path).heads] == [True] * len(HEADS)
    if lost:
        (head / lost).unlink()
    else:
        (head / "model.safetensors").write_bytes(b"half")
    assert [head.method for head in read_job(tmp_path).heads if not head.is_done] == ["eagle3"]

    assert main(tmp_path) == 0

    for one in HEADS:
        assert weights(tmp_path / "head" / one.method) == weights(compared / "head" / one.method)
    assert not (tmp_path / "head" / "eagle3" / "head.json").exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_one_head_that_fails_costs_none_of_the_others(
    job: TrainingJob, tmp_path: Path, capfd: pytest.CaptureFixture[str], processes: int
) -> None:
    """A DFlash block that is longer than every answer teaches nothing."""
    heads = (ComparedHead(method="dflash", layers=1, depth=200), HEADS[1])
    job.model_copy(update={"compare": heads, "steps": 1}).write(tmp_path)

    assert main(tmp_path, processes, launcher=launch_forks) == 2

    assert [head.is_done for head in read_job(tmp_path).heads] == [False, True]
    assert not (tmp_path / "head").exists(), "it is not complete"
    said = capfd.readouterr().out
    assert "error: the dflash head: no answer" in said
    assert f"kept: {tmp_path}/checkpoints/eagle3/head" in said


class Garbage:
    """A cycle, as a trained head is, which only `gc` takes away."""

    def __init__(self) -> None:
        self.self = self


def test_what_a_head_had_on_the_gpus_is_free_before_the_target_is_loaded_for_the_next(compared: Path) -> None:
    class Log(io.StringIO):
        left: weakref.ref[Garbage]

        def write(self, text: str) -> int:
            found.append(self.left())
            return len(text)

    found: list[Garbage | None] = []
    head, log = read_job(compared).heads[1], Log()
    gc.disable()
    try:
        log.left = weakref.ref(Garbage())
        with redirect_stdout(log):
            prepare(with_local_target(head))
    finally:
        gc.enable()
    assert found
    assert found[0] is None


def test_the_time_of_the_job_is_shared_among_the_heads(job: TrainingJob) -> None:
    shared = job.model_copy(update={"compare": HEADS, "max_seconds": 3602})
    assert [(head.method, head.max_seconds) for head in shared.heads] == [(one.method, 900) for one in HEADS]
