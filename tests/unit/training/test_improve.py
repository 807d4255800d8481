"""`toolkit improve` with scripted arms: which head is promoted, what is measured, and what stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tuned_arms import report_at

from toolkit.api.improvement import Steps, improve
from toolkit.api.training import TrainingRun
from toolkit.apply.progress import Silent
from toolkit.errors import PlatformError, UsageError
from toolkit.measure.report import BenchReport, Noise, Speedup
from toolkit.recipe.resolve import Recipe, load

MODELS = Path(__file__).parents[3] / "recipes" / "tiny" / "models"
RECIPE = f"""\
name: chat
target: {{model: {MODELS}/target}}
training: {{data: [s3://bucket/capture/chat/], depth: 10, max_length: 1024, held_out: 0.3}}
speculation: {{method: p-eagle, model: ./head, num_speculative_tokens: 7}}  # ours
engine: {{version: 0.32.0, max_model_len: 1024}}
platform: {{name: local}}
"""
QUESTIONS = [f"What is {number} times seven?" for number in range(20)]


def captured(prefix: str) -> Iterator[tuple[str, bytes]]:
    """What SageMaker writes: one record a line."""
    for number, question in enumerate(QUESTIONS):
        request = json.dumps({"messages": [{"role": "user", "content": question}]})
        body = {"data": request, "mode": "INPUT", "encoding": "JSON", "observedContentType": "application/json"}
        record = {"captureData": {"endpointInput": body}, "eventVersion": "0"}
        yield f"{prefix}{number}.jsonl", json.dumps(record).encode() + b"\n"


def report(ratio: float, width: float = 0.02, new: float = 4.0, old: float = 3.0, **more: Any) -> BenchReport:
    """The new head's speed over the old one's, and both acceptance lengths."""
    made = report_at(7)
    speedups = (Speedup("held-out", 1, "speculative", ratio, ratio - width, ratio + width),)
    arms = tuple(replace(arm, acceptance_length=old if arm.arm == "baseline" else new) for arm in made.arms)
    return replace(made, speedups=speedups, arms=arms, noise=Noise(1.0, 0.99, 1.01), **more)


@dataclass
class Road:
    """Remembers what was trained, deployed, measured and removed, in its order."""

    report: BenchReport
    done: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    started_from: str | None = None
    fails: bool = False

    @property
    def steps(self) -> Steps:
        return Steps(self.train, self.connect, self.deploy, self.measure, self.destroy)

    def train(self, recipe: Recipe, **_: Any) -> TrainingRun:
        assert recipe.training
        assert recipe.drafter
        self.done.append(f"train {recipe.name}")
        self.started_from = recipe.training.start_from
        return TrainingRun(str(recipe.path), "local", "job", "trained", str(recipe.drafter))

    def connect(self, recipe: Recipe, **_: Any) -> Any:
        self.done.append(f"connect {recipe.name}")
        return SimpleNamespace(platform=SimpleNamespace(read_objects=captured))

    def deploy(self, recipe: Any, **_: Any) -> Any:
        loaded = load(recipe)
        assert loaded.drafter
        self.done.append(f"deploy {loaded.name} with {loaded.drafter.name.partition('@')[0]}")
        if self.fails and loaded.name == "chat":
            raise PlatformError("no capacity")
        return loaded.name

    def measure(self, new: str, *, baseline: Any, workloads: list[str], **_: Any) -> BenchReport:
        self.done.append(f"measure {new}")
        lines = Path(workloads[0]).read_text().splitlines()
        self.prompts = [json.loads(line)["messages"][0]["content"] for line in lines]
        return self.report

    def destroy(self, recipe: Recipe, **_: Any) -> None:
        self.done.append(f"destroy {recipe.name}")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text("{}")
    path = tmp_path / "chat.yaml"
    path.write_text(RECIPE)
    return path


TRIED = ["connect chat", "train chat-next", "deploy chat-next with head", "measure chat-next", "destroy chat-next"]


def test_a_better_head_is_named_in_the_recipe_and_deployed(recipe: Path) -> None:
    road = Road(report(1.2))
    found = improve(recipe, progress=Silent(), steps=road.steps)
    assert found
    assert (found.acceptance, found.speedup) == ((3.0, 4.0), (1.2, 1.18, 1.22))
    assert road.done == [*TRIED, "deploy chat with head"]
    assert road.started_from == str(recipe.parent / "head")
    drafter = load(recipe).drafter
    assert drafter
    assert str(drafter) == found.head != str(recipe.parent / "head")
    assert "# ours" in recipe.read_text()


def test_it_is_measured_on_questions_that_are_held_out(recipe: Path) -> None:
    road = Road(report(1.2))
    improve(recipe, progress=Silent(), steps=road.steps)
    assert 0 < len(road.prompts) < len(QUESTIONS)
    assert set(road.prompts) < set(QUESTIONS)


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (report(1.005), "not surely faster"),
        (report(1.2, width=0.3), "not surely faster"),
        (report(0.8), "surely slower"),
        (report(1.2, new=2.5), "fewer of its drafts"),
        (report(1.2, complete=False), "not finished"),
    ],
)
def test_else_all_stays_as_it_was(recipe: Path, measured: BenchReport, reason: str) -> None:
    road = Road(measured)
    found = improve(recipe, progress=Silent(), steps=road.steps)
    assert not found
    assert reason in found.reason
    assert road.done == TRIED
    assert recipe.read_text() == RECIPE


def test_without_promotion_it_only_measures(recipe: Path) -> None:
    road = Road(report(1.2))
    found = improve(recipe, promote=False, progress=Silent(), steps=road.steps)
    assert (found.promoted, road.done) == (False, TRIED)
    assert recipe.read_text() == RECIPE


def test_a_deployment_that_fails_leaves_the_recipe_as_it_was(recipe: Path) -> None:
    road = Road(report(1.2), fails=True)
    with pytest.raises(PlatformError, match="no capacity"):
        improve(recipe, progress=Silent(), steps=road.steps)
    assert recipe.read_text() == RECIPE


def test_a_measurement_that_fails_removes_what_it_deployed(recipe: Path) -> None:
    class Broken(Road):
        def measure(self, new: str, **_: Any) -> BenchReport:
            raise PlatformError("the endpoint has gone")

    road = Broken(report(1.2))
    with pytest.raises(PlatformError, match="has gone"):
        improve(recipe, progress=Silent(), steps=road.steps)
    assert road.done[-1] == "destroy chat-next"


def test_a_head_elsewhere_cannot_be_continued_beside_it(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace("./head", "somebody/head"))
    with pytest.raises(UsageError, match="no head in a folder"):
        improve(recipe, progress=Silent(), steps=Road(report(1.2)).steps)
