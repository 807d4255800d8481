"""The results in a journal as a Parquet file: what pandas reads of it, in which memory, and what is refused."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pandas
import pyarrow.parquet
import pytest
from simulated_arms import result

import toolkit
from toolkit.cli.main import run
from toolkit.endpoint.generation import Acceptance, Arrival
from toolkit.errors import UsageError
from toolkit.measure.journal import Journal
from toolkit.measure.result import RequestResult

ANSWERED = result(
    arm="speculative",
    prompt=3,
    round=1,
    load=4.0,
    seconds=2.5,
    arrivals=(Arrival(0.5, 1), Arrival(2.0, 3)),
    prompt_tokens=3,
    output_tokens=4,
    acceptance=Acceptance((1, 0, 2)),
    block=7,
    prompt_token_ids=(1000, 2000, 3000),
    text="two words ✓",
)
FAILED = result(arm="baseline", outcome="failed", error="no answer", output_tokens=0, open_loop=True)


def journal(folder: Path, *results: RequestResult) -> Path:
    path = folder / "run.jsonl"
    Journal(path, {"seed": 1}).add(results)
    return path


def test_pandas_has_a_row_for_each_request(tmp_path: Path) -> None:
    parquet = tmp_path / "run.parquet"
    assert toolkit.to_parquet(journal(tmp_path, ANSWERED, FAILED), parquet) == 2
    first, second = pandas.read_parquet(parquet, dtype_backend="pyarrow").to_dict("records")
    expected = {
        "arm": "speculative",
        "prompt": 3,
        "round": 1,
        "load": 4.0,
        "open_loop": False,
        "block": 7,
        "seconds": 2.5,
    }
    figures = {"ttft": 0.5, "tpot": 0.5, "output_tokens": 4, "draft_steps": 3, "accepted_tokens": 4}
    assert expected.items() <= first.items()
    assert figures.items() <= first.items()
    assert (first["text"], list(first["arrivals"])) == ("two words ✓", [0.5, 2.0])
    assert {"outcome": "failed", "error": "no answer", "open_loop": True}.items() <= second.items()
    assert all(pandas.isna(second[name]) for name in ("ttft", "tpot", "block", "draft_steps"))
    assert stat.S_IMODE(parquet.stat().st_mode) == 0o600


def test_rows_are_written_as_they_are_read(tmp_path: Path) -> None:
    path = journal(tmp_path, *[result(prompt=number) for number in range(5_001)])
    assert toolkit.to_parquet(path, tmp_path / "run.parquet") == 5_001
    written = pyarrow.parquet.ParquetFile(tmp_path / "run.parquet")
    assert [written.metadata.row_group(number).num_rows for number in range(written.num_row_groups)] == [5_000, 1]
    assert written.read(["prompt"])["prompt"].to_pylist() == [*range(5_001)]


def test_a_measurement_that_goes_on_is_left_as_it_is(tmp_path: Path) -> None:
    path = journal(tmp_path, ANSWERED)
    with path.open("a") as stream:
        stream.write('{"arm": "spec')
    before = path.read_bytes()
    assert toolkit.to_parquet(path, tmp_path / "run.parquet") == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is not JSON"),
        ('{"title": "a report"}\n', "holds no results of a measurement"),
        ('{"setting": "1"}\n{"arm": 1}\n', "holds no results of a measurement"),
        (json.dumps({"setting": "1"}) + "\n" + json.dumps({
            "arm": "a", "workload": "w", "prompt": 10**19, "round": 0, "load": 1.0, "started": 0.0, "seconds": 1.0,
            "outcome": "successful"}) + "\n", "has a value that no measurement gives"),
    ],
)  # fmt: skip
def test_what_is_no_journal_is_refused_and_what_was_there_stays(tmp_path: Path, content: str, why: str) -> None:
    path, parquet = tmp_path / "run.jsonl", tmp_path / "run.parquet"
    path.write_text(content)
    parquet.write_text("of yesterday")
    with pytest.raises(UsageError, match=why) as caught:
        toolkit.to_parquet(path, parquet)
    assert str(path) in caught.value.message
    assert "--resume FILE" in caught.value.hint
    assert {item.name: item.read_text() for item in tmp_path.iterdir()} == {
        "run.jsonl": content,
        "run.parquet": "of yesterday",
    }


def test_results_are_not_written_over(tmp_path: Path) -> None:
    path = journal(tmp_path, ANSWERED)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="it would be lost"):
        toolkit.to_parquet(path, tmp_path / ".." / tmp_path.name / "run.jsonl")
    assert path.read_bytes() == before


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["bench", "--parquet", str(journal(tmp_path, ANSWERED)), str(tmp_path / "run.parquet")]
    assert run(command) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'run.parquet'}, rows: 1\n"
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": 1, "file": str(tmp_path / "run.parquet")}
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert run(command) == 2
    assert "Run: pip install" in capsys.readouterr().err
