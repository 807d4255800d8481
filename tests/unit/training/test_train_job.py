"""A job from its conversations to the folder of a head, as a process and in this one."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.unit.training.heads import job_for, save_target
from tests.unit.training.job_process import kept_curve, stopped_fork
from toolkit.errors import UsageError
from toolkit.training import job as train_job
from toolkit.training import progress
from toolkit.training.__main__ import main
from toolkit.training.head import build_head, layers_read
from toolkit.training.job import TrainingJob

STEPS, KILLED_AT = 60, 20


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> TrainingJob:
    folder = tmp_path_factory.mktemp("job")
    conversations = [
        {
            "messages": [
                {"role": "user", "content": f"Count to {number}."},
                {"role": "assistant", "content": " ".join(str(count) for count in range(number))},
            ]
        }
        for number in range(4, 34)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in conversations))
    changes = {"steps": STEPS, "batch_tokens": 100, "learning_rate": 0.01, "layers": 1, "depth": 3, "held_out": 0.2}
    return job_for(
        save_target(folder / "target"),
        **changes,
        responses="keep",
        data=(str(folder / "data.jsonl"),),
        target_revision="a" * 40,
        num_speculative_tokens=2,
    )


@pytest.fixture(scope="module")
def finished(job: TrainingJob, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that was not interrupted."""
    folder = tmp_path_factory.mktemp("finished")
    job.write(folder)
    assert main(folder) == 0
    return folder


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)])
def test_told_to_end_or_killed_the_next_process_goes_on_and_ends_as_if_nothing_had_been(
    job: TrainingJob,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    by: signal.Signals,
    code: int,
) -> None:
    job.write(tmp_path)
    assert stopped_fork(tmp_path, by, KILLED_AT if by == signal.SIGKILL else 1) == code
    stopped = kept_curve(tmp_path)[-1][0]

    assert main(tmp_path) == 0

    lines = map(progress.parse, capsys.readouterr().out.splitlines())
    first = next(line.done for line in lines if line and line.stage == "train")
    assert 1 < first <= stopped + 1 <= STEPS, "it goes on from a checkpoint"
    assert kept_curve(tmp_path) == kept_curve(finished)
    weights = [folder / "head" / "model.safetensors" for folder in (tmp_path, finished)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_head_is_in_the_format_of_vllm_and_names_its_target(finished: Path) -> None:
    config = json.loads((finished / "head" / "config.json").read_text())

    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["ptd_token_id"] == config["pard_token"] == 3
    assert (config["num_depths"], config["num_hidden_layers"], config["dtype"]) == (3, 1, "bfloat16")
    assert config["eagle_aux_hidden_state_layer_ids"] == [2, 3, 5]
    assert (config["target_model"], config["target_revision"]) == ("org/target", "a" * 40)
    with safe_open(finished / "head" / "model.safetensors", framework="pt") as file:
        assert {"fc.weight", "mask_hidden", "lm_head.weight", "embed_tokens.weight"} <= set(file.keys())
        assert not [name for name in file.keys() if name.startswith("verifier_")]  # noqa: SIM118 (not a dict)


def test_the_card_has_the_figures_of_the_report(finished: Path) -> None:
    report = json.loads((finished / "head" / "report.json").read_text())
    text = (finished / "head" / "README.md").read_text()

    assert 0 < report["best_step"] <= report["steps"] <= STEPS
    assert len(report["acceptance_per_depth"]) == 2  # as many as are drafted
    assert report["acceptance_length"] == pytest.approx(1 + sum(report["acceptance_per_depth"][:2]), abs=1e-3)
    for key in ("target", "target_revision", "tokens", "held_out_loss", "learning_rate"):
        assert str(report[key]) in text, key
    ends = [report[f"acceptance_length{end}"] for end in ("", "_low", "_high")]
    assert "| held-out acceptance length at K=2 | {:.2f} ({:.2f}-{:.2f}) |".format(*ends) in text
    assert f"| held-out conversations | {report['held_out_conversations']} |" in text
    for depth, share in enumerate(report["acceptance_per_depth"], start=1):
        assert f"| {depth} | {share:.1%} |" in text
    assert '"parallel_drafting": true' in text


def test_a_job_that_has_its_head_does_nothing(finished: Path) -> None:
    before = (finished / "head" / "config.json").stat().st_mtime_ns

    assert main(finished) == 0
    assert (finished / "head" / "config.json").stat().st_mtime_ns == before


def test_another_head_goes_on_from_this_one(job: TrainingJob, finished: Path, tmp_path: Path) -> None:
    """The rate is far too high, so that it is best before its first step, and that is what it keeps."""
    again = job.model_copy(update={"start_from": str(finished / "head"), "steps": 2, "learning_rate": 1.0})
    again.write(tmp_path)
    assert main(tmp_path) == 0

    first, second = (json.loads((folder / "head" / "report.json").read_text()) for folder in (finished, tmp_path))
    assert [step for step, _ in second["evaluations"]] == [0, 1, 2]
    assert second["best_step"] == 0
    assert second["held_out_loss"] == pytest.approx(first["held_out_loss"], rel=0.05)


def test_a_head_without_an_embedding_goes_on_with_the_targets(job: TrainingJob, finished: Path, tmp_path: Path) -> None:
    """EAGLE's authors, AngelSlim and others store none: engines share the target's."""
    head = shutil.copytree(finished / "head", tmp_path / "former")
    weights = load_file(head / "model.safetensors")
    del weights["embed_tokens.weight"]
    save_file(weights, head / "model.safetensors")
    built = build_head(job.model_copy(update={"start_from": str(head)}))
    target = AutoModelForCausalLM.from_pretrained(job.target).state_dict()
    assert torch.equal(built.state_dict()["embed_tokens.weight"], target["model.embed_tokens.weight"].float())
    assert torch.equal(built.state_dict()["fc.weight"], weights["fc.weight"].float())


def test_a_head_in_speculators_form_is_converted_first(job: TrainingJob, finished: Path, tmp_path: Path) -> None:
    head = shutil.copytree(finished / "head", tmp_path / "former")
    config = json.loads((head / "config.json").read_text())
    del config["model_type"]
    (head / "config.json").write_text(json.dumps({"speculators_model_type": "eagle3", **config}))
    with pytest.raises(UsageError, match="has the form that speculators writes") as refused:
        layers_read(job.model_copy(update={"start_from": str(head)}))
    assert "toolkit convert" in refused.value.hint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 2}, "that head has 1 layers, and training.layers is 2"),
        ({"start_from": "/nowhere"}, "training.start_from: /nowhere is not a head"),
        ({"method": "eagle3"}, "another size or method: tensor `mask_hidden` does not fit"),
    ],
)
def test_a_head_of_another_size_or_method_is_refused(
    job: TrainingJob,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    message: str,
) -> None:
    job.model_copy(update={"start_from": str(finished / "head"), **changes}).write(tmp_path)

    assert main(tmp_path) == 2
    shown = capsys.readouterr().out
    assert "error: " in shown
    assert message in shown
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(("tensor", "rows", "drafted"), [("lm_head.weight", 1439, None), ("d2t", 40, 40)])
def test_a_head_whose_weights_have_another_size_is_refused_before_anything_is_computed(
    job: TrainingJob,
    finished: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tensor: str,
    rows: int,
    drafted: int | None,
) -> None:
    """One that drafts a part of the target's tokens has to say which."""
    head = shutil.copytree(finished / "head", tmp_path / "former")
    weights = load_file(head / "model.safetensors")
    save_file({**weights, "lm_head.weight": weights["lm_head.weight"][:rows]}, head / "model.safetensors")
    job.model_copy(update={"start_from": str(head), "draft_vocab_size": drafted}).write(tmp_path)

    assert main(tmp_path) == 2
    assert f"tensor `{tensor}` does not fit" in capsys.readouterr().out
    assert not (tmp_path / "work").exists()


def test_a_head_that_names_no_layers_reads_those_that_the_engine_gives_it(
    job: TrainingJob, finished: Path, tmp_path: Path
) -> None:
    """EAGLE's authors name none."""
    head = shutil.copytree(finished / "head", tmp_path / "former")
    config = json.loads((head / "config.json").read_text())
    del config["eagle_aux_hidden_state_layer_ids"]
    (head / "config.json").write_text(json.dumps(config))
    deep = shutil.copytree(job.target, tmp_path / "target")
    config = json.loads((deep / "config.json").read_text())
    (deep / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 32, "layer_types": None}))
    again = job.model_copy(update={"start_from": str(head), "target": str(deep)})
    assert layers_read(again) == (2, 16, 29)


def test_a_folder_without_a_job_is_an_error_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tmp_path) == 2
    assert f"error: {tmp_path / train_job.FILE} cannot be used" in capsys.readouterr().out
