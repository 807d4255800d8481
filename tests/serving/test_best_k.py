"""`toolkit tune` on a real vLLM: few of the K are measured, the best is written down, and nothing else stays."""

from __future__ import annotations

from pathlib import Path

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.recipe.load import find

pytestmark = pytest.mark.serving

KS = tuple(range(1, 7))


def test_the_tiny_pair_is_tuned_and_nothing_stays(endpoint: Endpoint, tmp_path: Path) -> None:
    """The head was trained on structured text, of which it foretells several tokens: a K of 1 cannot be the best."""
    shipped = find("tiny/p-eagle")
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(shipped.read_text().replace(": ./", f": {shipped.parent}/"))
    before = {item.name for item in toolkit.endpoints()}

    report = toolkit.tune(recipe, k=KS, workloads=["structured"], seconds=8, write=True, progress=Silent())

    assert report, report
    assert {item.name for item in toolkit.endpoints()} == before
    measured = {row.setting: row for row in report.rows if row.ratio}
    assert len(measured) <= 3
    assert {row.setting for row in report.rows} == {f"K={k}" for k in KS}
    best = measured[report.winner or ""]
    assert best.acceptance_length
    assert best.acceptance_length > 2
    tuned = toolkit.load(recipe)
    assert tuned.speculation
    assert f"K={tuned.speculation.num_speculative_tokens}" == report.winner
    assert tuned.evidence[0].acceptance_length == round(best.acceptance_length, 2)
    assert "# greedy output is then identical" in recipe.read_text()
