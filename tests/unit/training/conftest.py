"""A target and samples, both very small, for each module that asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training.heads import save_target, write_data
from toolkit.training.loop import Data


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return write_data(tmp_path_factory.mktemp("data"))
