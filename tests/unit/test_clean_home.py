"""`toolkit clean` of this machine: what is old goes, what a process or an endpoint needs stays."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

import toolkit
from toolkit.api.home_leftovers import HomeCleaner
from toolkit.apply.progress import Silent
from toolkit.catalog.lookup import FOLDER
from toolkit.cli.main import run
from toolkit.planning.retention import Leftover, rules

DAY = 86400.0
KINDS = {
    "record": "records/gone.jsonl",
    "attempt": "improvements/gone.json",
    "trial": "tuning/gone/report.json",
    "study": "studies/gone/0123.jsonl",
    "engine answer": "asked/0123.json",
    "training folder": "training/gone-1/job.json",
    "local platform": "local/endpoints/0123/1/log",
    "catalogue update": "catalog/update.json",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of each kind, 400 days old; and a cache."""
    home = tmp_path / "home"
    for path in (*KINDS.values(), "../cache/toolkit/vllm/one"):
        file = home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x" * 100)
    age(tmp_path, 400)
    monkeypatch.setenv("TOOLKIT_HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home


def age(root: Path, days: float) -> None:
    then = time.time() - days * DAY
    for path in sorted(root.rglob("*"), reverse=True):
        os.utime(path, (then, then))


def found(*endpoints: str) -> dict[str, Leftover]:
    return {item.kind: item for item in HomeCleaner(endpoints).find().items}


def test_what_is_old_goes_and_what_has_no_rule_stays(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["clean", "--platform", "local", "--dry-run", "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert {item["kind"] for item in items if item["goes"]} == {*KINDS, "cache"} - {"catalogue update"}
    assert {item["size"] for item in items} == {100}
    assert run(["clean", "--platform", "local"]) == 2  # it asks, and there is no terminal
    assert (home / KINDS["record"]).exists()

    capsys.readouterr()
    assert run(["clean", "--platform", "local", "--yes"]) == 0
    assert "removed 8 things" in capsys.readouterr().out
    assert [path for path in home.parent.rglob("*") if path.is_file() and "lock" not in path.name] == [
        home / "catalog" / "update.json"
    ]


def test_what_is_young_stays_and_says_until_when(home: Path) -> None:
    age(home, 80)
    items = found()
    assert {kind for kind, item in items.items() if item.goes} == {"local platform", "cache"}
    assert items["trial"].why.startswith("goes in 10 days: ")


def test_what_an_endpoint_or_a_process_needs_stays(home: Path) -> None:
    (home / "tuning" / "gone" / "deployed").mkdir()
    (home / "tuning" / "gone" / "deployed" / "gone-k7").touch()
    age(home, 400)
    items = found("gone")
    assert items["record"].why == items["attempt"].why == "endpoint gone exists"
    assert items["trial"].why.startswith("gone-k7 of it was deployed")

    (home / "tuning" / "gone" / "deployed" / "gone-k7").unlink()
    trial = found()["trial"]
    with FileLock(home / "tuning" / "gone" / "lock"):
        assert found()["trial"].why == "it is running"
        with pytest.raises(toolkit.errors.PlatformError, match="being tuned"):
            HomeCleaner(()).remove(trial)


def test_a_training_that_runs_stays(home: Path) -> None:
    training = found()["training folder"]
    with (home / "training" / "gone-1" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        age(home, 400)
        assert found()["training folder"].why == "its job runs"
        with pytest.raises(toolkit.errors.PlatformError, match="its job runs"):
            HomeCleaner(()).remove(training)


def test_what_somebody_began_to_use_stays_and_stops_nothing_else(home: Path) -> None:
    """Somebody begins to tune between the question and the removal."""
    lock = FileLock(home / "tuning" / "gone" / "lock")
    done = toolkit.clean(platform="local", approve=lambda _: lock.acquire(), progress=Silent())
    lock.release()
    assert "trial" not in {item.kind for item in done.removed}
    assert len(done.removed) == len(done.going) > 1
    assert done.ok
    age(home, 400)
    assert [item.kind for item in toolkit.clean(platform="local", progress=Silent()).removed] == ["trial"]


def test_every_rule_is_used_and_told_in_the_documents() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "operate.md").read_text(encoding="utf-8")
    for kind, rule in rules().items():
        days = "-" if rule.days is None else f"{rule.days} days"
        price = f"{rule.usd_per_gb_month:g}" if rule.usd_per_gb_month else ""
        assert f"| {kind} | {rule.where} | {days} | {price} | {rule.rule} |" in page
    data: Any = json.loads((FOLDER / "retention.json").read_text(encoding="utf-8"))["kinds"]
    source = "".join(path.read_text(encoding="utf-8") for path in Path(toolkit.__file__).parent.rglob("*.py"))
    assert [kind for kind in data if f'"{kind}"' not in source] == []
