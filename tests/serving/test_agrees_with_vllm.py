"""`toolkit check --ask` and vLLM agree on recipes drawn by chance; `tests/benchmarks/test_agreement.py` draws more."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn_recipes import draw, figures, judge

from toolkit.engines.vllm.asking import running
from toolkit.engines.vllm.installed import installed

pytestmark = pytest.mark.serving

NUMBER, SEED = 24, 7


def test_what_vllm_refuses_is_refused(tmp_path: Path) -> None:
    verdicts = list(judge(draw(tmp_path, NUMBER, SEED, installed()), running))
    counted = figures(verdicts)
    assert [one.drawn.special for one in verdicts if one.missed(one.after)] == []
    assert [one.drawn.special for one in verdicts if one.wrongly_refused(one.after)] == []
    assert counted["missed before"] > 0
    assert counted["without an answer"] < NUMBER / 6
