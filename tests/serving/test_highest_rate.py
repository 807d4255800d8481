"""`toolkit bench --slo` on a real pair: open loops of one rate after another, and the answers judged as ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolkit.api.endpoint import Endpoint
from toolkit.cli.main import run

pytestmark = pytest.mark.serving


def test_the_search_asks_both_arms_and_goes_on(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """How far it comes is the machine's. At first a block takes 12.5 s, at the usual share of 0.9 twice as long."""
    kept = tmp_path / "run.jsonl"
    slo = "ttft=0.5,tpot=30ms,share=0.8"
    asked = ["bench", endpoint.name, "--slo", slo, "--workload", "structured", "--max-tokens", "32"]
    blocks = []
    for _ in range(2):
        run([*asked, "--resume", str(kept), "--time", "38s", "--json"])
        report = json.loads(capsys.readouterr().out)
        found = {item["arm"]: item for item in report["saturation"]}
        assert set(found) == {"baseline", "speculative"}
        holds = {verdict["claim"]: verdict["holds"] for verdict in report["verdicts"]}
        assert holds == dict.fromkeys(("on", "accepted", "baseline", "lossless", "same-target"), True), report
        assert all(row["rate"] and not row["failed"] for row in report["arms"]), report
        blocks.append(sum(item["blocks"] for item in found.values()))
    assert 2 <= blocks[0] < blocks[1]
