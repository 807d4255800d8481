"""What Hypothesis draws depends on the strategy alone."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

VALUES = st.lists(st.integers(0, 10**6) | st.text(max_size=8) | st.floats() | st.binary(max_size=8))


def drawn() -> Sequence[str]:
    """Examples as text, in which NaN equals itself."""
    found: list[str] = []

    @settings(max_examples=200)
    @given(VALUES)
    def draw(values: list[object]) -> None:
        found.append(repr(values))

    draw()
    return found


def test_the_examples_are_the_same_after_another_module_was_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "full_of_constants.py").write_text(
        "".join(f"X{n} = ({n + 5000}, {n + 0.125}, 'word{n}', b'byte{n}')\n" for n in range(50))
    )
    monkeypatch.setitem(sys.modules, "full_of_constants", importlib.import_module("full_of_constants"))

    assert drawn() == before
