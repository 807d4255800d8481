"""`what_if`: which endpoints are deployed and measured for it, and that none stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import MemoryPlatform
from reports import verdict

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import Steps
from toolkit.apply.progress import Progress, Silent
from toolkit.cli.main import run
from toolkit.engines.vllm.flags import speculative_config
from toolkit.errors import InvocationError, RecipeError, UsageError
from toolkit.measure.measurement import BreakEvenAcceptance, Interval, Speedup, WhatIf, WhatIfSpeedup
from toolkit.measure.report import BenchReport
from toolkit.planning.plan import Plan
from toolkit.recipe.recipe import Recipe

ON_GPU, HERE = "gpt-oss-20b/p-eagle", "tiny/p-eagle"


def never(name: str) -> Plan:
    raise NotImplementedError


@dataclass
class Machines:
    """What deploys and measures. An endpoint at acceptance length L is 0.5 L times as fast as its baseline."""

    deployed: list[Recipe] = field(default_factory=list)
    destroyed: list[str] = field(default_factory=list)
    measured: list[dict[str, Any]] = field(default_factory=list)
    fails: bool = False

    def deploy(self, recipe: Recipe, *, baseline: bool, progress: Progress) -> Endpoint:
        assert recipe.speculation
        self.deployed.append(recipe)
        length = recipe.synthetic_acceptance_length
        twin = f"{recipe.name}-baseline" if baseline else None
        platform: Any = MemoryPlatform()
        return Endpoint(recipe.name, platform, twin, destroyer=never, synthetic_acceptance_length=length)

    def destroy(self, recipe: Recipe, *, progress: Progress) -> None:
        self.destroyed.append(recipe.name)

    def measure(self, what: Any, *, what_if: Sequence[float], **known: Any) -> BenchReport:
        self.measured.append({"what": what, "what_if": tuple(what_if), **known})
        if self.fails:
            raise InvocationError("the engine is gone")
        length = getattr(what, "synthetic_acceptance_length", None)
        arm, at = (f"synthetic {length:g}", length) if length else ("speculative", 3.0)
        source = "synthetic" if length else "steps"
        ratio = 0.5 * at
        row = WhatIfSpeedup("mine", 1, arm, at, ratio, ratio * 0.9, ratio * 1.1, source)
        return BenchReport(
            "title",
            (verdict("baseline", True), verdict("pays", ratio > 1), verdict("lossless", None)),
            arms=(),
            speedups=(Speedup("mine", 1, arm, ratio, ratio * 0.9, ratio * 1.1),),
            noise=Interval(1.0, 1 - at / 100, 1 + at / 100),
            what_if=WhatIf((row,), (BreakEvenAcceptance("mine", 1, arm, 2.0, 1.9, 2.1),)),
        )


def asked(machines: Machines, what: Any, *lengths: float, **options: Any) -> BenchReport:
    return toolkit.what_if(
        what,
        lengths,
        _steps=Steps(measure=machines.measure, deploy=machines.deploy, destroy=machines.destroy),
        progress=Silent(),
        seconds=90,
        **options,
    )


def test_endpoints_of_another_revision_of_the_target_are_not_compared() -> None:
    """They may have other weights, and so another speed and other answers."""
    platform: Any = MemoryPlatform()
    old, new = (Endpoint(name, platform, destroyer=never, target=f"org/model@{name}") for name in ("old", "new"))
    with pytest.raises(UsageError, match="other targets: old serves org/model@old, new serves org/model@new"):
        toolkit.bench(new, baseline=old, progress=Silent())


def test_an_engine_that_can_accepts_by_chance_one_length_after_the_other() -> None:
    machines = Machines()
    report = asked(machines, ON_GPU, 2, 3, 4)

    configs = [speculative_config(recipe, recipe.speculation) for recipe in machines.deployed if recipe.speculation]
    assert [(one["rejection_sample_method"], one["synthetic_acceptance_length"]) for one in configs] == [
        ("synthetic", 2),
        ("synthetic", 3),
        ("synthetic", 4),
    ]
    assert {recipe.name for recipe in machines.deployed} == {"gpt-oss-20b-p-eagle-what-if"}
    assert [one["seconds"] for one in machines.measured] == [30, 30, 30]
    assert all(one["fixed_length"] for one in machines.measured), "garbage may end at any token"
    assert machines.destroyed == ["gpt-oss-20b-p-eagle-what-if"]
    assert report.what_if
    assert [(row.arm, row.ratio, row.source) for row in report.what_if.speedups] == [
        ("synthetic 2", 1.0, "synthetic"),
        ("synthetic 3", 1.5, "synthetic"),
        ("synthetic 4", 2.0, "synthetic"),
    ]
    assert [row.arm for row in report.what_if.break_even] == ["synthetic 2"], "it is nearest to breaking even"
    assert report.noise == Interval(1.0, 0.96, 1.04), "the noisiest of all"


def test_only_the_measured_endpoint_is_synthetic_not_its_twin() -> None:
    machines = Machines()
    asked(machines, ON_GPU, 3)
    assert machines.deployed[0].baseline().speculation is None
    assert machines.deployed[0].evidence == ()


def test_an_engine_that_cannot_is_measured_as_it_serves() -> None:
    machines = Machines()
    report = asked(machines, HERE, 2, 3)
    assert machines.deployed == []
    assert machines.measured[0]["what"] == HERE
    assert machines.measured[0]["what_if"] == (2, 3)
    assert report.what_if
    assert report.what_if.speedups[0].source == "steps"


@pytest.mark.parametrize("what", ["http://127.0.0.1:9000/v1", "an-endpoint"])
def test_without_a_recipe_what_serves_is_measured(what: str) -> None:
    machines = Machines()
    asked(machines, what, 2)
    assert (machines.deployed, machines.measured[0]["what"]) == ([], what)


def test_dummy_weights_are_deployed_everywhere_and_not_judged() -> None:
    machines = Machines()
    report = asked(machines, HERE, 2, 3, dummy_weights=True)
    (recipe,) = machines.deployed
    assert recipe.flags["load-format"] == "dummy"
    assert recipe.baseline().flags["load-format"] == "dummy"
    assert machines.destroyed == ["tiny-p-eagle-what-if"]
    assert [(one.claim, one.holds) for one in report.verdicts] == [
        ("baseline", True),
        ("lossless", None),
        ("same-target", None),
    ]
    assert "random numbers" in report.notes[-1]


def test_nothing_is_staged_for_dummy_weights() -> None:
    machines = Machines()
    asked(machines, ON_GPU, 2, dummy_weights=True)
    assert machines.deployed[0].platform.weights == "hub"


def test_what_was_deployed_is_removed_when_measuring_fails() -> None:
    machines = Machines(fails=True)
    with pytest.raises(InvocationError):
        asked(machines, ON_GPU, 2)
    assert machines.destroyed == ["gpt-oss-20b-p-eagle-what-if"]


@pytest.mark.parametrize(("what", "length"), [(ON_GPU, 8.5), (ON_GPU, 0.5), ("an-endpoint", 0.9)])
def test_impossible_lengths_are_refused(what: str, length: float) -> None:
    machines = Machines()
    with pytest.raises(UsageError, match="no acceptance length can be") as refusal:
        asked(machines, what, length)
    assert "1" in refusal.value.hint
    assert machines.measured == []


def test_a_step_gives_all_drafted_tokens_and_one_more_at_most() -> None:
    machines = Machines()
    asked(machines, ON_GPU, 1, 8)  # with K = 7
    assert len(machines.measured) == 2


def test_a_baseline_of_ones_own_is_used() -> None:
    machines = Machines()
    asked(machines, ON_GPU, 2, baseline="another")
    assert machines.measured[0]["baseline"] == "another"
    assert machines.measured[0]["what"].baseline is None


@pytest.mark.parametrize(("version", "accepts"), [("0.19.1", False), ("0.20.0", True), ("0.33.0", True)])
def test_vllm_accepts_by_chance_since_0_20_on_gpus(version: str, accepts: bool) -> None:
    recipe = toolkit.load(ON_GPU)
    there = replace(recipe, engine=recipe.engine.edit(version=version))
    assert there.engine_rules.accepts_synthetically(there) is accepts
    here = toolkit.load(HERE)
    assert not here.engine_rules.accepts_synthetically(here)


def test_a_recipe_cannot_ask_for_garbage(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "recipes/tiny/p-eagle.yaml").read_text()
    path = tmp_path / "garbage.yaml"
    for line in ("rejection_sample_method: synthetic", "synthetic_acceptance_length: 3"):
        path.write_text(text.replace("  num_speculative_tokens: 7\n", f"  num_speculative_tokens: 7\n  {line}\n", 1))
        with pytest.raises(RecipeError):
            toolkit.load(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--what-if-acceptance", "2,x"], "is not a list of numbers"),
        (["--what-if-acceptance", "0"], "numbers above 0 are expected"),
        (["--what-if-acceptance", "9"], "no acceptance length can be 9"),
        (["--what-if-acceptance", "2", "--arm", "tiny/eagle3"], "leave out --arm"),
        (["--what-if-acceptance", "2", "--resume", "results.jsonl"], "leave out --resume"),
        (["--dummy-weights"], "--dummy-weights is for --what-if-acceptance"),
    ],
)
def test_bad_options_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", HERE, *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())
