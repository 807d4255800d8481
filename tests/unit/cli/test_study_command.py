"""`toolkit study` on the command line: which recipe is meant, what it asks, and its text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pairs import write_hub_pair, write_pair
from studied import studied

from toolkit.api.studying import setting_of
from toolkit.cli.main import run
from toolkit.cli.study_command import study_text
from toolkit.loading import load
from toolkit.measure.study import StudyReport, published

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["qwen3-32b", "--hardware", "trn1"], "no recipe of qwen3-32b on trn1 comes with the toolkit"),
        (
            ["qwen3-32b", "--hardware", "trn2", "--platform", "local"],
            "no recipe of qwen3-32b on trn2 is for platform `local`",
        ),
        (["qwen3-8b"], "Name one: qwen3-8b/dflash, "),
        (["tiny/draft-model", "--hardware", "trn2"], "Leave out --hardware"),
        (["tiny/draft-modell"], "tiny/draft-model"),
        (["tiny/draft-model", "--time", "soon"], "write 90s or 2m or 1h"),
    ],
)
def test_wrong_usage_says_what_to_write(arguments: list[str], message: str, capsys: Captured) -> None:
    assert run(["study", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_recipe_that_does_not_speculate_has_nothing_to_study(tmp_path: Path, capsys: Captured) -> None:
    path = write_pair(tmp_path)
    text = path.read_text()
    section = text[text.index("speculation:") : text.index("engine:")]
    path.write_text(text.replace(section, "speculation: {method: none}\n"))
    assert run(["study", str(path)]) == 2
    assert "does not speculate" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("platform", "name"), [([], "-eks"), (["--platform", "kubernetes"], "-eks"), (["--platform", "sagemaker"], "")]
)
def test_a_model_means_the_recipe_of_the_published_pair(platform: list[str], name: str, capsys: Captured) -> None:
    assert run(["study", "qwen3-32b", "--hardware", "trn2", *platform, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["endpoints"] == [f"qwen3-32b-draft-model-trn2{name}", f"qwen3-32b-draft-model-trn2{name}-baseline"]


def test_where_endpoints_are_billed_the_price_is_shown_and_it_asks(tmp_path: Path, capsys: Captured) -> None:
    assert run(["study", str(write_hub_pair(tmp_path))]) == 2
    shown = capsys.readouterr().err
    assert "This starts two endpoints" in shown
    assert "$/h" in shown
    assert "Add --yes" in shown


def test_compiling_is_said_before_it_is_billed(capsys: Captured) -> None:
    assert run(["study", "qwen3-32b", "--hardware", "trn2", "--platform", "sagemaker"]) == 2
    assert "This starts two jobs that compile, then two endpoints" in capsys.readouterr().err


def test_a_file_that_is_no_report_is_not_overwritten(tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert run(["study", "tiny/draft-model", "--html", str(page)]) == 2
    assert "is not a report of the toolkit" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["absent/page.html", "."])
def test_a_page_that_could_not_be_written_is_refused_before_anything(
    name: str, tmp_path: Path, capsys: Captured
) -> None:
    assert run(["study", "tiny/draft-model", "--html", str(tmp_path / name)]) == 2
    assert "is not a folder" in (shown := " ".join(capsys.readouterr().err.split())) or "is a folder" in shown


def test_a_cluster_where_it_does_not_compile_is_told_with_the_command(tmp_path: Path, capsys: Captured) -> None:
    recipe = load("qwen3-32b/draft-model-trn2-eks").path.read_text()
    lines = [line for line in recipe.splitlines() if "compile: at-start" not in line]
    path = tmp_path / "recipe.yaml"
    path.write_text("\n".join(lines).replace("    neuron_devices", "    artifacts_bucket: mine\n    neuron_devices"))
    assert run(["study", str(path)]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert f"toolkit render {path} --part compile" in shown
    assert "two jobs" not in shown


def test_the_text_has_the_table_the_published_figures_and_whole_addresses() -> None:
    text = study_text(StudyReport(studied(), setting_of(load("qwen3-32b/draft-model-trn2-eks"))), room=80)
    assert "list-numbers  16.1/45.0" in text
    assert "15/-" in text
    assert "45/45" in text
    assert f"post: {published().sources['post']}\n" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "https://" not in line)
