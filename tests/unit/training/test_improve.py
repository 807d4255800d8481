"""`toolkit improve` with scripted arms: which head is promoted, what is measured, and what stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tuned_arms import report_at

from toolkit.api.context import record_of
from toolkit.api.endpoint import Endpoint
from toolkit.api.improvement import improve
from toolkit.api.steps import Steps
from toolkit.api.training_run import TrainingRun
from toolkit.apply.progress import Silent
from toolkit.apply.waiter import EndpointStatus
from toolkit.errors import PlatformError, UsageError
from toolkit.home import home
from toolkit.loading import load, on_platform
from toolkit.measure.measurement import Gain, Interval
from toolkit.measure.report import BenchReport
from toolkit.planning.plan import Action, Plan
from toolkit.planning.resources import Account
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import SpeculationSection
from toolkit.recipe.training_schema import TrainingSection
from toolkit.training.conversations import conversation_of, held_out

MODELS = Path(__file__).parents[3] / "recipes" / "tiny" / "models"
RECIPE = f"""\
name: chat
target: {{model: {MODELS}/target}}
training: {{data: [s3://bucket/capture/chat/], depth: 10, max_length: 1024, held_out: 0.3}}
speculation: {{method: p-eagle, model: ./head, num_speculative_tokens: 7}}  # ours
engine: {{version: 0.32.0, max_model_len: 1024}}
platform: {{name: local}}
"""
TRAFFIC = "held-out traffic"
QUESTIONS = [f"What is {number} times seven?" for number in range(20)]


def captured(prefix: str, questions: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """What SageMaker writes: one record a line."""
    for number, question in enumerate(questions):
        request = json.dumps({"messages": [{"role": "user", "content": question}]})
        body = {"data": request, "mode": "INPUT", "encoding": "JSON", "observedContentType": "application/json"}
        record = {"captureData": {"endpointInput": body}, "eventVersion": "0"}
        yield f"{prefix}{number}.jsonl", json.dumps(record).encode() + b"\n"


def report(decoding: float, acceptance: float = 1.3, on_general: float | None = 1.0, **more: Any) -> BenchReport:
    """The new head's decoding and acceptance over the old one's, and its acceptance on what the recipe measures.

    Each is known to 2 %.
    """

    def gain(workload: str, *ratios: float) -> Gain:
        return Gain(workload, 1, "speculative", *(Interval(ratio, ratio * 0.98, ratio * 1.02) for ratio in ratios))

    made = report_at(7, {TRAFFIC: 0.9, "general": 0.5})
    lengths = {(TRAFFIC, "baseline"): 3.0, (TRAFFIC, "speculative"): round(3.0 * acceptance, 2)}
    arms = tuple(replace(arm, acceptance_length=lengths.get((arm.workload, arm.arm), 1.0)) for arm in made.arms)
    own = [gain("general", 1.0, on_general)] if on_general else []
    gains = (gain(TRAFFIC, decoding, acceptance), *own)
    return replace(made, gains=gains, arms=arms, noise=Interval(1.0, 0.99, 1.01), **more)


@dataclass
class Running:
    """The platform: what it runs is a count of deployments."""

    traffic: str | None = None
    deployed: int = 0
    name: str = "local"
    questions: list[str] = field(default_factory=QUESTIONS.copy)

    scope: str = "prod/toolkit"

    def account(self) -> Account:
        return Account("", "", scope=self.scope)

    def captured_traffic(self, endpoint: str) -> str | None:
        return self.traffic

    def read_objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        return captured(prefix, self.questions)

    def status(self, endpoint: str) -> EndpointStatus:
        return EndpointStatus(endpoint, "InService", f"{endpoint}-{self.deployed}")


@dataclass
class Road:
    """Remembers what was trained, deployed, measured and removed, in its order."""

    report: BenchReport
    done: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    workloads: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    trained: TrainingSection | None = None
    fails: str = ""
    platform: Running = field(default_factory=Running)
    platforms: set[str] = field(default_factory=set)

    @property
    def steps(self) -> Steps:
        return Steps(self.train, self.connect, self.deploy, self.measure, self.destroy)

    def endpoint(self, name: str) -> Endpoint:
        platform: Any = self.platform
        return Endpoint(name, platform, destroyer=lambda name: pytest.fail(name))

    def train(self, recipe: Recipe, *, again: str, **_: Any) -> TrainingRun:
        assert again == "toolkit improve chat"  # and not `toolkit train`, which would train another head
        self.done.append(f"train {recipe.name}")
        self.trained = recipe.training
        self.heads.append(str(recipe.drafter))
        if self.fails == "train":
            raise PlatformError("the process was killed")
        return TrainingRun(str(recipe.path), "local", "job", "trained", str(recipe.drafter))

    def connect(self, what: Recipe | str, **_: Any) -> Endpoint:
        name = what if isinstance(what, str) else what.name
        self.done.append(f"connect {name}")
        return self.endpoint(name)

    def deploy(self, recipe: Any, platform: str | None = None, **_: Any) -> Endpoint:
        loaded = on_platform(load(recipe), platform)
        self.platforms.add(loaded.platform.name)
        tried = " beside ".join(filter(None, [which(loaded.candidate), which(loaded.speculation)]))
        self.done.append(f"deploy {loaded.name} with {tried}")
        if self.fails == self.done[-1]:
            raise PlatformError("no capacity")
        self.platform.deployed += 1
        return self.endpoint(loaded.name)

    def measure(self, new: Endpoint, *, baseline: Endpoint, **_: Any) -> BenchReport:
        self.done.append(f"measure {new.address} against {baseline.address}")
        self.workloads = [workload.name for workload in new.workloads]
        self.prompts = [prompt.text for workload in new.workloads[:1] for prompt in workload.prompts]
        if self.fails == "measure":
            raise PlatformError("the endpoint has gone")
        return self.report

    def destroy(self, recipe: Recipe, **_: Any) -> None:
        self.done.append(f"destroy {recipe.name}")


def which(speculation: SpeculationSection | None) -> str:
    """The name of a head's folder: that of a new one has a digest."""
    name = speculation.drafter.name if speculation and speculation.drafter else ""
    return "new" if "@" in name else name


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text("{}")
    path = tmp_path / "chat.yaml"
    path.write_text(RECIPE)
    return path


TRIED = [
    "connect chat",
    "train chat-next",
    "deploy chat with new beside head",
    "measure chat@candidate against chat@AllTraffic",
]
BACK = "deploy chat with head"


def test_a_better_head_is_named_in_the_recipe_and_deployed(recipe: Path) -> None:
    road = Road(report(1.2))
    found = improve(recipe, progress=Silent(), _steps=road.steps)
    assert found
    assert (found.tried, found.acceptance_lengths) == ("variant", (3.0, 3.9))
    assert found.decoding
    assert found.decoding.ratio == 1.2
    assert road.done == [*TRIED, "deploy chat with new"]
    assert road.trained
    assert road.trained.start_from == str(recipe.parent / "head")
    drafter = load(recipe).drafter
    assert drafter
    assert str(drafter) == found.head != str(recipe.parent / "head")
    assert "# ours" in recipe.read_text()


def test_it_is_measured_on_questions_that_are_held_out(recipe: Path) -> None:
    road = Road(report(1.2))
    improve(recipe, progress=Silent(), _steps=road.steps)
    assert road.trained
    found = [conversation_of({"prompt": question}, "here") for question in QUESTIONS]
    digests = {one.question: one.messages[0]["content"] for one in found if one}
    aside = held_out(digests, road.trained.held_out, road.trained.seed)  # what the job keeps out of training
    assert sorted(road.prompts) == sorted(digests[digest] for digest in aside)
    assert 0 < len(road.prompts) < len(QUESTIONS)


def test_of_a_chat_its_last_question_is_asked_after_all_that_was_said_before(recipe: Path) -> None:
    """As it was captured: each request of a chat has those before it, and their answers."""
    said = [("user", "Name a river."), ("assistant", "The Rhine."), ("user", "And a lake?"), ("assistant", "Como.")]
    messages = [{"role": role, "content": content} for role, content in said]
    chats = [[{"role": "user", "content": question}, *messages[1:]] for question in QUESTIONS]
    rows = [json.dumps({"messages": chat[:end]}) + "\n" for chat in chats for end in (2, 4)]
    (recipe.parent / "chats.jsonl").write_text("".join(rows))
    recipe.write_text(RECIPE.replace("s3://bucket/capture/chat/", "./chats.jsonl"))
    road = Road(report(1.2))
    improve(recipe, progress=Silent(), _steps=road.steps)
    assert set(road.prompts) == {"And a lake?"}


def test_answers_of_the_data_are_not_asked(recipe: Path) -> None:
    """With `keep` the job learns from conversations with an answer only, so only those are held out."""
    recipe.write_text(RECIPE.replace("depth: 10", "depth: 10, responses: keep"))
    with pytest.raises(UsageError, match="the data asks 0 different questions"):
        improve(recipe, progress=Silent(), _steps=Road(report(1.2)).steps)


@pytest.mark.parametrize(
    ("measured", "reason"),
    [
        (report(1.005), "not surely shorter"),
        (report(0.8), "surely slower"),
        (report(1.2, 1.01), "acceptance length is not surely higher"),
        (report(1.2, 0.9), "fewer of its drafts"),
        (report(1.2, complete=False), "not finished"),
        (report(1.2, on_general=0.9), "on the workload general its acceptance length is 0.90 times (0.88-0.92) that"),
        (report(1.2, on_general=None), "too few answers to the workload general could be compared"),
    ],
)
def test_else_all_is_as_it_was(recipe: Path, measured: BenchReport, reason: str) -> None:
    road = Road(measured)
    found = improve(recipe, progress=Silent(), _steps=road.steps)
    assert not found
    assert reason in found.reason
    assert road.done == [*TRIED, BACK]
    assert recipe.read_text() == RECIPE


def test_the_endpoints_own_workloads_are_measured_too_and_shown(recipe: Path) -> None:
    road = Road(report(1.2))
    found = improve(recipe, progress=Silent(), _steps=road.steps)
    assert road.workloads == [TRAFFIC, "general"]
    assert [gain.workload for gain in found.on_workloads] == ["general"]
    assert "on general: acceptance length 1.00 (0.98-1.02) times" in repr(found)
    assert found.to_dict()["on_workloads"][0]["acceptance"]["ratio"] == 1.0


def test_without_promotion_it_only_measures(recipe: Path) -> None:
    road = Road(report(1.2))
    found = improve(recipe, promote=False, progress=Silent(), _steps=road.steps)
    assert (found.promoted, road.done) == (False, [*TRIED, BACK])
    assert recipe.read_text() == RECIPE


@pytest.mark.parametrize("fails", ["deploy chat with new beside head", "measure"])
def test_a_trial_that_fails_leaves_the_endpoint_as_it_was(recipe: Path, fails: str) -> None:
    road = Road(report(1.2), fails=fails)
    with pytest.raises(PlatformError, match=r"no capacity|has gone"):
        improve(recipe, progress=Silent(), _steps=road.steps)
    assert road.done[-1] == BACK
    assert recipe.read_text() == RECIPE


def test_a_promotion_that_fails_is_taken_back(recipe: Path) -> None:
    road = Road(report(1.2), fails="deploy chat with new")
    with pytest.raises(PlatformError, match="no capacity"):
        improve(recipe, progress=Silent(), _steps=road.steps)
    assert road.done == [*TRIED, "deploy chat with new", BACK]
    assert recipe.read_text() == RECIPE


@pytest.mark.parametrize("fails", ["train", "deploy chat with new beside head", "measure"])
def test_what_was_interrupted_goes_on_with_its_head_although_more_is_captured(recipe: Path, fails: str) -> None:
    road = Road(report(0.8), fails=fails)
    for _ in range(2):
        with pytest.raises(PlatformError):
            improve(recipe, progress=Silent(), _steps=road.steps)
        road.platform.questions += [f"Who wrote book {len(road.platform.questions)}?"] * 2
    road.fails = ""
    improve(recipe, progress=Silent(), _steps=road.steps)
    assert len(set(road.heads)) == 1
    improve(recipe, progress=Silent(), _steps=road.steps)  # it was measured: now what came since counts
    assert len(set(road.heads)) == 2


@pytest.mark.parametrize("content", ["", "{", '{"head": 1}'])
def test_a_damaged_memory_of_the_last_call_is_as_none(recipe: Path, content: str) -> None:
    memory = home() / "improvements" / "chat.json"
    memory.parent.mkdir(parents=True)
    memory.write_text(content)
    assert improve(recipe, progress=Silent(), _steps=Road(report(1.2)).steps)
    assert json.loads(memory.read_text())["measured"] is True


def test_ctrl_c_ends_the_trial(recipe: Path) -> None:
    road = Road(report(1.2, complete=False, interrupted=True))
    with pytest.raises(KeyboardInterrupt):
        improve(recipe, progress=Silent(), _steps=road.steps)
    assert road.done == [*TRIED, BACK]


def test_what_somebody_else_deploys_meanwhile_stays(recipe: Path) -> None:
    class Busy(Road):
        def measure(self, new: Endpoint, **known: Any) -> BenchReport:
            self.platform.deployed += 1
            return super().measure(new, **known)

    road = Busy(report(1.2))
    found = improve(recipe, progress=Silent(), _steps=road.steps)
    assert found.reason == "somebody else has deployed to the endpoint meanwhile"
    assert road.done == TRIED
    assert recipe.read_text() == RECIPE


def test_the_endpoints_captured_requests_are_what_it_learns_from(recipe: Path) -> None:
    """Whatever the head before was trained on, or without any `training`."""
    training = next(line for line in RECIPE.splitlines(keepends=True) if line.startswith("training"))
    recipe.write_text(RECIPE.replace(training, ""))
    road = Road(report(0.8), platform=Running("s3://bucket/other/chat/"))
    improve(recipe, progress=Silent(), _steps=road.steps)
    assert road.trained
    assert road.trained.data == ["s3://bucket/other/chat/"]
    with pytest.raises(UsageError, match=r"chat captures no requests, and .* names no traffic"):
        improve(recipe, progress=Silent(), _steps=Road(report(1.2)).steps)


def test_an_endpoint_that_takes_no_variant_gets_one_beside_it(recipe: Path) -> None:
    text = f"{RECIPE}rollout: {{speculative_percent: 50}}\n"
    recipe.write_text(text)
    road = Road(report(1.2))
    found = improve(recipe, progress=Silent(), _steps=road.steps)
    assert found.tried == "endpoint"
    trial = ["deploy chat-next with new", "measure chat-next against chat"]
    assert road.done == [*TRIED[:2], *trial, "deploy chat with new", "destroy chat-next"]


def test_an_endpoint_is_improved_on_the_platform_that_has_it(recipe: Path) -> None:
    """Which need not be the one that its recipe names."""
    recipe.write_text(RECIPE.replace("name: local", "name: sagemaker, instance_types: [ml.g6.xlarge]"))
    road = Road(report(1.2))
    assert improve(recipe, platform="local", progress=Silent(), _steps=road.steps)
    assert road.platforms == {"local"}


def test_the_recipe_of_a_name_is_the_one_that_was_deployed(recipe: Path) -> None:
    road = Road(report(0.8))
    with pytest.raises(UsageError, match="no recipe of an endpoint chat is recorded"):
        improve("chat", progress=Silent(), _steps=road.steps)
    action = Action("Endpoint", "chat", "create", "", {})
    plan = Plan(str(recipe), "local", ("chat",), (action,), 0.0, "digest")
    other = recipe.with_name("other.yaml")
    other.write_text(recipe.read_text())
    elsewhere = record_of("chat", "local", Account("", "", scope="prod/others"), Silent())
    elsewhere.write(replace(plan, recipe=str(other)), action, "done")
    with pytest.raises(UsageError, match="is recorded there: it is recorded, but at local/prod/others"):
        improve("chat", progress=Silent(), _steps=road.steps)
    there = Account("", "", scope="prod/toolkit")
    record_of("chat", "local", there, Silent()).write(plan, action, "done")
    elsewhere.write(replace(plan, recipe=str(other)), action, "done")
    found = improve("chat", progress=Silent(), _steps=road.steps)
    assert found.recipe == str(recipe), "and not that of an endpoint of the same name elsewhere"
    assert road.done == ["connect chat"] * 3 + [*TRIED, BACK]


def test_a_head_elsewhere_cannot_be_continued_beside_it(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace("./head", "somebody/head"))
    with pytest.raises(UsageError, match="no head in a folder"):
        improve(recipe, progress=Silent(), _steps=Road(report(1.2)).steps)


def test_a_recipe_whose_head_is_not_trained_yet_is_told_to_train_it(recipe: Path) -> None:
    later = RECIPE.replace("training: {", "training: {head: ./new, ").replace("./head", "somebody/head")
    recipe.write_text(later)
    with pytest.raises(UsageError) as error:
        improve(recipe, progress=Silent(), _steps=Road(report(1.2)).steps)
    assert error.value.hint == f"Train its first one: toolkit train {recipe}"


def test_other_settings_of_the_training_are_something_new(recipe: Path) -> None:
    """After a promotion the same traffic teaches nothing more, unless `training` says another way to learn it."""

    class Making(Road):
        def train(self, recipe: Recipe, *, again: str, **more: Any) -> TrainingRun:
            run = super().train(recipe, again=again, **more)
            Path(run.head).mkdir(exist_ok=True)
            (Path(run.head) / "config.json").write_text("{}")
            return run

    road = Making(report(1.2))
    assert improve(recipe, progress=Silent(), _steps=road.steps)
    assert "nothing new" in improve(recipe, progress=Silent(), _steps=road.steps).reason
    assert len(road.heads) == 1
    recipe.write_text(recipe.read_text().replace("depth: 10", "depth: 10, learning_rate: 0.001"))
    assert improve(recipe, progress=Silent(), _steps=road.steps)
    assert len(set(road.heads)) == 2
