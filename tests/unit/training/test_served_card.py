"""A head's model card after `toolkit train --deploy`: what was measured of it where it serves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from reports import example, verdict

from toolkit.api.outside import Outside
from toolkit.api.served_card import served_section, with_served, write_served
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Progress, Silent
from toolkit.loading import load
from toolkit.measure.measurement import ArmSpeedup
from toolkit.measure.report import BenchReport
from toolkit.recipe.content import manifest

MODELS = Path(__file__).parents[3] / "recipes" / "tiny" / "models"
CARD = "# Draft head\n\nTrained on our chats.\n"
RECIPE = f"""\
name: my-head
target: {{model: {MODELS}/target}}
training: {{data: [./chats.jsonl]}}
speculation: {{method: p-eagle, model: HEAD, num_speculative_tokens: 7}}
engine: {{version: 0.32.0, args: {{dtype: float32}}}}
platform: {{name: local}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "my-head.yaml"
    path.write_text(RECIPE.replace("HEAD", "./head"))
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "README.md").write_text(CARD)
    (tmp_path / "head" / "model.safetensors").write_bytes(b"weights")
    return path


def run_of(recipe: Path) -> TrainingRun:
    return TrainingRun(str(recipe), "local", "my-head-1", "trained", "a head", card=CARD)


def report(*against: str) -> BenchReport:
    """The example, at one load, with the intervals of its acceptance; and its ratio to other arms."""
    made = example()
    arms = [
        replace(
            arm, acceptance_length_low=arm.acceptance_length - 0.25, acceptance_length_high=arm.acceptance_length + 0.5
        )
        if arm.acceptance_length
        else arm
        for arm in made.arms
        if arm.concurrency == 1
    ]
    between = tuple(ArmSpeedup("structured", 1, "p-eagle", other, 1.31, 1.2, 1.43) for other in against)
    return replace(made, arms=tuple(arms), between_arms=between)


def test_the_card_has_acceptance_and_speedup_with_intervals_and_what_they_were_measured_with(recipe: Path) -> None:
    section = served_section(load(recipe), report())
    assert "| structured | 1 | p-eagle | 5.01 (4.76-5.51) | 2.31x (2.19-2.45) |" in section.splitlines()
    for known in ("vllm 0.32.0", "float32", "CPU cores", "p-eagle with\nnum_speculative_tokens 7", "toolkit 0."):
        assert known in section


def test_it_has_the_comparison_with_another_arm(recipe: Path) -> None:
    section = served_section(load(recipe), report("tiny-eagle3"))
    assert section.endswith(
        "\n- structured, one request at a time: p-eagle is 1.31x (1.20-1.43) as fast as tiny-eagle3.\n"
    )


def test_answers_of_another_model_are_no_speedup(recipe: Path) -> None:
    wrong = verdict("lossless", False, "3 answers differ")
    section = served_section(load(recipe), replace(report("tiny-eagle3"), verdicts=(wrong,)))
    assert "Not lossless: answers differ from the target model's own. 3 answers differ" in section
    assert "2.31x" not in section
    assert "1.31x" not in section


def test_a_card_that_has_the_section_gets_the_new_one_in_its_place() -> None:
    once = with_served(CARD, "## Served\n\nold\n")
    more = f"{once}\n## License\n\nOurs.\n"
    assert with_served(more, "## Served\n\nnew\n") == f"{CARD}\n## Served\n\nnew\n\n## License\n\nOurs.\n"
    assert with_served(once, "## Served\n\nnew\n") == f"{CARD}\n## Served\n\nnew\n"


def test_a_card_that_says_more_is_no_other_head_to_deploy(recipe: Path) -> None:
    head = recipe.parent / "head"
    before = manifest(head)
    assert write_served(run_of(recipe), report()) == str(head / "README.md")
    assert (head / "README.md").read_text().startswith(f"{CARD}\n## Served\n")
    assert manifest(head) == before


@dataclass
class Bucket:
    """A platform that keeps what is put into S3."""

    put: dict[str, dict[str, str]] = field(default_factory=dict)

    def put_head(self, folder: Path, address: str, progress: Progress) -> None:
        self.put[address] = {path.name: path.read_text() for path in folder.iterdir()}


def test_of_a_head_in_s3_the_card_alone_is_written_again(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace("HEAD", "s3://ours/head/").replace("local", "sagemaker, role: create"))
    bucket: Any = Bucket()
    assert (
        write_served(run_of(recipe), report(), _outside=Outside(open_trainer=lambda *_: bucket), progress=Silent())
        == "s3://ours/head/README.md"
    )
    ((address, files),) = bucket.put.items()
    assert address.rstrip("/") == "s3://ours/head"
    assert list(files) == ["README.md"]
    assert files["README.md"].startswith(f"{CARD}\n## Served\n")
