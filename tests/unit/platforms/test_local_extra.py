"""Without the packages of the extra `local`."""

from __future__ import annotations

import sys

import pytest

from toolkit.errors import UsageError
from toolkit.platforms.local.session import SESSION
from toolkit.version import CPU_BUILDS


def test_a_missing_extra_is_one_line_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto", None)

    with pytest.raises(UsageError, match=r"packages that are not installed: moto\n") as caught:
        SESSION.open()

    assert caught.value.hint == f"Run: pip install 'peagle-toolkit[local]' {CPU_BUILDS}"
