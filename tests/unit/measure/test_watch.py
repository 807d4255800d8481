"""A live endpoint's acceptance against its recipe's evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toolkit.endpoint.metrics import EngineMetrics, Metrics
from toolkit.loading import load
from toolkit.measure.expected import watch
from toolkit.recipe.recipe import Recipe


@pytest.fixture
def recipe() -> Recipe:
    return load("tiny/p-eagle")  # 7.86 and 4.14 were measured at its K


def metrics(acceptance_length: float | None = None, acceptance_rate: float | None = None) -> Metrics:
    engine = EngineMetrics(acceptance_length=acceptance_length, acceptance_rate=acceptance_rate)
    return Metrics("tiny-p-eagle", 60, engine=engine)


@pytest.mark.parametrize(("length", "holds"), [(3.30, False), (3.31, True), (6.4, True)])
def test_acceptance_may_fall_to_four_fifths_of_the_lowest_evidence(recipe: Recipe, length: float, holds: bool) -> None:
    found = watch(metrics(acceptance_length=length), recipe)

    assert (found.floor, found.holds, bool(found)) == (3.31, holds, holds)


def test_the_length_follows_from_the_share_of_accepted_drafts(recipe: Recipe) -> None:
    found = watch(metrics(acceptance_rate=0.5), recipe)

    assert found.acceptance_length == pytest.approx(1 + 7 * 0.5)


@pytest.mark.parametrize(("requests", "holds"), [(1, None), (19, None), (20, False), (0, False)])
def test_a_few_requests_ring_no_alarm(recipe: Recipe, requests: int, holds: bool | None) -> None:
    found = watch(replace(metrics(acceptance_length=1.2), invocations=requests), recipe)
    assert found.holds is holds
    assert ("requests tell little, 20 are needed" in found.detail) is (holds is None)


def test_without_evidence_or_recipe_nothing_is_expected(recipe: Recipe) -> None:
    for unknown, why in ((None, "give its recipe"), (replace(recipe, evidence=()), "no acceptance length for this K")):
        found = watch(metrics(acceptance_length=1.1), unknown)
        assert (found.holds, found.ok) == (None, True)
        assert why in found.detail


def test_without_traffic_nothing_is_shown(recipe: Recipe) -> None:
    assert watch(metrics(), recipe).to_dict() == {
        "ok": True,
        "endpoint": "tiny-p-eagle",
        "minutes": 60,
        "acceptance_length": None,
        "floor": 3.31,
        "holds": None,
        "detail": "no draft tokens were counted",
        "notes": (),
    }


def test_it_says_of_which_time_the_figures_are(recipe: Recipe) -> None:
    note = "Counted since the start of 1 container, not over 60 minutes"
    found = watch(replace(metrics(acceptance_length=5.0), notes=(note,)), recipe)

    assert repr(found).splitlines()[1:] == [note]
