"""`toolkit tune` on the command line: what it takes, what it refuses before anything is deployed, and its text."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import write_hub_pair, write_pair
from tuned_arms import tuned

from toolkit.cli.main import run
from toolkit.cli.tune_command import tune_text

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "0-3"], "write 1-10 or 3,5,7"),
        (["--k", "5-3"], "write 1-10 or 3,5,7"),
        (["--k", "3,x"], "write 1-10 or 3,5,7"),
        (["--k", "1-1000000000"], "from 1 to 64"),
        (["--slo", "ttft=fast"], "write ttft=0.5,tpot=50ms"),
        (["--slo", "ttft=1,ttft=2"], "each limit once"),
        (["--slo", "tpot=0"], "above 0"),
        (["--slo", "ttft=1,share=0.99"], "Leave `share` out of the SLO"),
        (["--concurrency", "0"], "concurrency is at least 1"),
        (["--time", "soon"], "write 90s or 2m or 1h"),
        (["--try", "eagle3"], "give others as a recipe, with --arm"),
        (["--arm", "tiny/eagle3"], "serves another target"),
    ],
)
def test_wrong_usage_says_what_to_write(arguments: list[str], message: str, tmp_path: Path, capsys: Captured) -> None:
    assert run(["tune", str(write_pair(tmp_path)), *arguments]) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in shown


def test_a_recipe_that_comes_with_the_toolkit_is_not_overwritten(capsys: Captured) -> None:
    assert run(["tune", "tiny/p-eagle", "--write"]) == 2
    shown = capsys.readouterr().err
    assert "comes with the toolkit, and is not changed" in shown
    assert "cp " in shown


def test_a_k_by_instance_type_is_not_overwritten(tmp_path: Path, capsys: Captured) -> None:
    path = write_pair(tmp_path)
    types = "platform: {name: sagemaker, instance_types: [{type: ml.g6.xlarge, num_speculative_tokens: 2}]}"
    path.write_text(path.read_text().replace("platform: {name: local}", types))

    assert run(["tune", str(path), "--write", "--yes"]) == 2
    assert "`num_speculative_tokens` of its own for ml.g6.xlarge" in capsys.readouterr().err


def test_where_endpoints_are_billed_the_price_is_shown_and_it_asks(tmp_path: Path, capsys: Captured) -> None:
    assert run(["tune", str(write_hub_pair(tmp_path))]) == 2
    shown = capsys.readouterr().err
    assert "two endpoints at a time" in shown
    assert "$/h in total" in shown
    assert "Add --yes" in shown


def test_on_a_cluster_the_price_is_not_known_and_it_asks(tmp_path: Path, capsys: Captured) -> None:
    assert run(["tune", str(write_hub_pair(tmp_path)), "--platform", "kubernetes"]) == 2
    assert "each ? $/h: the cluster's nodes are paid for" in capsys.readouterr().err


@pytest.mark.parametrize("room", [60, 120])
def test_the_text_fits_the_terminal_and_names_the_best(room: int) -> None:
    text = tune_text(tuned(), room)

    lines = text.splitlines()
    assert "K=4 has the lowest latency: 2.16x on structured" in " ".join(text.split())
    assert max(map(len, lines)) <= room
    assert "best" in text
    assert "Written into mine.yaml" in text
