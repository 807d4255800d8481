"""`toolkit catalog status` and `update`, as far as they go without a network."""

from __future__ import annotations

import json
from datetime import date, timedelta

import pytest

from toolkit.catalog import updates
from toolkit.catalog.lookup import Price
from toolkit.catalog.updates import Update, write
from toolkit.cli.main import run

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request goes to a proxy that is not there."""
    monkeypatch.setenv("NO_PROXY", "")
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.delenv(name.lower(), raising=False)


def test_status_tells_the_age_of_each_file_and_how_to_renew_them(capsys: Captured) -> None:
    assert run(["catalog", "status"]) == 0
    text = capsys.readouterr().out
    assert "images.json" in text
    assert "2026-11-22" in text
    assert text.endswith("Nothing newer was read yet.\n")

    assert run(["catalog", "status", "--json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert len({item["date"] for item in files}) > 1
    assert len({date.fromisoformat(item["date"]) + timedelta(item["days"]) for item in files}) == 1, "today"


def test_status_tells_what_was_read(capsys: Captured) -> None:
    price = Price(5.25, "eu-central-1", "2026-11-19", "a test", "good")
    found = Update(
        read={"prices in eu-central-1": date(2026, 11, 20)},
        prices={"eu-central-1": {"ml.g7e.2xlarge": price}},
        types=("ml.p7.48xlarge",),
    )
    write(found)
    assert run(["catalog", "status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["regions"], document["types"]) == (["eu-central-1"], ["ml.p7.48xlarge"])
    assert document["read"] == {"prices in eu-central-1": "2026-11-20"}

    assert run(["catalog", "status"]) == 0
    assert "new instance types: ml.p7.48xlarge" in capsys.readouterr().out


def test_offline_is_exit_code_3_with_a_reason_for_each_source(offline: None, capsys: Captured) -> None:
    assert run(["catalog", "update", "--region", "eu-central-1", "--json"]) == 3
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["error"] == "PlatformError"
    assert document["message"].startswith("nothing could be read\n  prices in eu-central-1: https://pricing.")
    assert document["hint"] == "Is there a network? What was read before is kept."
    assert not updates.path().exists()


def test_a_damaged_file_of_ones_own_is_exit_code_2(capsys: Captured) -> None:
    updates.path().parent.mkdir(parents=True)
    updates.path().write_text("{}{")
    assert run(["check", "gpt-oss-20b/p-eagle"]) == 2
    assert "update.json is damaged" in capsys.readouterr().err


def test_what_used_to_write_into_the_installed_package_is_gone(capsys: Captured) -> None:
    assert run(["lock", "--prices"]) == 2
    assert "No such option: --prices" in capsys.readouterr().err
