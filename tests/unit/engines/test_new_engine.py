"""An engine that the package does not have: one class, one JSON file with its words, and its name in the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import ACCOUNT
from pairs import RECIPE, write_pair
from toys import ENGINE, ToyEngine, ToyMetrics

from toolkit.api.checking import check
from toolkit.apply.diagnose import diagnose
from toolkit.apply.stages import stage_of
from toolkit.catalog import lookup
from toolkit.engines import registry as engine_registry
from toolkit.engines.arguments import environment
from toolkit.engines.registry import EngineEntry
from toolkit.errors import RecipeError
from toolkit.loading import load
from toolkit.measure.expected import draft_length
from toolkit.platforms.sagemaker.rules.widgets import body
from toolkit.recipe.facts import Lock
from toolkit.recipe.model_files import read_folder
from toolkit.sizing.fit import fit

WORDS = {
    "starts": "toy begins",
    "answers": "toy is up",
    "stages": {"loading": ["toy loads"], "answering": ["toy is up"]},
    "log": [{"code": "toy-broke", "words": ["the toy broke"], "hint": "Mend it."}],
}


@pytest.fixture(autouse=True)
def _registered(tmp_path: Path) -> Iterator[None]:
    words = tmp_path / "toy.json"
    words.write_text(json.dumps(WORDS))
    ENGINE.causes = (words,)
    engine_registry.register_engine("toy", EngineEntry("toys:ENGINE", "toys:ENGINE_SECTIONS"))
    yield
    engine_registry.unregister_engine("toy")


def toy(folder: Path, args: str = "") -> Path:
    path = write_pair(folder)
    before, _ = RECIPE.split("engine:\n")
    path.write_text(f"{before}engine:\n  name: toy\n  max_model_len: 512\n{args}platform: {{name: local}}\n")
    return path


def test_a_recipe_names_it_and_it_fills_in_what_is_left_open(tmp_path: Path) -> None:
    recipe = load(toy(tmp_path))
    assert (recipe.engine.name, recipe.engine.version, recipe.engine.max_num_seqs) == ("toy", "1.2.3", 16)
    assert environment(recipe) == {"TOY_CONTEXT_LENGTH": "512", "TOY_SPECULATIVE_ALGORITHM": "p-eagle"}


def test_it_checks_its_own_flags(tmp_path: Path) -> None:
    found = check(toy(tmp_path, "  args: {context-length: 4, radix: 1}\n"))
    assert {"engine.own-flag", "toy.flag"} <= {finding.code for finding in found.findings}
    assert {finding.code for finding in check(toy(tmp_path)).errors} <= {"container.image"}


def test_it_says_what_its_memory_takes(tmp_path: Path) -> None:
    recipe = load(toy(tmp_path))
    assert recipe.speculation
    folders = recipe.target.folder, recipe.speculation.drafter.folder
    models = Lock(*(read_folder(folder) for folder in folders if folder))
    instance = lookup.instance("ml.g6e.2xlarge")
    assert instance
    assert fit(recipe, models, instance).workspace_gib == 1


def test_its_words_tell_stage_and_cause() -> None:
    assert stage_of(["toy begins", "toy loads"]) == "loading the target"
    cause = diagnose(["toy begins", "the toy broke"])
    assert cause
    assert (cause.code, cause.hint) == ("toy-broke", "Mend it.")


def test_acceptance_is_not_read_from_a_log_that_does_not_tell(tmp_path: Path) -> None:
    assert draft_length(load(toy(tmp_path))) is None


def test_a_name_that_nobody_registered_is_refused_with_those_that_are(tmp_path: Path) -> None:
    path = toy(tmp_path)
    path.write_text(path.read_text().replace("name: toy\n", "name: toi\n"))
    with pytest.raises(RecipeError) as raised:
        load(path)
    (finding,) = raised.value.findings
    assert (finding.message, finding.path) == ("`toi` is not allowed", "engine.name")
    assert finding.hint == "Did you mean `toy`? Allowed: vllm, neuron, vllm-neuron, nxd-inference, toy."


def test_without_metrics_it_has_no_graphs_of_its_own_and_no_autoscaler(tmp_path: Path) -> None:
    path = toy(tmp_path)
    text = path.read_text().replace("{name: local}", "{name: PLATFORM, instance_types: [ml.g6e.2xlarge]}")
    path.write_text(text.replace("PLATFORM", "sagemaker"))
    dashboard = json.dumps(body(load(path), ACCOUNT, ["AllTraffic"], []))
    assert "Requests per minute" in dashboard
    assert "PromQL" not in dashboard
    assert "toy has no metrics of its own" in dashboard

    path.write_text(text.replace("PLATFORM", "kubernetes").replace("ml.g6e", "g6e") + "scaling: {max_instances: 2}\n")
    told = [finding for finding in check(path).errors if finding.code == "kubernetes.autoscaling"]
    assert [finding.path for finding in told] == ["scaling.max_instances"]


def test_a_gateway_cannot_choose_among_pods_without_metrics_that_its_picker_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = toy(tmp_path)
    kubernetes = "{name: kubernetes, instance_types: [g6e.2xlarge], kubernetes: {routing: {gateway: public}}}"
    path.write_text(path.read_text().replace("{name: local}", kubernetes))
    without = [finding for finding in check(path).errors if finding.code == "kubernetes.routing"]
    monkeypatch.setattr(ToyEngine, "metrics", ToyMetrics())
    others = [finding for finding in check(path).errors if finding.code == "kubernetes.routing"]
    assert [finding.path for finding in (*without, *others)] == ["platform.kubernetes.routing"] * 2


def test_without_a_memory_model_nothing_is_estimated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ToyEngine, "memory")
    path = toy(tmp_path)
    path.write_text(path.read_text().replace("{name: local}", "{name: sagemaker, instance_types: [ml.g6e.2xlarge]}"))
    told = [finding for finding in check(path).findings if finding.code == "memory.unknown"]
    assert [finding.message for finding in told] == ["the engine has no model of its memory"]
