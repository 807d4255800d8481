"""`toolkit tune` goes its whole road on a toy platform: what is deployed when, measured, kept, removed and written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from reports import verdict
from toys import SESSION, ToyEngine, ToyMetrics, registered, write_toy_recipe
from tuned_arms import report_at

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.api.steps import STEPS, Steps
from toolkit.api.tuning import tune
from toolkit.apply.progress import Silent
from toolkit.engines import registry as engine_registry
from toolkit.engines.registry import EngineEntry
from toolkit.errors import InvocationError, PlatformError, RecipeError, UsageError
from toolkit.loading import load
from toolkit.measure.report import BenchReport
from toolkit.version import __version__

RECIPE = """\
name: spinner
target: {model: ./target}
speculation: {method: toy-drafts, num_speculative_tokens: 2}  # K as somebody chose it
engine: {name: toy, max_model_len: 512, max_num_seqs: 128}
platform: {name: toy-box}
"""


class CountingEngine(ToyEngine):
    metrics = ToyMetrics()


COUNTING = CountingEngine()


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with registered(f"{__name__}:COUNTING"):
        yield


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_toy_recipe(tmp_path, RECIPE)


@dataclass
class Bench:
    """Measures by a law; remembers which endpoints served meanwhile. `fails_at` raises at one of the K.

    A K by batch size is as fast as the best K at each concurrency, times its factor in `by_batch`.
    """

    fails_at: dict[int, BaseException] = field(default_factory=dict)
    cut_at: int = 0
    by_batch: tuple[float, ...] = (1.0, 1.0)
    served: list[list[str]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def __call__(self, endpoint: Endpoint, *, concurrency: tuple[int, ...], seed: int, **_: Any) -> BenchReport:
        self.seeds.append(seed)
        self.served.append(sorted(name for kind, name in SESSION.box.holds if kind == "Top"))
        found = re.search(r"-k(\d+)$", endpoint.name)
        if not found:
            schedule = [report_at(3, {"chat": 0.8}, concurrency), report_at(1, {"chat": 0.8}, concurrency)]
            best = [
                max(pair, key=lambda item: item.ratio) for pair in zip(*(r.speedups for r in schedule), strict=True)
            ]
            found_by_batch = (
                replace(item, ratio=factor * item.ratio, low=factor * item.low, high=factor * item.high)
                for item, factor in zip(best, self.by_batch, strict=True)
            )
            return replace(schedule[0], speedups=tuple(found_by_batch))
        k = int(found[1])
        if k in self.fails_at:
            raise self.fails_at.pop(k)
        return report_at(k, {"chat": 0.8}, concurrency, complete=k != self.cut_at)


def tops() -> set[str]:
    return {name for kind, name in SESSION.box.holds if kind == "Top"}


def test_four_of_ten_k_are_measured_one_at_a_time_the_best_again_and_nothing_remains(recipe: Path) -> None:
    bench = Bench()

    report = tune(recipe, _steps=Steps(measure=bench), progress=Silent())

    assert report.winner == "K=4"  # as all ten would show
    assert report.measured == 4
    assert bench.served == [["spinner-baseline", f"spinner-tune-k{k}"] for k in (10, 3, 4, 5, 4)]
    assert bench.seeds == [0, 0, 0, 0, 1], "what is measured again is asked in another order"
    assert [row.setting for row in report.rows if row.ratio is None] == [f"K={k}" for k in (1, 2, 6, 7, 8, 9)]
    assert SESSION.box.holds == {}


def test_a_baseline_in_service_is_used_and_stays(recipe: Path) -> None:
    toolkit.deploy(recipe, baseline=True, progress=Silent())

    tune(recipe, _steps=Steps(measure=Bench()), progress=Silent())

    assert tops() == {"spinner", "spinner-baseline"}


@pytest.mark.parametrize("why", [KeyboardInterrupt(), InvocationError("the endpoint died")])
def test_what_was_interrupted_is_removed_and_a_repeat_carries_on(recipe: Path, why: BaseException) -> None:
    bench = Bench(fails_at={4: why})
    with pytest.raises(type(why)):
        tune(recipe, _steps=Steps(measure=bench), progress=Silent())
    assert SESSION.box.holds == {}
    assert len(bench.served) == 3

    report = tune(recipe, _steps=Steps(measure=bench), progress=Silent())

    assert report.winner == "K=4"
    assert len(bench.served) == 6  # K=10 and K=3 were not measured anew


def test_a_measurement_that_ctrl_c_ended_is_not_kept(recipe: Path) -> None:
    bench = Bench(cut_at=10)
    with pytest.raises(KeyboardInterrupt):
        tune(recipe, _steps=Steps(measure=bench), progress=Silent())
    bench.cut_at = 0

    tune(recipe, _steps=Steps(measure=bench), progress=Silent())

    assert [names[-1] for names in bench.served[:2]] == ["spinner-tune-k10"] * 2
    assert SESSION.box.holds == {}


def test_what_is_kept_counts_only_for_the_same_content(recipe: Path) -> None:
    bench = Bench()
    tune(recipe, _steps=Steps(measure=bench), progress=Silent())
    tune(recipe, _steps=Steps(measure=bench), progress=Silent())
    assert len(bench.served) == 5

    recipe.write_text(RECIPE.replace("512", "1024"))
    tune(recipe, _steps=Steps(measure=bench), progress=Silent())
    tune(recipe, _steps=Steps(measure=bench), seconds=5, progress=Silent())

    assert len(bench.served) == 15


@dataclass
class Lucky(Bench):
    """K=3 is measured too fast when it is measured for the first time, and `then` so many times as fast as it is."""

    then: float = 1.0
    luck: float = 2.0

    def __call__(self, endpoint: Endpoint, *, concurrency: tuple[int, ...], **asked: Any) -> BenchReport:
        report = super().__call__(endpoint, concurrency=concurrency, **asked)
        if not endpoint.name.endswith("-k3"):
            return report
        factor, self.luck = self.luck, self.then
        lucky = (
            replace(item, ratio=factor * item.ratio, low=factor * item.low, high=factor * item.high)
            for item in report.speedups
        )
        return replace(report, speedups=tuple(lucky))


def test_the_luck_of_the_best_is_neither_told_nor_written(recipe: Path) -> None:
    report = tune(recipe, _steps=Steps(measure=Lucky()), write=True, progress=Silent())
    lucky, again = (row for row in report.rows if row.setting == "K=3")
    assert lucky.ratio
    assert again.ratio
    assert lucky.ratio == pytest.approx(2 * again.ratio)
    assert report.answer == f"K=3 has the lowest latency: {again.ratio:.2f}x on chat, load 1 when measured again"
    (item,) = load(recipe).evidence
    assert item.speedup == round(again.ratio, 2)


def test_a_best_that_is_no_better_than_the_baseline_when_measured_again_is_none(recipe: Path) -> None:
    text = recipe.read_text()
    report = tune(recipe, _steps=Steps(measure=Lucky(then=0.5)), write=True, progress=Silent())
    assert not report
    assert "K=3 was the best, but not when it was measured again: it is not shown to be better" in report.notes[0]
    assert recipe.read_text() == text


class Killed(BaseException):
    """Ends the process: nothing can be removed."""


def killed(*_: Any, **__: Any) -> Any:
    SESSION.box.execute = killed  # type: ignore[method-assign]
    raise Killed


def test_what_a_killed_run_deployed_is_removed_by_the_next_whatever_that_measures(recipe: Path) -> None:
    with pytest.raises(Killed):
        tune(recipe, _steps=Steps(measure=killed), progress=Silent())
    del SESSION.box.execute
    assert tops() == {"spinner-baseline", "spinner-tune-k10"}

    tune(recipe, k=[3], _steps=Steps(measure=Bench()), progress=Silent())

    assert SESSION.box.holds == {}


def test_two_processes_do_not_tune_the_same_recipe(recipe: Path) -> None:
    def meanwhile(endpoint: Endpoint, **asked: Any) -> BenchReport:
        with pytest.raises(UsageError, match="spinner is being tuned by another process"):
            tune(recipe, _steps=Steps(measure=Bench()), progress=Silent())
        return Bench()(endpoint, **asked)

    assert tune(recipe, k=[3], _steps=Steps(measure=meanwhile), progress=Silent())


def test_nothing_to_measure_is_an_error(recipe: Path) -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        tune(recipe, k=[], _steps=Steps(measure=Bench()), progress=Silent())


def test_the_winner_is_written_with_its_evidence_and_comments_stay(recipe: Path) -> None:
    report = tune(recipe, _steps=Steps(measure=Bench()), write=True, progress=Silent())

    assert report.written == str(recipe)
    assert "num_speculative_tokens: 4}  # K as somebody chose it" in recipe.read_text()
    (item,) = load(recipe).evidence
    assert (item.num_speculative_tokens, item.concurrency, item.speedup) == (4, 1, 1.77)
    assert item.source.startswith("toolkit tune ")
    written = recipe.read_text()
    tune(recipe, _steps=Steps(measure=Bench()), write=True, progress=Silent())
    assert recipe.read_text() == written  # the same figures are not written twice


def test_a_k_by_batch_size_is_measured_and_written_where_it_beats_all(recipe: Path) -> None:
    report = tune(recipe, k=[1, 3, 6], concurrency=(1, 8), _steps=Steps(measure=Bench()), write=True, progress=Silent())

    assert report.schedule_pays
    assert report.winner == "K by batch size"
    speculation = load(recipe).speculation
    assert speculation
    assert speculation.schedule == [(1, 2, 3), (3, 128, 1)]
    assert "num_speculative_tokens_per_batch_size: [[1, 2, 3], [3, 128, 1]]" in report.notes
    assert "K=6 on chat breaks even at about 5 concurrent requests." in report.notes
    assert any("beats K=3 and the baseline" in note for note in report.notes)


def test_a_k_by_batch_size_that_is_slower_somewhere_is_not_the_best_however_fast_it_is_elsewhere(recipe: Path) -> None:
    report = tune(
        recipe, k=[1, 3, 6], concurrency=(1, 8), _steps=Steps(measure=Bench(by_batch=(4.0, 0.5))), progress=Silent()
    )

    assert report.schedule_pays is False
    assert report.winner == "K=3"


def test_the_report_says_what_was_measured_with_what(recipe: Path) -> None:
    setting = tune(recipe, k=[3], _steps=Steps(measure=Bench()), progress=Silent()).setting
    engine = load(recipe).engine

    assert setting.keys() == {"hardware", "engine", "toolkit", "date"}
    assert (setting["engine"], setting["toolkit"]) == (f"{engine.name} {engine.version}", __version__)


def test_where_one_k_suits_all_concurrencies_the_report_says_so(recipe: Path) -> None:
    report = tune(recipe, k=[3], concurrency=(1, 2), _steps=Steps(measure=Bench()), progress=Silent())

    assert report.schedule_pays is None
    assert any("no K by batch size follows" in note for note in report.notes)


def test_a_wrong_answer_is_never_the_best(recipe: Path) -> None:
    def wrong(endpoint: Endpoint, **asked: Any) -> BenchReport:
        return replace(Bench()(endpoint, **asked), verdicts=(verdict("lossless", False, "wrong tokens"),))

    report = tune(recipe, _steps=Steps(measure=wrong), write=True, progress=Silent())

    assert not report
    assert "K=10 does not count: wrong tokens" in report.notes
    assert recipe.read_text() == RECIPE


def test_settings_that_a_check_refuses_are_left_out(recipe: Path) -> None:
    recipe.write_text(RECIPE + "scaling: {max_instances: 2}\n")

    with pytest.raises(RecipeError):
        tune(recipe, _steps=Steps(measure=Bench()), progress=Silent())
    assert SESSION.box.holds == {}


def test_a_setting_that_is_given_twice_is_refused(recipe: Path) -> None:
    with pytest.raises(UsageError, match="spinner K=2 is given twice"):
        tune(recipe, arms=[recipe, recipe], _steps=Steps(measure=Bench()), progress=Silent())


def test_another_recipe_is_compared_but_never_written(recipe: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(RECIPE.replace("spinner", "other"))

    def fast(endpoint: Endpoint, **asked: Any) -> BenchReport:
        law = Bench() if "-k" in endpoint.name else lambda *_, **__: report_at(4, {"chat": 0.95})
        return law(endpoint, **asked)

    report = tune(recipe, k=[1], arms=[other], write=True, _steps=Steps(measure=fast), progress=Silent())

    assert report.winner == "other K=2"
    assert "another method or drafter, which is for you to decide" in report.notes[0]
    assert recipe.read_text() == RECIPE


def test_another_recipe_that_cannot_be_served_takes_nothing_from_the_others(recipe: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(RECIPE.replace("spinner", "other"))

    def dying(endpoint: Endpoint, **asked: Any) -> BenchReport:
        if "-k" not in endpoint.name:
            raise InvocationError("the endpoint died", hint="Lower max_model_len.")
        return Bench()(endpoint, **asked)

    report = tune(recipe, k=[4], arms=[other], _steps=Steps(measure=dying), progress=Silent())

    assert report.winner == "K=4"
    assert "other K=2 could not be measured: the endpoint died. Lower max_model_len." in report.notes
    with pytest.raises(InvocationError):
        tune(other, k=[], arms=[recipe], _steps=Steps(measure=dying), progress=Silent())
    assert SESSION.box.holds == {}


def test_another_recipe_that_cannot_be_removed_ends_the_run_as_it_is_billed(recipe: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(RECIPE.replace("spinner", "other"))

    def forbidden(of: Any, **asked: Any) -> Any:
        if of.name.endswith("arm0"):
            raise PlatformError("AccessDenied: DeleteEndpoint")
        return STEPS.destroy(of, **asked)

    with pytest.raises(PlatformError, match="AccessDenied: DeleteEndpoint"):
        tune(recipe, k=[4], arms=[other], _steps=Steps(measure=Bench(), destroy=forbidden), progress=Silent())


def test_what_another_recipe_does_is_not_kept_as_the_recipes_own(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`advise` reads what is kept of the recipe's own K."""
    monkeypatch.setenv("TOOLKIT_HOME", str(tmp_path / "home"))
    other = tmp_path / "other.yaml"
    other.write_text(RECIPE.replace("spinner", "other"))
    served: list[str] = []

    def measure(endpoint: Endpoint, **asked: Any) -> BenchReport:
        served.append(endpoint.name)
        return report_at(2, {"chat": 0.9 if "-k" in endpoint.name else 0.5})

    for _ in range(2):
        tune(recipe, k=[2], arms=[other], _steps=Steps(measure=measure), progress=Silent())

    kept = tmp_path / "home/tuning/spinner"
    assert len(list(kept.glob("*.json"))) == 2, "K=2, and K=2 again"
    assert len(list((kept / "others").glob("*.json"))) == 1
    assert served == ["spinner-tune-k2", "spinner-tune-arm0", "spinner-tune-k2"], "none of them anew"


def test_an_engine_without_counts_has_at_most_three_k(recipe: Path) -> None:
    engine_registry.register_engine("toy", EngineEntry("toys:ENGINE", "toys:ENGINE_SECTIONS"))

    with pytest.raises(UsageError, match="does not count accepted drafts"):
        tune(recipe, _steps=Steps(measure=Bench()), progress=Silent())
    report = tune(recipe, k=(2, 4, 6), _steps=Steps(measure=Bench()), progress=Silent())

    assert (report.winner, report.measured) == ("K=4", 3)


def test_reports_are_kept_as_json_beside_the_records(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKIT_HOME", str(recipe.parent / "home"))

    tune(recipe, k=[3], _steps=Steps(measure=Bench()), progress=Silent())

    (kept,) = (recipe.parent / "home" / "tuning" / "spinner").glob("*.json")
    assert json.loads(kept.read_text())["title"] == "K=3"
    kept.write_text(kept.read_text()[:100])
    bench = Bench()
    tune(recipe, k=[3], _steps=Steps(measure=bench), progress=Silent())
    assert len(bench.served) == 1  # a damaged one is measured again
