"""A log that is read once leads to the cause to which the whole of it leads, wherever that stands."""

from __future__ import annotations

import json
import re
from itertools import chain, islice
from pathlib import Path

import pytest

from toolkit.apply.causes import words
from toolkit.apply.diagnose import explain
from toolkit.apply.literals import Pattern, texts_of
from toolkit.apply.log_lines import condense, log_lines

LOGS = Path(__file__).parents[2] / "golden" / "logs"
FAILURES = Path(__file__).with_name("failures")
DISK = "OSError: [Errno 28] No space left on device"
QUIET = 'INFO:     127.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK'
MORE_THAN_ARE_KEPT = 21_000
"""Lines, of those that are kept as they are."""

LOUD = "ERROR 11-25 10:00:00 [serving.py:10] the request of somebody was refused"


def texts() -> list[str]:
    """Every line of every log, reason and message that the tests know."""
    found = chain.from_iterable(path.read_text(encoding="utf-8").splitlines() for path in sorted(LOGS.rglob("*.txt")))
    published = [item for path in FAILURES.glob("*.json") for item in json.loads(path.read_text(encoding="utf-8"))]
    said = chain.from_iterable([item.get("reason", ""), *item.get("log", [])] for item in published)
    return list(dict.fromkeys(line[:2000] for text in chain(found, said) for line in log_lines(text)))


def test_a_pattern_finds_with_its_texts_what_it_finds_without() -> None:
    known = words()
    parts = chain.from_iterable((item.words, item.beside, item.without) for item in (*known.reasons, *known.log))
    patterns = [part for part in (*parts, known.starts, known.answers, known.answered, *known.listens) if part]
    lines, found = texts(), 0
    assert all(pattern.texts for pattern in patterns), "a pattern without a text is tried on every line"
    for pattern in patterns:
        alone = re.compile(pattern.pattern)
        for line in lines:
            if alone.search(line):
                found += 1
                assert any(text in line for text in pattern.texts), (pattern.pattern, line)
    assert found > 300


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("x (red|blue)+ x", {"red", "blue"}),
        ("abcdefgh(ij)?k", {"abcdefgh"}),
        ("(?i)error", set()),
        ("(?i:error)|failed", set()),
        ("a.b", set()),
        (r"\bout of memory\b", {"out of memory"}),
        ("(?!never)always", {"always"}),
        ("lon*ger text", {"ger text"}),
    ],
)
def test_the_texts_of_a_pattern(pattern: str, expected: set[str]) -> None:
    assert texts_of(pattern) == expected
    assert bool(Pattern(pattern).texts) == bool(expected)


@pytest.mark.parametrize("path", sorted(LOGS.rglob("*.txt")), ids=lambda path: path.stem)
def test_what_follows_a_log_does_not_change_its_cause(path: Path) -> None:
    """Behind its lines stand more harmless ones than are kept as they are."""
    lines = list(log_lines(path.read_text(encoding="utf-8")))
    whole, longer = explain(lines), explain([*lines, *[QUIET] * MORE_THAN_ARE_KEPT])
    assert (longer.cause, longer.message) == (whole.cause, whole.message)


@pytest.mark.parametrize("around", [QUIET, LOUD, "a line that somebody printed", "GroveError: of one request"])
def test_what_is_said_once_is_not_displaced_by_what_is_said_often(around: str) -> None:
    many = [around] * MORE_THAN_ARE_KEPT
    found = explain([*many, "loading", DISK, *many])
    assert (found.cause, found.evidence) == ("disk-full", (DISK,))


def test_what_is_kept_does_not_grow_with_the_log() -> None:
    known = words()
    lines = (f"{LOUD} {number}: {DISK}" for number in range(45_000))
    kept = condense(chain(islice(lines, 22_500), lines), known)
    assert len(kept) < 20_500 + 3 * 40 * 5
    assert kept[0].endswith(f" 0: {DISK}")
    assert kept[-1].endswith(f" 44999: {DISK}")
    assert condense([LOUD] * 20_000, known) == [LOUD] * 20_000


def test_the_end_of_long_lines_is_bounded_by_their_length() -> None:
    kept = condense(("x" * 100_000 for _ in range(2_500)), words())
    assert {len(line) for line in kept} == {2_000}
    assert 1_000 <= len(kept) <= 1_500
