"""The event loop that measurements run on."""

from __future__ import annotations

import asyncio
import sys

import pytest

from toolkit.measure.endpoints import run_to_end


async def running() -> str:
    return type(asyncio.get_running_loop()).__module__


def test_it_is_uvloops_where_that_is_installed() -> None:
    assert run_to_end(running()) == "uvloop"


def test_without_the_extra_it_is_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_to_end(running()).startswith("asyncio.")


def test_a_notebooks_own_loop_may_be_running() -> None:
    async def cell() -> str:
        return run_to_end(running())

    assert asyncio.run(cell()) == "uvloop"
