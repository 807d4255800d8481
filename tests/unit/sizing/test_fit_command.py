"""`toolkit fit`: a table for people, one document for programs, and an exit code for both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from models import GPT_OSS_20B, GPT_OSS_HEAD, facts
from typer.testing import CliRunner, Result

import toolkit
from toolkit.cli import recipe_commands
from toolkit.errors import RecipeNotFound, UsageError
from toolkit.recipe.facts import Lock


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock file without a recipe."""
    path = tmp_path / "p-eagle.lock.json"
    path.write_text(json.dumps(Lock(facts(GPT_OSS_20B), facts(GPT_OSS_HEAD)).to_dict()))
    return path


def fit(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(recipe_commands.fit)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_table_with_the_answer_on_top(lock: Path) -> None:
    ended = fit(lock, "--instance", "ml.g6.xlarge", "--instance", "ml.g7e.2xlarge")
    head, _, first, second, *notes = ended.stdout.splitlines()
    assert ended.exit_code == 0
    assert head.startswith("instance        accelerators  TP  weights")
    assert first.startswith("ml.g7e.2xlarge")
    assert first.endswith("fits")
    assert second.startswith("ml.g6.xlarge")
    (note,) = notes
    assert note.startswith("The KV cache is an estimate; ± is how far it may be off.")
    assert "131,072 tokens" in second or "weights and workspace" in second


def test_the_first_ten_and_how_many_more_there_are(lock: Path) -> None:
    *lines, more = fit(lock).stdout.splitlines()
    assert sum(line.startswith("ml.") for line in lines) == 10
    assert re.fullmatch(rf"\d+ more fit, \d+ do not\. All of them: toolkit fit {lock} --all", more)
    assert len(fit(lock, "--all").stdout.splitlines()) > 40


def test_in_python_it_shows_the_first_ten_below_their_columns(lock: Path) -> None:
    head, columns, *lines = repr(toolkit.fit(lock)).splitlines()
    assert head.startswith(f"<Fits {lock}")
    assert columns.split()[:2] == ["instance", "accelerators"]
    assert sum(line.startswith("  ml.") for line in lines) == 10
    assert {line.index("fits") for line in lines if line.endswith("fits")} == {columns.index("verdict")}
    assert "more: to_pandas() has all" in lines[10]


def test_one_document_for_programs(lock: Path) -> None:
    ended = fit(lock, "--instance", "ml.g7e.2xlarge", "--json")
    (found,) = json.loads(ended.stdout)["fits"]
    assert (found["instance"], found["fits"], found["max_model_len"]) == ("ml.g7e.2xlarge", True, 131072)


def test_exit_code_1_where_nothing_fits(lock: Path) -> None:
    assert fit(lock, "--instance", "ml.g6.xlarge").exit_code == 1


def test_every_type_that_can_host_an_endpoint(lock: Path) -> None:
    found = json.loads(fit(lock, "--json").stdout)["fits"]
    assert {"ml.g7e.2xlarge", "ml.p5.48xlarge"} <= {one["instance"] for one in found}
    assert "ml.trn2.3xlarge" not in {one["instance"] for one in found}


def test_a_drafter_that_cannot_be_sized_is_left_out_and_told() -> None:
    ended = fit("gpt-oss-20b/p-eagle", "--instance", "ml.g7e.2xlarge", "--json")
    assert ended.exit_code == 0
    note, *_ = json.loads(ended.stdout)["notes"]
    assert note.startswith("amazon/GPT-OSS-20B-P-EAGLE: its config has no `num_attention_heads`: the estimate")


def test_types_that_were_not_sized_stand_by_their_reason() -> None:
    ended = fit("qwen3-32b/draft-model-trn2", "--instance", "ml.trn2.48xlarge", "--instance", "ml.g6.xlarge")
    assert ended.stdout.splitlines()[3] == "nxd-inference runs on Trainium and Inferentia only: ml.g6.xlarge"


def test_an_unknown_type(lock: Path) -> None:
    error = fit(lock, "--instance", "ml.g7.2xlage").exception
    assert isinstance(error, UsageError)
    assert "ml.g7.2xlarge" in error.hint


def test_a_lock_that_is_not_there(tmp_path: Path) -> None:
    assert isinstance(fit(tmp_path / "none.lock.json").exception, RecipeNotFound)


@pytest.mark.parametrize(
    ("sort", "first"),
    [([], "ml.g6e.xlarge"), (["--sort", "price"], "ml.g6e.xlarge"), (["--sort", "kv-price"], "ml.g7e.2xlarge")],
)
def test_what_is_cheapest_first_is_asked_for(lock: Path, sort: list[str], first: str) -> None:
    ended = fit(lock, "--instance", "ml.g6e.xlarge", "--instance", "ml.g7e.2xlarge", "--json", *sort)
    assert json.loads(ended.stdout)["fits"][0]["instance"] == first


def test_what_the_order_and_idle_accelerators_mean(lock: Path) -> None:
    ended = fit(
        lock, "--instance", "ml.p5.48xlarge", "--instance", "ml.p6-b200.48xlarge", "--sort", "kv-price", "--json"
    )
    document = json.loads(ended.stdout)
    assert document["fits"][0]["price_per_million_kv_tokens"] > 0
    unpriced, _, idle = document["notes"]
    assert unpriced.startswith("The catalogue has no price of ml.p6-b200.48xlarge")
    assert "`data-parallel-size: 8` in engine.args runs 8 copies" in idle
