"""`toolkit train` on this machine: a process that is interrupted, killed, called twice, and heads that do not fit."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import Interrupting, Told

import toolkit
from toolkit.api import training
from toolkit.api.checking import check
from toolkit.api.outside import Outside
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Silent
from toolkit.checks.run import require
from toolkit.cli import make_commands
from toolkit.cli.main import run
from toolkit.errors import PlatformError, RecipeError, TrainingJobFailed, UsageError
from toolkit.home import home
from toolkit.loading import load
from toolkit.platforms.local.trainer import LocalTrainer
from toolkit.version import CPU_BUILDS, install_command

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "recipes" / "tiny" / "models"
PROGRAM = Path(__file__).with_name("scripted_job.py")
RECIPE = f"""\
name: my-head
target: {{model: {MODELS}/target}}
training: {{data: [./chats.jsonl], layers: 2, depth: 10, max_length: 1024, steps: 3}}
speculation: {{method: p-eagle, model: ./made/head, num_speculative_tokens: 7}}
engine: {{version: 0.32.0, max_model_len: 1024, max_num_seqs: 16, max_num_batched_tokens: 2048}}
platform: {{name: local}}
"""


@dataclass
class Desk:
    """A recipe, and jobs that go as `script` says."""

    recipe: Path
    jobs: Path

    @property
    def head(self) -> Path:
        return self.recipe.parent / "made" / "head"

    def script(self, head: Path = MODELS / "p-eagle", **more: Any) -> None:
        self.jobs.mkdir(parents=True, exist_ok=True)
        (self.jobs / "script.json").write_text(json.dumps({"head": str(head), "steps": 3, **more}))

    def trainer(self) -> LocalTrainer:
        return LocalTrainer(self.jobs, (sys.executable, str(PROGRAM)), poll_seconds=0.02)

    def train(self, trainer: LocalTrainer | None = None, **more: Any) -> TrainingRun:
        outside = Outside(open_trainer=lambda *_: trainer or self.trainer())
        return training.train(self.recipe, _outside=outside, **{"progress": Silent(), **more})

    def is_waiting(self) -> bool:
        """Whether the job is at the step at which it waits."""
        return any(self.jobs.glob("*/waits"))

    def log(self) -> str:
        (found,) = self.jobs.glob("*/log.txt")
        return found.read_text()


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    (tmp_path / "chats.jsonl").write_text('{"prompt": "Count to nine."}\n')
    recipe = tmp_path / "my-head.yaml"
    recipe.write_text(RECIPE)
    made = Desk(recipe, tmp_path / "jobs")
    made.script()
    return made


def test_a_head_is_trained_checked_and_put_where_the_recipe_names_it(desk: Desk) -> None:
    told = Told()
    run = desk.train(progress=told)
    assert (run.status, run.head) == ("trained", str(desk.head))
    assert run.metrics == {"held_out_loss": 1.25, "accuracy": [0.9, 0.5]}
    assert (desk.head / "model.safetensors").read_bytes() == (MODELS / "p-eagle" / "model.safetensors").read_bytes()
    assert told.stages == [
        "check",
        "plan",
        f"create TrainingJob {run.job}",
        "train",
        "fetch the head",
        "check the head",
    ]
    assert f"{run.job}: train 3/3, loss 0.667, right by depth 90% 50%" in told.said
    assert "held out loss" in repr(run)
    assert check(desk.recipe).findings == ()


def test_a_job_and_its_record_are_their_owners_alone_and_the_head_is_as_any_file_of_the_user(desk: Desk) -> None:
    desk.script()
    kept = set(desk.jobs.rglob("*"))
    before = os.umask(0o022)
    try:
        desk.train()
    finally:
        os.umask(before)
    made = [path for top in (desk.jobs, home()) for path in top.rglob("*") if path not in kept]
    assert {"job.json", "log.txt", "model.safetensors"} <= {path.name for path in made}
    assert [path for path in made if path.is_file() and path.stat().st_mode & 0o077] == []
    assert (desk.head / "config.json").stat().st_mode & 0o777 == 0o644


def test_without_the_extra_the_command_that_installs_it_is_named(desk: Desk) -> None:
    trainer = replace(desk.trainer(), packages=("torch", "not_installed"))
    with pytest.raises(
        UsageError, match=r"training on this machine needs packages .* installed: not_installed"
    ) as error:
        desk.train(trainer=trainer)
    assert error.value.hint == f"Run: {install_command('train')}"
    assert error.value.hint.endswith(f"'peagle-toolkit[train]' {CPU_BUILDS}"), "of the PyTorch that is installed here"
    assert not any(desk.jobs.glob("*/log.txt"))


def test_a_job_has_completed_when_its_log_ended(desk: Desk) -> None:
    trainer = desk.trainer()
    job = trainer.training_job(desk.train(trainer=trainer).job)
    (log,) = desk.jobs.glob("*/log.txt")
    assert (job.status, job.entered) == ("Completed", log.stat().st_mtime)
    assert job.entered > job.began


def test_called_twice_it_does_nothing(desk: Desk) -> None:
    first, again = desk.train(), desk.train()
    assert (again.job, again.status, again.metrics) == (first.job, "reused", first.metrics)


def test_other_data_is_another_job(desk: Desk) -> None:
    before = toolkit.train_plan(desk.recipe).actions[0].name
    (desk.recipe.parent / "chats.jsonl").write_text('{"prompt": "Count to ten."}\n')
    assert toolkit.train_plan(desk.recipe).actions[0].name != before


def test_interrupted_it_saves_a_checkpoint_and_goes_on_from_it(desk: Desk) -> None:
    desk.script(waits_at=2)
    told = Interrupting(desk.is_waiting)
    with pytest.raises(KeyboardInterrupt):
        desk.train(progress=told)
    assert f"goes on from its last checkpoint. Go on: toolkit train {desk.recipe}" in told.said[-1]
    assert not desk.head.exists()
    desk.script()
    assert desk.train().status == "trained"
    assert "starts at step 2" in desk.log()


def test_killed_it_goes_on(desk: Desk) -> None:
    desk.script(dies_at=2)
    with pytest.raises(TrainingJobFailed, match="killed, perhaps for want of memory"):
        desk.train()
    desk.script()
    assert desk.train().status == "trained"


def test_a_second_command_waits_for_the_job_of_the_first(desk: Desk) -> None:
    desk.script(waits_at=2)
    first = desk.trainer()
    running = desk.train(trainer=first, wait=False)
    deadline = time.monotonic() + 60
    while not desk.is_waiting():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    second = desk.trainer()
    with pytest.raises(KeyboardInterrupt):
        desk.train(trainer=second, progress=Interrupting(desk.is_waiting))
    assert desk.log().count("starts at step") == 1
    assert second.training_job(running.job).status == first.training_job(running.job).status == "Stopped"


def test_bad_data_ends_it_with_the_jobs_own_words(desk: Desk) -> None:
    desk.script(fails_at=1)
    with pytest.raises(TrainingJobFailed, match=r"conversations.jsonl:3 has no turn of the assistant") as raised:
        desk.train()
    assert f"cat {desk.jobs}" in raised.value.hint
    assert not desk.head.exists()


def test_a_head_that_fails_its_checks_is_put_nowhere(desk: Desk, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(MODELS / "p-eagle", wrong)
    config = json.loads((wrong / "config.json").read_text())
    (wrong / "config.json").write_text(json.dumps({**config, "target_hidden_size": 512}))
    desk.script(head=wrong)
    with pytest.raises(RecipeError, match="the trained head") as raised:
        desk.train()
    assert [finding.code for finding in raised.value.findings] == ["pair.hidden-size"]
    assert list(desk.head.parent.iterdir()) == []


def test_a_head_from_elsewhere_is_only_replaced_when_told_to(desk: Desk) -> None:
    shutil.copytree(MODELS / "eagle3", desk.head)
    with pytest.raises(UsageError, match="is not empty") as raised:
        desk.train()
    assert "--overwrite" in raised.value.hint
    assert not list(desk.jobs.glob("*/job.json"))
    desk.train(overwrite=True)
    assert (desk.head / "config.json").read_bytes() == (MODELS / "p-eagle" / "config.json").read_bytes()


def test_a_destination_that_cannot_be_written_loses_nothing(desk: Desk) -> None:
    desk.head.parent.write_text("a file, where a folder has to be: root may write into every folder")
    with pytest.raises(PlatformError, match="cannot be written"):
        desk.train()
    desk.head.parent.unlink()
    assert desk.train().status == "reused"
    assert (desk.head / "config.json").is_file()


def test_a_home_that_cannot_be_written_is_said_before_anything_runs(desk: Desk) -> None:
    shutil.rmtree(desk.jobs)
    desk.jobs.write_text("")
    with pytest.raises(PlatformError, match="cannot be written") as raised:
        desk.train()
    assert "TOOLKIT_HOME" in raised.value.hint


def test_before_it_is_trained_it_cannot_be_deployed(desk: Desk) -> None:
    (finding,) = [finding for finding in check(desk.recipe).findings if finding.code == "training.not-trained"]
    assert finding.hint == f"Run: toolkit train {desk.recipe}"
    with pytest.raises(RecipeError, match="there is no head in"):
        toolkit.plan(desk.recipe)


def test_a_dspark_head_that_is_not_there_yet_is_not_looked_for_in_the_target(desk: Desk) -> None:
    desk.recipe.write_text(RECIPE.replace("method: p-eagle", "method: dspark"))
    assert {finding.code for finding in check(desk.recipe).findings} == {"training.not-trained", "engine.runner"}


def test_an_arm_that_is_not_there_is_found_before_anything_is_trained(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["train", str(desk.recipe), "--deploy", "--arm", "tiny/eagle3"]) == 3
    assert "error: there is no endpoint tiny-eagle3" in capsys.readouterr().err
    assert not home().joinpath("training").exists()


def test_a_recipe_without_training_has_nothing_to_train() -> None:
    with pytest.raises(UsageError, match="has no `training`") as raised:
        toolkit.train("tiny/p-eagle", progress=Silent())
    assert "docs/training.md" in raised.value.hint


def test_data_in_s3_is_not_for_this_machine(desk: Desk) -> None:
    desk.recipe.write_text(RECIPE.replace("./chats.jsonl", "s3://bucket/capture/"))
    with pytest.raises(UsageError, match="takes no files in S3") as raised:
        desk.train()
    assert "--platform sagemaker" in raised.value.hint


@pytest.mark.parametrize(
    ("written", "instead", "code"),
    [
        ("depth: 10", "depth: 5", "training.depth"),
        ("./chats.jsonl", "./nothing.jsonl", "training.data"),
        ("max_length: 1024", "max_length: 4096", "training.max-length"),
        ("steps: 3", "steps: 3, draft_vocab_size: 99999", "training.draft-vocab-size"),
        ("steps: 3", "steps: 3, start_from: ./none", "training.start-from"),
        ("max_length: 1024", "max_length: 1024, partitions: 2000", "training.partitions"),
        ("./made/head", "somebody/head", "training.destination"),
        ("steps: 3", "steps: 3, epochs: 2", "recipe.bad-value"),
        ("steps: 3", "steps: 3, step: 3", "recipe.unknown-key"),
        ("method: p-eagle, model: ./made/head", "method: ngram", "training.method"),
        ("steps: 3", "steps: 3, max_wait_hours: 3", "recipe.bad-value"),
    ],
)
def test_what_cannot_work_is_found_before_anything_starts(desk: Desk, written: str, instead: str, code: str) -> None:
    desk.recipe.write_text(RECIPE.replace(written, instead))
    assert code in [finding.code for finding in check(desk.recipe).errors]


def test_a_length_that_nobody_wrote_is_no_error(desk: Desk) -> None:
    """The default is longer than the tiny target has positions for: the job cuts it."""
    desk.recipe.write_text(RECIPE.replace("max_length: 1024, ", ""))
    assert "training.max-length" not in [finding.code for finding in check(desk.recipe).findings]


@pytest.mark.parametrize(("size", "is_found"), [(1440, False), (1441, True)])
def test_a_head_may_draft_all_tokens_of_its_target_and_no_more(desk: Desk, size: int, is_found: bool) -> None:
    desk.recipe.write_text(RECIPE.replace("steps: 3", f"steps: 3, draft_vocab_size: {size}"))
    assert ("training.draft-vocab-size" in [finding.code for finding in check(desk.recipe).errors]) is is_found


@pytest.mark.parametrize(("depth", "warns"), [(7, True), (8, False)])
def test_a_head_that_drafts_in_parallel_is_trained_deeper_than_it_drafts(desk: Desk, depth: int, warns: bool) -> None:
    desk.recipe.write_text(RECIPE.replace("depth: 10", f"depth: {depth}"))
    assert ("training.depth" in [finding.code for finding in check(desk.recipe).findings]) == warns


@pytest.mark.parametrize(
    ("written", "instead", "message"),
    [
        ("layers: 2", "layers: 1", "has 2 layers, and `layers` is 1"),
        ("steps: 3", "steps: 3, draft_vocab_size: 99", "drafts 1440 tokens, and this one would draft 99"),
        ("method: p-eagle", "method: eagle3", "is for method `p-eagle`, and `method` is `eagle3`"),
    ],
)
def test_a_head_to_start_from_that_has_another_shape_is_named_with_both_values(
    desk: Desk, written: str, instead: str, message: str
) -> None:
    start = f"start_from: {MODELS}/p-eagle, steps: 3"
    desk.recipe.write_text(RECIPE.replace("steps: 3", start))
    assert not check(desk.recipe).errors
    desk.recipe.write_text(RECIPE.replace(written, instead).replace("steps: 3", start))
    (finding,) = [finding for finding in check(desk.recipe).errors if finding.code == "training.start-from"]
    assert message in finding.message


def test_a_head_to_start_from_in_speculators_form_is_converted_first(desk: Desk) -> None:
    head = shutil.copytree(MODELS / "p-eagle", desk.recipe.parent / "red-hats")
    config = json.loads((head / "config.json").read_text())
    (head / "config.json").write_text(json.dumps({**config, "speculators_model_type": "peagle"}))
    desk.recipe.write_text(RECIPE.replace("steps: 3", "start_from: ./red-hats, steps: 3"))
    (finding,) = [finding for finding in check(desk.recipe).errors if finding.code == "training.start-from"]
    assert "has the form that speculators writes" in finding.message
    assert "toolkit convert" in finding.hint


def test_the_norms_of_eagle_3_1_are_for_eagle3_and_for_an_engine_that_has_them(desk: Desk) -> None:
    for method, version, codes in (
        ("eagle3", "0.32.0", set()),
        ("eagle3", "0.21.0", {"engine.version"}),
        ("p-eagle", "0.32.0", {"training.norms"}),
        ("p-eagle", "0.21.0", {"training.norms"}),
    ):
        text = RECIPE.replace("steps: 3", "steps: 3, norms: true").replace("method: p-eagle", f"method: {method}")
        desk.recipe.write_text(text.replace("version: 0.32.0", f"version: {version}"))
        found = {finding.code for finding in check(desk.recipe).findings}
        assert found & {"engine.version", "training.norms"} == codes


def test_an_eagle3_head_does_not_go_on_as_one_of_eagle_3_1(desk: Desk) -> None:
    for norms in ("", ", norms: true"):
        start = f"layers: 1, steps: 3{norms}, start_from: {MODELS}/eagle3"
        text = RECIPE.replace("layers: 2, ", "").replace("steps: 3", start)
        desk.recipe.write_text(text.replace("method: p-eagle", "method: eagle3"))
        paths = [finding.path for finding in check(desk.recipe).errors if finding.code == "training.start-from"]
        assert paths == (["training.norms"] if norms else [])


@pytest.mark.parametrize("platform", ["local", "sagemaker"])
def test_more_hidden_states_than_the_disk_has_room_for_are_found_with_both_sizes(desk: Desk, platform: str) -> None:
    with (desk.recipe.parent / "chats.jsonl").open("r+") as stream:
        stream.truncate(10**12)  # without taking any room
    desk.recipe.write_text(RECIPE.replace("name: local", f"name: {platform}, role: create"))
    (finding,) = [finding for finding in check(desk.recipe).findings if finding.code == "training.disk"]
    assert re.search(r"up to [\d,]+ tokens take up to [\d,]+ GB \(an estimate\), and .* has [\d.]+ GB", finding.message)


LATER = RECIPE.replace(", layers: 2", ", head: ./made/head, layers: 2").replace(
    "{method: p-eagle, model: ./made/head, num_speculative_tokens: 7}", "{method: ngram, num_speculative_tokens: 5}"
)


def test_a_recipe_that_serves_without_a_head_drafts_with_it_once_it_is_trained(desk: Desk) -> None:
    desk.recipe.write_text(LATER)
    assert check(desk.recipe).ok
    told = Told()
    first = desk.train(progress=told)
    assert told.said[-1] == f"{desk.recipe} drafts with ./made/head now, in place of ngram"
    recipe = load(desk.recipe)
    assert (recipe.method, recipe.drafter and recipe.drafter.folder) == ("p-eagle", desk.head)
    assert recipe.speculation
    assert recipe.speculation.num_speculative_tokens == 7
    assert recipe.training
    assert recipe.training.head is None
    assert check(desk.recipe).findings == ()
    again = desk.train()
    assert (again.job, again.status) == (first.job, "reused")


def test_data_that_is_not_there_yet_is_asked_for_when_it_trains_and_not_when_it_serves(desk: Desk) -> None:
    desk.recipe.write_text(LATER)
    (desk.recipe.parent / "chats.jsonl").unlink()
    (found,) = check(desk.recipe).findings
    assert (found.code, found.severity) == ("training.data", "info")
    require(load(desk.recipe))
    with pytest.raises(RecipeError) as error:
        desk.train()
    (wrong,) = error.value.findings
    assert (wrong.path, wrong.line, wrong.severity) == ("training.data.0", 3, "error")
    assert '{"messages": [{"role": "user"' in wrong.hint


METHODS = ("p-eagle", "eagle3")


def compare(desk: Desk, lengths: tuple[float, float] = (4.0, 4.4), **more: Any) -> TrainingRun:
    """The shipped heads, of which EAGLE-3's is accepted a little more, and reads seven times as much."""
    reports = {
        method: {
            "acceptance_length": length,
            "acceptance_length_low": length - 0.2,
            "acceptance_length_high": length + 0.2,
            "held_out_conversations": 3,
            "by_source": [],
            "by_conversation": [[0, round(20 * length), 20], [1, round(10 * length), 10], [2, round(30 * length), 30]],
            "num_speculative_tokens": 7,
            "seconds": 60,
            "steps": 3,
            "ended": "",
        }
        for method, length in zip(METHODS, lengths, strict=True)
    }
    desk.script(heads={method: str(MODELS / method) for method in METHODS}, reports=reports)
    return desk.train(**{"compare": METHODS, **more})


def test_heads_that_are_compared_stay_in_their_job_until_one_is_taken(desk: Desk) -> None:
    before = desk.recipe.read_text()
    run = compare(desk)
    assert (run.status, run.head, run.best) == ("trained", "", "p-eagle")
    assert run.comparison
    assert [head.method for head in run.comparison.heads] == ["p-eagle", "eagle3"]
    assert not desk.head.parent.exists()
    assert desk.recipe.read_text() == before

    taken = compare(desk, take="best")
    assert (taken.status, taken.head, taken.job) == ("reused", str(desk.head), run.job)
    assert (desk.head / "model.safetensors").read_bytes() == (MODELS / "p-eagle" / "model.safetensors").read_bytes()
    assert desk.recipe.read_text() == before
    assert check(desk.recipe).findings == ()


def test_the_recipe_says_the_method_of_the_head_that_is_taken(desk: Desk) -> None:
    before = desk.recipe.read_text()
    run = compare(desk, take="eagle3")
    assert (run.best, run.head) == ("p-eagle", str(desk.head))
    assert (desk.head / "model.safetensors").read_bytes() == (MODELS / "eagle3" / "model.safetensors").read_bytes()
    assert desk.recipe.read_text() == before.replace("method: p-eagle", 'method: "eagle3"')
    assert check(desk.recipe).findings == ()


def test_the_best_is_not_taken_where_it_would_slow_the_target_down_unless_it_is_named(desk: Desk) -> None:
    with pytest.raises(UsageError, match="None is expected to be faster than the target alone") as raised:
        compare(desk, lengths=(1.0, 1.1), take="best")
    assert raised.value.hint.endswith("To take one all the same: --take p-eagle")
    assert not desk.head.exists()
    assert compare(desk, lengths=(1.0, 1.1), take="p-eagle").head == str(desk.head)


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("max_num_seqs: 16", "max_num_seqs: 16, args: {quantization: fp8}"),
        ("num_speculative_tokens: 7", "num_speculative_tokens: 7, quantization: fp8"),
    ],
)
def test_no_speed_is_expected_of_what_the_engine_quantizes_itself(desk: Desk, written: str, instead: str) -> None:
    desk.recipe.write_text(RECIPE.replace(written, instead))
    found = compare(desk).comparison
    assert found
    assert (found.pays, found.is_sure) == (None, False)


def test_a_target_that_the_package_knows_is_reckoned_with_without_a_lock(desk: Desk) -> None:
    desk.recipe.write_text(RECIPE.replace(f"{MODELS}/target", "Qwen/Qwen3-8B"))
    known = training._target_as_stored(load(desk.recipe))
    assert known
    assert known.hidden_size == 4096


@pytest.mark.parametrize(("lengths", "offered"), [((4.0, 4.4), True), ((1.0, 1.1), False)])
def test_only_a_head_that_pays_is_offered(
    desk: Desk, capsys: pytest.CaptureFixture[str], lengths: tuple[float, float], offered: bool
) -> None:
    """The command finds the job done that ran here."""
    desk.jobs = home() / "training"
    compare(desk, lengths=lengths)
    assert run(["train", str(desk.recipe), "--compare", ",".join(METHODS)]) == 0
    assert ("--take p-eagle" in "".join(capsys.readouterr())) is offered


def test_a_comparison_is_one_job_in_whatever_order_its_methods_are_written(desk: Desk) -> None:
    assert compare(desk).job == compare(desk, compare=tuple(reversed(METHODS))).job != desk.train().job


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compare": ("p-eagle",)}, "are not two or more methods to compare"),
        ({"compare": ("p-eagle", "medusa")}, "`p-eagle,medusa` are not two or more methods"),
        ({"compare": METHODS, "take": "dflash"}, "`dflash` is not among the heads that are compared"),
        ({"compare": ()}, "no methods are given, of two or more methods to compare"),
        ({"compare": METHODS, "take": ""}, "`` is not among the heads that are compared"),
        ({"take": "best"}, "`best` is not among the heads that are compared"),
    ],
)
def test_what_cannot_be_compared_or_taken_is_said_before_anything_runs(
    desk: Desk, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        desk.train(**options)
    assert not list(desk.jobs.glob("my-head-*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--compare", ","], "no methods are given"),
        (["--compare", ""], "no methods are given"),
        (["--compare", "p-eagle,eagle3", "--take", "dflash"], "`dflash` is not among the heads that are compared"),
        (["--take", "best"], "`best` is not among the heads that are compared"),
    ],
)
def test_no_plan_is_shown_of_what_cannot_be_compared_or_taken(
    desk: Desk, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["train", str(desk.recipe), "--dry-run", *options]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_the_plan_names_the_methods_that_are_compared(desk: Desk) -> None:
    assert "Trains a head of each: p-eagle, eagle3" in training.train_plan(desk.recipe, compare=METHODS).notes


def test_of_a_second_head_of_a_comparison_nothing_untrue_is_said(desk: Desk) -> None:
    compare(desk, take="best")
    with pytest.raises(UsageError, match=re.escape(f"{desk.head} is not empty, and does not hold the head of this")):
        compare(desk, take="eagle3")
    assert compare(desk, take="eagle3", overwrite=True).head == str(desk.head)


def test_a_temporary_folder_that_cannot_be_written_is_named(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(PlatformError, match=re.escape(f"{tmp_path / 'none'}/") + r".* cannot be written"):
        compare(desk)


def test_every_method_that_is_compared_is_checked_with_the_values_that_are_its_own(desk: Desk) -> None:
    """P-EAGLE's depth of 8 is enough for 7 tokens, and EAGLE-3's 7; for 8 the one is too few."""
    text = desk.recipe.read_text().replace(" layers: 2, depth: 10,", "")
    desk.recipe.write_text(text)
    (job,) = (one for one in training.train_plan(desk.recipe, compare=METHODS).actions)
    assert [(one["method"], one["layers"], one["depth"]) for one in job.request["Job"]["compare"]] == [
        ("p-eagle", 4, 8),
        ("eagle3", 1, 7),
    ]
    desk.recipe.write_text(text.replace("num_speculative_tokens: 7", "num_speculative_tokens: 8"))
    with pytest.raises(RecipeError) as caught:
        training.train_plan(desk.recipe, compare=METHODS)
    assert "a head trained to depth 7 cannot draft 8 tokens" in str(caught.value)


def test_the_command_says_which_to_take(desk: Desk) -> None:
    found = compare(desk)
    shown = make_commands._run_text(found)
    assert "method   tokens a step" in shown
    assert shown.splitlines()[-1].startswith("Take p-eagle: ")
    assert found.comparison
    assert found.to_dict()["comparison"]["best"] == "p-eagle"
