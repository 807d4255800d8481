"""Which recipes a fleet has, what its plan shows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pairs import write_hub_pair

from toolkit.api.deployment import plan, read_plan
from toolkit.api.fleet import fleet, recipes_in
from toolkit.cli.fleet import options
from toolkit.cli.main import run
from toolkit.errors import RecipeNotFound, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two recipes for AWS, and what may lie beside them."""
    first = write_hub_pair(tmp_path)
    text, lock = first.read_text().replace("platform: {", "platform: {role: create, "), first.with_suffix(".lock.json")
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name in ("chat", "code"):
        (folder / f"{name}.yaml").write_text(text.replace("name: hub", f"name: {name}"))
        (folder / f"{name}.lock.json").write_text(lock.read_text())
    (folder / "values.yml").write_text("replicas: 2\n")
    (folder / "manifests.yaml").write_text("kind: Pod\n---\nkind: Service\n")
    (folder / ".hidden.yaml").write_text(text)
    return folder


def test_other_yaml_files_are_left_out_and_told_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(folder)]) == 0
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines()[2:4]] == ["chat", "code"]
    for other in ("values.yml", "manifests.yaml"):
        assert f"not a recipe, left out: {folder / other}" in printed.err


def test_the_plan_has_a_sum_and_with_verbose_each_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    prices = [item["price_per_hour"] for item in document["recipes"]]
    assert document["price_per_hour"] == pytest.approx(sum(prices))
    assert min(prices) > 0
    assert run(["plan", str(folder), "--verbose"]) == 0
    printed = capsys.readouterr().out
    assert f"{sum(prices):.2f} $/h while running" in printed
    assert "Endpoint" in printed
    assert f"{folder / 'code.yaml'}:" in printed


def test_a_discount_comes_off_each_price_and_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def planned(*arguments: str) -> dict[str, Any]:
        assert run(["plan", *arguments, "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    for called in (str(folder), str(folder / "chat.yaml")):
        full, less = planned(called), planned(called, "--discount", "25")
        assert (full["discount_percent"], less["discount_percent"]) == (0, 25)
        assert less["price_per_hour"] == pytest.approx(0.75 * full["price_per_hour"])
        assert run(["plan", called, "--discount", "25"]) == 0
        assert "$/h while running with your discount of 25 %" in capsys.readouterr().out


def test_a_saved_plan_with_a_discount_is_still_what_the_recipe_leads_to(folder: Path, tmp_path: Path) -> None:
    saved, recipe = tmp_path / "plan.json", folder / "chat.yaml"
    plan(recipe, discount_percent=25).save(saved)
    assert read_plan(saved).price_per_hour == pytest.approx(0.75 * (plan(recipe).price_per_hour or 0))


def test_a_fleet_says_why_a_recipe_has_no_price(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = folder / "code.yaml"
    code.write_text(code.read_text().replace("ml.g6.xlarge", "ml.p6-b200.48xlarge"))
    assert run(["plan", str(folder)]) == 0
    assert f"{code}: Price: ? $/h: no price of ml.p6-b200.48xlarge" in capsys.readouterr().out


def test_a_fleet_says_what_is_warned_of_each_recipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warned = folder / "chat.yaml"
    warned.write_text(warned.read_text().replace("engine:\n", "engine:\n  args: {enforce-eager: true}\n"))
    (warning,) = plan(warned).warnings
    assert run(["plan", str(folder)]) == 0
    assert f"{warned}: {warning}" in capsys.readouterr().out
    assert run(["plan", str(folder), "--verbose"]) == 0
    assert "".join(capsys.readouterr().out.split()).count("".join(warning.split())) == 1


def test_options_are_words_as_they_are_typed() -> None:
    paths = [Path("a b.txt"), Path("-c.txt")]
    words = options(platform="local", max_tokens=1, no_wait=True, prompts=paths, model=None, baseline=False)
    assert words == ["--platform=local", "--max-tokens=1", "--no-wait", "--prompts=a b.txt", "--prompts=-c.txt"]


def test_a_recipe_that_is_not_yaml_is_an_error_and_hides_no_other(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.yaml").write_text("name: x\ntarget: {model: [\n")
    assert run(["plan", str(folder)]) == 2
    printed = capsys.readouterr()
    assert "broken.yaml" in printed.err
    assert "not YAML" in printed.err
    assert "chat" in printed.out
    assert "without 1 that cannot be planned" in printed.out


def test_two_recipes_of_one_name_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = folder / "code.yaml"
    code.write_text(code.read_text().replace("name: code", "name: chat"))
    with pytest.raises(UsageError, match=r"chat.yaml and .*code.yaml have one `name: chat`"):
        fleet([str(folder)])
    for command in ("plan", "deploy"):
        assert run([command, str(folder)]) == 2
        assert "Give " in capsys.readouterr().err
    with pytest.raises(UsageError, match="are one recipe"):
        fleet([str(folder / "chat.yaml"), str(folder / "../fleet/chat.yaml")])


def test_a_folder_without_recipes_is_refused(tmp_path: Path, folder: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(RecipeNotFound, match="no recipe in this folder") as refused:
        recipes_in(empty)
    assert refused.value.hint == "Write one: toolkit new MODEL"
    assert run(["deploy", str(empty)]) == 2
    (empty / "values.yaml").write_text("replicas: 2\n")
    with pytest.raises(RecipeNotFound, match=r"values.yaml have no `target:`"):
        recipes_in(empty)
    above = tmp_path / "above"
    above.mkdir()
    folder.rename(above / "below")
    with pytest.raises(RecipeNotFound) as refused:
        recipes_in(above)
    assert refused.value.hint == f"Did you mean {above / 'below'}?"


@pytest.mark.parametrize(
    "arguments",
    [("plan", "--out", "plan.json"), ("plan", "--format", "cloudformation"), ("deploy", "--plan", "plan.json")],
)
def test_what_is_of_one_recipe_is_refused_for_several(
    arguments: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, str(folder)]) == 2
    assert "these are several" in capsys.readouterr().err


def test_drift_needs_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--drift"]) == 2
    assert "toolkit status fleet/ --drift" in capsys.readouterr().err
