"""An engine that the package does not have: one class, one JSON file with its words, and its name in the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pairs import RECIPE, write_pair

from toolkit.apply.diagnose import diagnose
from toolkit.apply.stages import stage_of
from toolkit.catalog import lookup, registry
from toolkit.catalog.lookup import Instance
from toolkit.checks.run import check
from toolkit.engines.arguments import environment
from toolkit.engines.flag_checks import check_flags
from toolkit.errors import RecipeError
from toolkit.findings import Finding
from toolkit.platforms.sagemaker.rules.metrics import draft_length
from toolkit.recipe.lock import Lock
from toolkit.recipe.model_files import read_folder
from toolkit.recipe.resolve import Engine, Recipe, load
from toolkit.recipe.rules import EngineDefaults, EngineRules, MetricNames
from toolkit.recipe.schema import EngineSection
from toolkit.sizing.fit import Fit, Pair, fit, fit_by_size
from toolkit.sizing.settings import Settings

WORDS = {
    "starts": "toy begins",
    "answers": "toy is up",
    "stages": {"loading": ["toy loads"], "answering": ["toy is up"]},
    "log": [{"code": "toy-broke", "words": ["the toy broke"], "hint": "Mend it."}],
}


class Toy(EngineRules):
    name = "toy"
    needs_version = False
    has_cpu_build = False
    explains_hardware = False
    variable_prefix = "TOY_"
    own_flags: Mapping[str, str] = {"context-length": "`engine.max_model_len`"}
    metrics = MetricNames(*(f"toy:{number}" for number in range(13)))

    def settle(self, written: EngineSection, method: str, instance_type: str) -> EngineDefaults:
        return EngineDefaults("toy", written.version or "1.2.3", 16, None)

    def default_tokens(self, engine: Engine, method: str) -> int:
        return 2

    def knows(self, version: str) -> bool:
        return True

    def runs_on(self, instance: Instance) -> bool:
        return bool(instance.compute_capability)

    def compiles(self, recipe: Recipe) -> bool:
        return False

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        return {"context-length": recipe.engine.max_model_len, "speculative-algorithm": recipe.method}

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        return {}

    def reports_drafts(self, recipe: Recipe) -> bool:
        return False

    def settings(self, recipe: Recipe | None, models: Lock) -> Settings:
        return Settings(1024, 16, 8192, 2)

    def fit(self, recipe: Recipe | None, pair: Pair, instance: Instance, empty: Fit) -> Fit:
        return fit_by_size(pair, instance, empty, lambda *_: 2**30)

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        def unknown(flag: str) -> Iterator[Finding]:
            yield Finding("toy.flag", f"no flag `{flag}`", f"engine.args.{flag}")

        yield from check_flags(recipe, unknown)

    def check_hardware(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        yield from ()


RULES = Toy()


@pytest.fixture(autouse=True)
def _registered(tmp_path: Path) -> Iterator[None]:
    words = tmp_path / "toy.json"
    words.write_text(json.dumps(WORDS))
    RULES.causes = (words,)
    registry.register_engine("toy", f"{__name__}:RULES")
    yield
    del registry._engines()["toy"]


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
