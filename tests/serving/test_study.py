"""`toolkit study` on a real vLLM: the tiny pair goes the whole road of AWS's study on Trainium, on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import toolkit
from toolkit.cli.main import run
from toolkit.measure.read_workloads import read_workloads

pytestmark = [pytest.mark.serving, pytest.mark.timeout(900)]


def test_the_tiny_pair_is_studied_and_nothing_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """How much faster the tiny drafter is depends on the machine; that its answers are the target's does not."""
    before = {item.name for item in toolkit.endpoints()}
    page = tmp_path / "study.html"

    code = run(["study", "tiny/draft-model", "--time", "30s", "--html", str(page), "--json"])

    document = json.loads(capsys.readouterr().out)
    assert code == (0 if document["ok"] else 1)
    classes = [workload.name.removeprefix("study/") for workload in read_workloads("study")]
    assert [row["class"] for row in document["rows"]] == classes
    assert "-" not in document["rows"][0]["ms/token"], "blocks go round the classes, this one first"
    holds = {item["claim"]: item["holds"] for item in document["report"]["verdicts"] if item["claim"] != "pays"}
    assert (holds["on"], holds["lossless"], holds["same-target"], holds["baseline"]) == (True, True, True, True)
    assert document["setting"]["hardware"] != document["published"]["setting"]["hardware"]
    assert "list-numbers" in page.read_text()
    assert {item.name for item in toolkit.endpoints()} == before
