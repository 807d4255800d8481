"""How far `toolkit check` agrees with a version of vLLM on drawn recipes. Prints, asserts only that it is asked.

$AGREEMENT_VERSION is the installed one, or one that is fetched; $AGREEMENT_RECIPES is how many are drawn, each takes
2 s or more; $AGREEMENT_SEED draws others.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from drawn_recipes import draw, figures, judge

from toolkit.engines.vllm import fetched
from toolkit.engines.vllm.asking import running
from toolkit.engines.vllm.installed import installed

NUMBER, SEED = (
    int(os.environ.get(f"AGREEMENT_{name}", default)) for name, default in (("RECIPES", "600"), ("SEED", "30"))
)
VERSION = os.environ.get("AGREEMENT_VERSION") or installed()


@pytest.mark.timeout(7200)
def test_agreement_on_drawn_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if installed() != VERSION and not fetched.folder(VERSION).is_dir():
        fetched.fetch(VERSION)
    verdicts = []
    for one in judge(draw(tmp_path, NUMBER, SEED, VERSION), running):
        verdicts.append(one)
        with capsys.disabled():
            wrong = {
                "missed before": one.missed(one.before),
                "MISSED AFTER": one.missed(one.after),
                "wrongly refused before": one.wrongly_refused(one.before),
                "WRONGLY REFUSED AFTER": one.wrongly_refused(one.after),
                "no answer": one.takes is None and not one.before,
            }
            if said := ", ".join(name for name, is_so in wrong.items() if is_so):
                print(f"{said}: {one.drawn.special}: {' '.join(one.words.split())[:160]} {one.before} {one.after}")
    with capsys.disabled():
        print("\n".join(f"{name}: {count}" for name, count in figures(verdicts).items()))
    assert figures(verdicts)["vLLM refuses"]
