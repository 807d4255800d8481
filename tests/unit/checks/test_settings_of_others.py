"""Speculative settings that others published: `toolkit check` finds no error in them, or the file says why it is right.

Settings of github vllm-project/recipes are in tests/unit/recipe/public_settings.json.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from toolkit.api.checking import check
from toolkit.engines.arguments import environment
from toolkit.loading import load
from toolkit.recipe.known import catalogue_dir
from toolkit.recipe.lock import read_lock

SETTINGS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("settings_of_others.json").read_text())["settings"]
METHODS = {("eagle3", True): "p-eagle", ("draft_model", True): "pard", ("draft_model", False): "draft-model"}
ENGINE_KEYS = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "args", "env")
LOCKS = [(path, read_lock(path)) for path in sorted(catalogue_dir().glob("*/*.lock.json"))]
# Of most of their models nothing is known here: a lock would be read from the hub.
NO_LOCK = "lock.missing"


def recipe(setting: dict[str, Any]) -> dict[str, Any]:
    """The recipe for a setting, as a user would write it from the engine's own configuration."""
    published = dict(setting["published"])
    parallel = published.pop("parallel_drafting", False)
    method = METHODS.get((published["method"], parallel), published["method"])
    engine = {"version": setting.get("version", "0.32.0")} | {
        key: setting[key] for key in ENGINE_KEYS if key in setting
    }
    return {
        "name": "published",
        "target": {"model": setting["target"]},
        "speculation": published | {"method": method},
        "engine": engine,
        "container": {"base": f"vllm/vllm-openai:v{engine['version']}"},  # AWS has no image of every version
        "platform": {"name": "sagemaker", "instance_types": ["ml.p5.48xlarge"], "weights": "hub"},
    }


def write(folder: Path, setting: dict[str, Any]) -> Path:
    """The recipe of a setting, with the lock of a shipped recipe for the same two models if there is one."""
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe(setting)))
    models = (setting["target"], setting["published"].get("model"))
    for lock_file, lock in LOCKS:
        if lock and lock.drafter and models == (lock.target.model, lock.drafter.model):
            shutil.copy(lock_file, path.with_suffix(".lock.json"))
    return path


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting['source']}-{setting['target']}")
def test_a_published_setting_has_no_error_or_a_right_one(tmp_path: Path, setting: dict[str, Any]) -> None:
    path = write(tmp_path, setting)
    errors = {finding.code for finding in check(path).errors} - {NO_LOCK}
    assert errors == set(setting.get("error", {}))


@pytest.mark.parametrize("setting", [item for item in SETTINGS if "error" not in item], ids=lambda item: item["source"])
def test_the_engine_gets_what_was_published(tmp_path: Path, setting: dict[str, Any]) -> None:
    path = write(tmp_path, setting)
    given = json.loads(environment(load(path))["SM_VLLM_SPECULATIVE_CONFIG"])
    published = {key: value for key, value in setting["published"].items() if value is not False}
    assert given == published


def test_there_are_fifty_of_them() -> None:
    assert len(SETTINGS) >= 50
    assert len({json.dumps(setting, sort_keys=True) for setting in SETTINGS}) == len(SETTINGS)
