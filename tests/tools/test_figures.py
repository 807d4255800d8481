"""Figures of README and docs are those of the recipes' evidence: who measures anew changes both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from toolkit.loading import load
from toolkit.recipe.known import catalogue

ROOT = Path(__file__).parents[2]
OWN_FIGURES: Mapping[str, str] = {
    "docs/explain/heads.md": "published ones, with their source; the catalogue has them",
    "docs/explain/proof.md": "of the method: how often it is right",
    "docs/explain/when-it-pays.md": "an example of a quotient, and a run whose command is beside its table",
    "docs/known-threads.md": "of threads about vLLM",
    "docs/measuring.md": "of the method: how often it is right, what it costs, other clients",
    "docs/security-scan.md": "of a scan",
    "docs/training.md": "of runs that the page tells of",
}
"""Pages that say themselves where their figures are from."""
PAGES = sorted({"README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))} - {*OWN_FIGURES})
LINK = re.compile(r"\[([^\]]*)\]\(([^)#]+\.md)[^)]*\)")
# An interval, as 3.58x to 3.96x or (3.58-3.96), belongs to the figure before it. Versions have no `x` behind them.
INTERVAL = re.compile(r"\(?[0-9.]+x?(?:-| to )[0-9.]+x?\)")
SPEEDUP = re.compile(r"\b([0-9]+\.[0-9]+)(?:x\b| times\b)")
LENGTH = re.compile(r"\b([0-9]+\.[0-9]{2})\b")
# In a table of another page, the bold ones too: **5.68** (5.44-5.93).
MEASURED = re.compile(r"([0-9]+\.[0-9]+)[*]{0,2} \(")

EVIDENCE = [one for name in catalogue() for one in load(name).evidence]
SPEEDUPS = {f"{one.speedup:.2f}" for one in EVIDENCE if one.speedup}
LENGTHS = {f"{one.acceptance_length:.2f}" for one in EVIDENCE if one.acceptance_length}


def lines(page: str) -> list[str]:
    return [INTERVAL.sub("", line) for line in (ROOT / page).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("page", PAGES)
def test_a_speedup_is_some_recipes_evidence_or_stands_on_the_page_that_it_links_to(page: str) -> None:
    for line in lines(page):
        for words, linked in LINK.findall(line):
            there = ((ROOT / page).parent / linked).read_text(encoding="utf-8") if SPEEDUP.search(words) else ""
            assert {*SPEEDUP.findall(words)} <= {f"{float(one):.1f}" for one in MEASURED.findall(there)}, line
        assert {*SPEEDUP.findall(LINK.sub("", line))} <= SPEEDUPS, line


@pytest.mark.parametrize("page", PAGES)
def test_tokens_per_target_step_are_some_recipes_evidence(page: str) -> None:
    for line in lines(page):
        if "tokens per target step:" in line or "acceptance length of" in line:
            assert {*LENGTH.findall(line)} <= LENGTHS, line


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorial.md"])
def test_what_is_shown_of_the_tiny_pair_is_its_evidence_on_that_workload(page: str) -> None:
    """The session that README begins with, word for word: each workload with its own figures."""
    evidence = {one.workload: one for one in load("tiny/p-eagle").evidence}
    text, shown = " ".join(lines(page)), 0
    for workload, one in evidence.items():
        figures = re.findall(rf"([0-9.]+)x as fast as without speculation on {workload}\b", text)
        figures += re.findall(rf"\b{workload}\W+(?:prompts \(|speculative pays: )([0-9.]+)x", text)
        assert {*figures} <= {f"{one.speedup:.2f}"}, workload
        lengths = re.findall(rf"\b{workload} ([0-9]\.[0-9]+)\b", text)
        assert {*lengths} <= {f"{one.acceptance_length:.2f}"}, workload
        shown += len(figures)
    assert shown
