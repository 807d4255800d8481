"""How a server's modules are imported before anybody knows what it shall serve."""

import gc
from pathlib import Path

import pytest

from toolkit.engines.vllm import spare


def test_what_is_imported_stays_so_nothing_is_collected_until_all_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "says_whether_it_is_collected.py").write_text(
        "import gc, os; os.write(1, str(gc.isenabled()).encode())"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert spare._import("says_whether_it_is_collected") == b"False"
    assert gc.isenabled()


def test_an_import_that_fails_leaves_collections_and_outputs_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fails_at_once.py").write_text("raise OSError('not this one')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OSError, match="not this one"):
        spare._import("fails_at_once")
    assert gc.isenabled()
    print("still here", flush=True)
    assert capfd.readouterr().out == "still here\n"
