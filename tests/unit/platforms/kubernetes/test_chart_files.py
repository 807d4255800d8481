"""The files of a chart, held together where no Helm is at hand."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.api.export import render
from toolkit.cli.main import run
from toolkit.errors import UsageError
from toolkit.loading import load, on_platform
from toolkit.platforms.kubernetes.rules.chart import chart


@pytest.fixture(scope="module")
def parts() -> Mapping[str, list[Mapping[str, Any]]]:
    return render("gpt-oss-20b/p-eagle")


@pytest.fixture(scope="module")
def written(parts: Mapping[str, list[Mapping[str, Any]]]) -> dict[str, str]:
    return dict(chart(on_platform(load("gpt-oss-20b/p-eagle"), "kubernetes"), parts))


def test_its_manifests_are_those_that_serve(
    parts: Mapping[str, list[Mapping[str, Any]]], written: Mapping[str, str]
) -> None:
    found = [yaml.safe_load(text) for name, text in written.items() if name.startswith("manifests/")]
    assert found == [*parts["base"], *parts["serve"]]


def test_its_values_are_those_that_the_template_reads_and_the_schema_allows(written: Mapping[str, str]) -> None:
    values = yaml.safe_load(written["values.yaml"])
    read = set(re.findall(r"\.Values\.(\w+)", written["templates/manifests.yaml"]))
    allowed = set(json.loads(written["values.schema.json"])["properties"]) - {"global"}
    assert set(values) == read == allowed
    assert not any(values.values()), "empty means as in the recipe"


def test_it_is_named_as_the_recipe_and_has_the_engine_s_version(written: Mapping[str, str]) -> None:
    about = yaml.safe_load(written["Chart.yaml"])
    assert (about["apiVersion"], about["name"]) == ("v2", "gpt-oss-20b-p-eagle")
    assert re.fullmatch(r"\d+\.\d+\.\d+", about["appVersion"])


def test_a_chart_wants_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "gpt-oss-20b/p-eagle", "--helm"]) == 2
    assert "Add: --out DIR" in capsys.readouterr().err


def test_a_chart_has_no_other_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "chart"
    assert run(["render", "gpt-oss-20b/p-eagle", "--helm", "--part", "rbac", "--out", str(out)]) == 2
    assert "toolkit render gpt-oss-20b/p-eagle --part rbac" in capsys.readouterr().err
    assert not out.exists()


def test_what_a_chart_no_longer_has_is_removed_from_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But nothing that somebody else has put there."""
    render_to = ["render", "gpt-oss-20b/p-eagle", "--helm", "--out"]
    assert run([*render_to, str(tmp_path / "fresh")]) == 0
    (tmp_path / "gitops").mkdir()
    shutil.copytree(tmp_path / "fresh/manifests", tmp_path / "gitops/manifests")
    (tmp_path / "gitops/manifests/service-gpt-oss-20b-p-eagle.yaml").rename(tmp_path / "gitops/manifests/mine.yaml")
    assert run([*render_to, str(tmp_path / "gitops")]) == 0
    assert (tmp_path / "gitops/manifests/mine.yaml").exists(), "it was no chart"
    assert run([*render_to, str(tmp_path / "chart"), "--baseline"]) == 0
    before = set(folder_of(tmp_path / "chart"))
    (tmp_path / "chart/manifests/ingress-ours.yaml").write_text("kind: Ingress\nmetadata: {name: ours}\n")
    capsys.readouterr()
    assert run([*render_to, str(tmp_path / "chart")]) == 0
    now, fresh = folder_of(tmp_path / "chart"), folder_of(tmp_path / "fresh")
    assert now == {**fresh, "manifests/ingress-ours.yaml": now["manifests/ingress-ours.yaml"]}
    said = capsys.readouterr().err
    assert all(f"{tmp_path / 'chart' / name}: " in said for name in before - set(fresh))


def folder_of(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_compiles_ahead_has_no_chart(parts: Mapping[str, list[Mapping[str, Any]]]) -> None:
    recipe = on_platform(load("gpt-oss-20b/p-eagle"), "kubernetes")
    with pytest.raises(UsageError, match="compiles before it serves") as error:
        dict(chart(recipe, {**parts, "compile": []}))
    assert "compile: at-start" in error.value.hint
