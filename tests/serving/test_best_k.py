"""`toolkit tune` on a real vLLM: the best K is written down, and nothing else stays.

That few of many K are measured is shown on a toy platform, in tests/unit/test_tune_on_toys.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.apply.progress import Silent
from toolkit.recipe.load import find

pytestmark = pytest.mark.serving

KS = (1, 6)
PROMPTS = find("tiny/p-eagle").parent / "prompts" / "structured.jsonl"


def test_the_tiny_pair_is_tuned_and_nothing_stays(endpoint: Endpoint, tmp_path: Path) -> None:
    """The head was trained on structured text, of which it foretells several tokens: a K of 1 cannot be the best."""
    shipped = find("tiny/p-eagle")
    recipe, short = tmp_path / "mine.yaml", tmp_path / "structured.jsonl"
    short.write_text(PROMPTS.read_text().replace("}\n", ', "max_tokens": 64}\n'))  # more pairs of answers in less time
    recipe.write_text(shipped.read_text().replace(": ./", f": {shipped.parent}/").replace(str(PROMPTS), str(short)))
    before = {item.name for item in toolkit.endpoints()}

    report = toolkit.tune(recipe, k=KS, workloads=["structured"], seconds=12, write=True, progress=Silent())

    assert report, report
    assert {item.name for item in toolkit.endpoints()} == before
    measured = {row.setting: row for row in report.rows if row.ratio}
    assert set(measured) == {f"K={k}" for k in KS}
    best = measured[report.winner or ""]
    assert best.acceptance_length
    assert best.acceptance_length > 2
    tuned = toolkit.load(recipe)
    assert tuned.speculation
    assert f"K={tuned.speculation.num_speculative_tokens}" == report.winner
    assert tuned.evidence[0].acceptance_length == round(best.acceptance_length, 2)
    assert "# greedy output is then identical" in recipe.read_text()
