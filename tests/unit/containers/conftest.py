"""A machine with Neuron devices; and tests of single functions import what the containers share by its own name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from neuron_machine import ENGINES, Engine, Machine

sys.path.append(str(Path(__file__).parents[3] / "containers" / "on-vllm"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture(params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found
