"""What a training reads back may have been changed in between: it is refused by its name, and never half used."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from training_kinds import MODELS, WIDTHS, _trained, _write_samples

from tests.unit.training.heads import VOCAB, job_for
from toolkit.errors import PlatformError, UsageError
from toolkit.training import checkpoint
from toolkit.training.chat import Turn
from toolkit.training.checkpoint import Checkpoint, Writer
from toolkit.training.head import build_head
from toolkit.training.launch import job_machines
from toolkit.training.responses import Answered, Responses
from toolkit.training.samples import Samples, samples_file, states_file
from toolkit.training.vocabulary import FILE, draft_vocabulary, head_vocabulary, read_vocabulary

JOB = job_for(Path("target"))
Change = Callable[[dict[str, Any]], object]


class Evil:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch evil.ran",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a checkpoint and best weights."""
    monkeypatch.chdir(tmp_path)
    weights, optimizers = _trained()
    states = [optimizer.state_dict() for optimizer in optimizers]
    with Writer(tmp_path, JOB) as writer:
        writer.save(Checkpoint(5, weights, states, [(2, 1.5)], 12.5), best=True)
    return tmp_path


def load(folder: Path) -> Checkpoint | None:
    return checkpoint.load(folder, JOB, *_trained())


def test_a_checkpoint_is_read_as_it_was_written(folder: Path) -> None:
    kept = load(folder)
    assert kept
    assert (kept.step, kept.evaluations, kept.seconds) == (5, [(2, 1.5)], 12.5)
    assert torch.equal(
        kept.optimizers[0]["state"][0]["momentum_buffer"], _trained()[1][0].state_dict()["state"][0]["momentum_buffer"]
    )


CHANGES: dict[str, Change] = {
    "without its job": lambda kept: kept.pop("job"),
    "a job that is none": lambda kept: kept.update(job=[1]),
    "without a step": lambda kept: kept.pop("step"),
    "a step below 0": lambda kept: kept.update(step=-1),
    "one key more": lambda kept: kept.update(more=1),
    "an evaluation that is no number": lambda kept: kept.update(evaluations=[(1, float("nan"))]),
    "without a tensor": lambda kept: kept["weights"].pop("matrix"),
    "one tensor more": lambda kept: kept["weights"].update(more=torch.ones(2)),
    "a tensor of another shape": lambda kept: kept["weights"].update(vector=torch.ones(3)),
    "a tensor of another type": lambda kept: kept["weights"].update(vector=torch.ones(2).long()),
    "a tensor of no numbers": lambda kept: kept["weights"].update(vector=torch.full((2,), float("inf"))),
    "a tensor that is not dense": lambda kept: kept["weights"].update(vector=torch.ones(2).to_sparse()),
    "a tensor that is none": lambda kept: kept["weights"].update(vector=5),
    "an optimizer less": lambda kept: kept["optimizers"].pop(),
    "an optimizer without a state": lambda kept: kept["optimizers"][0].pop("state"),
    "another parameter": lambda kept: kept["optimizers"][0].update(state={7: {}}),
    "a state without momentum": lambda kept: kept["optimizers"][0]["state"][0].pop("momentum_buffer"),
    "a state of another shape": lambda kept: kept["optimizers"][1]["state"][0].update(exp_avg=torch.ones(5)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_checkpoint_that_was_changed_is_refused_by_its_name(folder: Path, change: Change) -> None:
    kept = torch.load(folder / checkpoint.FILE, weights_only=True)
    change(kept)
    torch.save(kept, folder / checkpoint.FILE)
    with pytest.raises(UsageError, match=r"checkpoint\.pt cannot be used: .*\n  Remove checkpoint\.pt and best\.pt"):
        load(folder)


def _zipped(value: object, how: int = zipfile.ZIP_STORED) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", how) as archive:
        archive.writestr("checkpoint/data.pkl", pickle.dumps(value, 2))
        archive.writestr("checkpoint/version", "3\n")
    return written.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"PK\x03\x04", b"\x80\x02.", pickle.dumps({"job": 1}), pickle.dumps(Evil()), _zipped(Evil()), _zipped([1]),
        _zipped({}),
        _zipped({"step": b"\0" * 10**6}, zipfile.ZIP_DEFLATED),
    ],
    ids=["empty", "cut", "bytes", "pickle", "code", "code in an archive", "a list", "an empty one", "packed"],
)  # fmt: skip
def test_a_file_that_is_no_checkpoint_is_refused_by_its_name_and_runs_nothing(folder: Path, content: bytes) -> None:
    for name, read in (
        (checkpoint.FILE, load),
        (checkpoint.BEST, lambda where: checkpoint.load_best(where, _trained()[0])),
    ):
        (folder / name).write_bytes(content)
        with pytest.raises(UsageError, match=f"{name} cannot be used: ") as error:
            read(folder)
        assert error.value.hint.startswith("Remove checkpoint.pt and best.pt from that folder to start anew")
    assert not (folder / "evil.ran").exists()


def test_a_byte_that_was_changed_is_noticed(folder: Path) -> None:
    """torch itself takes a tensor as it lies in the file."""
    content = bytearray((folder / checkpoint.BEST).read_bytes())
    ones = content.index(_trained()[0]["matrix"].numpy().tobytes())
    content[ones] ^= 1
    (folder / checkpoint.BEST).write_bytes(content)
    with pytest.raises(UsageError, match=r"best\.pt cannot be used: .* is damaged"):
        checkpoint.load_best(folder, _trained()[0])


SHARDS: dict[str, tuple[dict[str, Any], str]] = {
    "offsets beyond the end": ({"offsets": torch.tensor([0, 5, 11])}, "offsets do not end with its tokens"),
    "offsets that go back": ({"offsets": torch.tensor([0, 12, 10])}, "offsets do not ascend"),
    "offsets that overflow": ({"offsets": torch.tensor([0, 2**63 - 1, -2, 10])}, "offsets do not ascend"),
    "a token below 0": ({"input_ids": torch.tensor([0, -1] * 5, dtype=torch.int32)}, "a token below 0"),
    "a mask of twos": ({"loss_mask": torch.full((10,), 2, dtype=torch.uint8)}, "a mask that is neither"),
    "numbers with a fraction": ({"input_ids": torch.ones(10)}, "other types or shapes"),
    "another shape": ({"loss_mask": torch.ones(5, 2, dtype=torch.uint8)}, "other types or shapes"),
    "a single number": ({"offsets": torch.tensor(5)}, "is damaged"),
    "a token that the target lacks": (
        {"input_ids": torch.full((10,), VOCAB, dtype=torch.int32)},
        f"has the token {VOCAB}",
    ),
    "another number of samples": ({"offsets": torch.tensor([0, 10])}, "it says 2 of them, and there are 1"),
}


@pytest.mark.parametrize(("change", "why"), SHARDS.values(), ids=SHARDS)
def test_samples_that_were_changed_are_refused_by_their_name(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    _write_samples(tmp_path)
    path = samples_file(tmp_path, 0)
    save_file({**load_file(path), **change}, path)
    with pytest.raises(UsageError, match=rf"(samples-00000\.safetensors|index\.json).* {why}.*\n.*Remove that file"):
        Samples(tmp_path).require_vocabulary(VOCAB)


@pytest.mark.parametrize("change", [{"hidden_states": torch.ones(9, 6)}, {"last_hidden_states": torch.ones(10, 3)},
                                    {"hidden_states": torch.ones(10, 6).long()}])  # fmt: skip
def test_hidden_states_of_other_samples_are_refused_by_their_name(tmp_path: Path, change: dict[str, Any]) -> None:
    _write_samples(tmp_path)
    Samples(tmp_path).require_states(WIDTHS)
    save_file({**load_file(states_file(tmp_path, 0)), **change}, states_file(tmp_path, 0))
    with pytest.raises(UsageError, match=r"states-00000\.safetensors is of other samples or another head"):
        Samples(tmp_path).require_states(WIDTHS)


@pytest.mark.parametrize(
    "d2t", [[0, 20], [-1, 0], [1, 0], [2**40, 0], [0.5, 1.0], [[0, 1]], []],
    ids=["beyond", "below 0", "one twice", "far beyond", "fractions", "a matrix", "none"],
)  # fmt: skip
def test_a_draft_vocabulary_outside_of_the_targets_is_refused_by_its_file(tmp_path: Path, d2t: list[Any]) -> None:
    draft_vocabulary(torch.arange(20), 2, []).write(tmp_path)
    save_file({**load_file(tmp_path / FILE), "d2t": torch.tensor(d2t)}, tmp_path / FILE)
    with pytest.raises(UsageError, match=FILE):
        read_vocabulary(tmp_path, 20)
    with pytest.raises(UsageError, match=FILE):
        head_vocabulary(tmp_path, 20)


def test_maps_that_do_not_agree_are_refused(tmp_path: Path) -> None:
    draft_vocabulary(torch.arange(20), 2, []).write(tmp_path)
    save_file({**load_file(tmp_path / FILE), "t2d": torch.ones(20, dtype=torch.bool)}, tmp_path / FILE)
    with pytest.raises(UsageError, match=f"{FILE} is damaged: its maps do not agree"):
        read_vocabulary(tmp_path, 20)


@pytest.mark.parametrize("token", [-1, 2**31])
def test_answers_with_tokens_that_cannot_be_are_asked_again(tmp_path: Path, token: int) -> None:
    kept = Responses(tmp_path / "responses.jsonl", "s")
    kept.add([Answered("a", "q", "x", (Turn([1], [2]),)), Answered("b", "q", "x", (Turn([1], [token]),))])
    assert [one.digest for one in Responses(tmp_path / "responses.jsonl", "s")] == ["a"]


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("hidden_size", 4096, "has another target: its hidden_size is 4096, not 256"),
        ("vocab_size", 32000, "has another target: its vocab_size is 32000, not 1440"),
        ("num_hidden_layers", None, "cannot be read: .*num_hidden_layers"),
        ("num_hidden_layers", 2**63, r"config\.json: `num_hidden_layers` is 9223372036854775808, and no model"),
        ("eagle_aux_hidden_state_layer_ids", "1, 2", "is no list of layers"),
        ("ptd_token_id", -5, "its mask token -5 is not one of the target's"),
    ],
)
def test_a_head_that_does_not_fit_is_refused_before_it_is_built(tmp_path: Path, key: str, value: Any, why: str) -> None:
    head, target = tmp_path / "head", MODELS / "target"
    shutil.copytree(MODELS / "p-eagle", head)
    config = json.loads((head / "config.json").read_text())
    job = job_for(target, start_from=str(head), layers=config["num_hidden_layers"])
    assert build_head(job)
    (head / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UsageError, match=f"training.start_from: .*{why}"):
        build_head(job)


def test_machines_that_do_not_list_this_one(tmp_path: Path) -> None:
    path = tmp_path / "input" / "config" / "resourceconfig.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"hosts": ["a"], "current_host": "b"}))
    with pytest.raises(PlatformError, match=r"resourceconfig\.json does not list this machine"):
        job_machines(tmp_path)
