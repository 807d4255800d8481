"""`toolkit study` on Trainium, on SageMaker's stand-in: what is compiled, what serves meanwhile, and what stays."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from compilable import compilable
from filelock import FileLock
from standin import StandIn
from standin_user import User
from studied import studied

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import Steps
from toolkit.api.studying import are_there, price
from toolkit.apply.progress import Silent
from toolkit.errors import ApplyError, InvocationError, StalePlanError, UsageError
from toolkit.home import home
from toolkit.loading import load
from toolkit.measure.report import BenchReport

ARMS = {"sd", "sd-baseline"}


@pytest.fixture
def recipe(standin: StandIn, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return compilable(standin, host, tmp_path, monkeypatch)


@dataclass
class Bench:
    """Measures by a law, keeps results as the real one does, and remembers what it was asked and what served."""

    ends: list[BaseException] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    served: list[set[str]] = field(default_factory=list)

    def __call__(self, endpoint: Endpoint, *, journal: Path, **asked: Any) -> BenchReport:
        self.asked.append({"journal": journal, "found": journal.exists(), **asked})
        self.served.append(names())
        assert endpoint.twin
        assert endpoint.status().status == endpoint.twin.status().status == "InService"
        journal.write_text("{}")
        if self.ends:
            raise self.ends.pop()
        return studied()


class Said(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def names() -> set[str]:
    return {item.name for item in toolkit.endpoints(platform="sagemaker")}


def study(recipe: Path, bench: Bench, **options: Any) -> bool:
    return bool(toolkit.study(recipe, _steps=Steps(measure=bench), progress=Silent(), **options))


def test_both_arms_are_compiled_serve_while_they_are_measured_and_go(recipe: Path, standin: StandIn) -> None:
    bench = Bench()

    assert study(recipe, bench)

    assert len(standin.training.started) == 2
    assert bench.served == [ARMS]
    assert (bench.asked[0]["workloads"], bench.asked[0]["concurrency"]) == (("study",), (4,))
    assert names() == set()
    assert not any(" sd" in item for item in standin.leftovers() if not item.startswith("logs group"))


@pytest.mark.parametrize("why", [KeyboardInterrupt(), InvocationError("the endpoint died")])
def test_what_was_interrupted_is_removed_and_a_repeat_carries_on(
    recipe: Path, standin: StandIn, why: BaseException
) -> None:
    bench = Bench(ends=[why])
    with pytest.raises(type(why)):
        study(recipe, bench)
    assert names() == set()

    assert study(recipe, bench)

    assert len(standin.training.started) == 2, "what was compiled is used again"
    assert [one["found"] for one in bench.asked] == [False, True], "results were kept"
    assert names() == set()


def test_a_study_that_ended_is_measured_anew(recipe: Path) -> None:
    bench = Bench()
    study(recipe, bench)
    study(recipe, bench)
    assert [one["found"] for one in bench.asked] == [False, False]


def test_results_of_another_k_are_not_carried_on(recipe: Path) -> None:
    bench = Bench(ends=[KeyboardInterrupt()])
    with pytest.raises(KeyboardInterrupt):
        study(recipe, bench)
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 5", "num_speculative_tokens: 7"))

    study(recipe, bench)

    assert [one["found"] for one in bench.asked] == [False, False]


def test_an_endpoint_in_service_is_measured_as_it_is_and_stays(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, baseline=True, progress=Silent())
    toolkit.deploy(recipe, baseline=True, progress=Silent())
    assert price(load(recipe)) is None, "nothing is started"
    standin.calls.clear()
    bench = Bench(ends=[KeyboardInterrupt()])

    with pytest.raises(KeyboardInterrupt):
        study(recipe, bench)
    assert study(recipe, bench)

    assert names() == ARMS
    assert not [call for call in standin.calls if call.operation.startswith(("Create", "Update", "Delete"))]


def test_an_endpoint_in_service_without_its_baseline_is_refused(recipe: Path) -> None:
    toolkit.compile(recipe, progress=Silent())
    toolkit.deploy(recipe, progress=Silent())
    with pytest.raises(UsageError, match="sd is in service, without its baseline") as raised:
        study(recipe, Bench())
    assert f"toolkit deploy {recipe} --baseline" in raised.value.hint
    assert names() == {"sd"}


def test_what_is_paused_is_not_resumed_and_not_removed(recipe: Path) -> None:
    toolkit.compile(recipe, baseline=True, progress=Silent())
    toolkit.deploy(recipe, baseline=True, progress=Silent())
    toolkit.pause("sd", platform="sagemaker", progress=Silent())
    before = {(item.name, item.status) for item in toolkit.endpoints(platform="sagemaker")}

    with pytest.raises(toolkit.EndpointNotFound, match="sd is paused"):
        study(recipe, Bench())

    assert {(item.name, item.status) for item in toolkit.endpoints(platform="sagemaker")} == before


def test_both_arms_stay_where_they_are_to_be_kept(recipe: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        study(recipe, Bench(ends=[KeyboardInterrupt()]), keep=True)
    assert names() == ARMS
    study(recipe, Bench())
    assert names() == ARMS, "they are the user's from then on"


def test_an_endpoint_in_service_that_serves_another_k_is_refused(recipe: Path) -> None:
    toolkit.compile(recipe, baseline=True, progress=Silent())
    toolkit.deploy(recipe, baseline=True, progress=Silent())
    recipe.write_text(recipe.read_text().replace("num_speculative_tokens: 5", "num_speculative_tokens: 7"))
    bench = Bench()

    with pytest.raises(UsageError, match=f"sd does not serve what {recipe} says: num_speculative_tokens 5 -> 7"):
        study(recipe, bench)

    assert (bench.asked, names()) == ([], ARMS)


def test_arms_that_a_killed_study_might_have_left_stay(recipe: Path) -> None:
    toolkit.compile(recipe, baseline=True, progress=Silent())
    toolkit.deploy(recipe, baseline=True, progress=Silent())
    (home() / "studies" / "sd").mkdir(parents=True)
    (home() / "studies" / "sd" / "deployed").touch()
    said = Said()

    assert toolkit.study(recipe, _steps=Steps(measure=Bench()), progress=said)

    assert names() == ARMS
    assert f"Remove it: toolkit destroy {recipe}" in " ".join(said.lines)


def made(standin: StandIn) -> set[str]:
    return {item for item in standin.leftovers() if not item.startswith("logs group")}


def test_what_was_made_before_the_study_stays(recipe: Path, standin: StandIn) -> None:
    toolkit.compile(recipe, baseline=True, progress=Silent())
    before = made(standin)
    said = Said()

    assert toolkit.study(recipe, _steps=Steps(measure=Bench()), progress=said)

    assert before
    assert made(standin) == before
    assert "not removed: Role" in "\n".join(said.lines)


def test_what_somebody_deploys_while_it_compiles_stays(recipe: Path, standin: StandIn) -> None:
    class Meanwhile(Silent):
        def stage(self, name: str) -> AbstractContextManager[None]:
            if name == "wait until compiled":
                User(standin).create("sd", InstanceType="ml.m5.large")
            return super().stage(name)

    with pytest.raises(UsageError, match="sd was deployed by somebody else meanwhile"):
        toolkit.study(recipe, _steps=Steps(measure=Bench()), progress=Meanwhile())
    assert toolkit.connect("sd", platform="sagemaker").name == "sd"


def test_an_endpoint_that_somebody_else_made_is_refused_before_anything_is_compiled(
    recipe: Path, standin: StandIn
) -> None:
    User(standin).create("sd", InstanceType="ml.m5.large")
    with pytest.raises(toolkit.ToolkitError):
        study(recipe, Bench())
    assert not standin.training.started


def test_a_study_beside_another_of_the_same_recipe_is_refused(recipe: Path, standin: StandIn) -> None:
    (home() / "studies" / "sd").mkdir(parents=True)
    with FileLock(home() / "studies" / "sd" / "lock"), pytest.raises(UsageError, match="studied by another process"):
        study(recipe, Bench())
    assert not standin.training.started


@pytest.mark.parametrize("why", [ApplyError("throttled"), KeyboardInterrupt()])
def test_where_removing_fails_there_is_a_report_that_says_so(recipe: Path, why: BaseException) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise why

    report = toolkit.study(recipe, _steps=Steps(measure=Bench(), destroy=fails), progress=Silent())

    assert report.rows()
    assert f"toolkit destroy {recipe} --platform sagemaker" in report.remains
    assert report.remains in report.notes()


def test_what_somebody_else_deploys_at_the_same_time_is_not_removed(recipe: Path) -> None:
    removed: list[object] = []

    def lost(*_: Any, **__: Any) -> Endpoint:
        raise StalePlanError("sd was changed by somebody else after this was planned")

    steps = Steps(deploy=lost, destroy=lambda *_, **__: removed.append(1))
    with pytest.raises(StalePlanError):
        toolkit.study(recipe, _steps=steps, progress=Silent())
    assert not removed


def test_an_endpoint_for_components_that_is_there_is_not_touched(recipe: Path, standin: StandIn) -> None:
    User(standin).deploy_for_components("shared")
    text = recipe.read_text().replace("role: create", "role: create, inference_component: {endpoint: shared}")
    recipe.write_text(text)
    with pytest.raises(UsageError, match="endpoint shared is there"):
        are_there(load(recipe))
