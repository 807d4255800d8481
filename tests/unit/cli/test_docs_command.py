"""`toolkit docs`: the documentation where there is neither a browser nor a network."""

from __future__ import annotations

import json

import pytest

from toolkit.cli.main import run

Captured = pytest.CaptureFixture[str]


def test_the_pages_are_listed_and_the_first_is_the_next_step(capsys: Captured) -> None:
    assert run(["docs"]) == 0
    out, err = capsys.readouterr()
    assert "own-model" in out
    assert "known-threads" not in out, "no page for users"
    assert err == "Next: toolkit docs tutorial\n"


@pytest.mark.parametrize("page", ["tutorial", "own-model", "errors", "explain/trainium", "heads"])
def test_a_page_is_printed(page: str, capsys: Captured) -> None:
    assert run(["docs", page]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# ")
    assert "<svg" not in out


def test_a_word_finds_the_pages_that_have_it(capsys: Captured) -> None:
    assert run(["docs", "rollback", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pages"]["operate"] == "Operate, update, roll back"


def test_an_unknown_page_is_answered_with_the_nearest(capsys: Captured) -> None:
    assert run(["docs", "tutorail"]) == 2
    assert capsys.readouterr().err.endswith("Run: toolkit docs tutorial\n")
