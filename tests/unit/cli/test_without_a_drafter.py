"""Recipes that name no drafter, from check to plan on every platform: the target alone is served and paid for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pairs import HUB_RECIPE, RECIPE, write_hub_pair, write_pair, write_recipe

import toolkit
from toolkit.cli.main import run

METHODS = ("ngram", "suffix", "mtp", "dspark")
OWN_LAYERS = {
    "model_type": "deepseek_v4",
    "architectures": ["DeepseekV4ForCausalLM"],
    "dspark_target_layer_ids": [1],
    "dspark_markov_rank": 8,
}
Captured = pytest.CaptureFixture[str]


def without_drafter(text: str, method: str) -> str:
    """One of the tests' recipes with that method, at K=7."""
    lines = text.replace("method: p-eagle", f"method: {method}").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("  model: "))


def on_aws(root: Path, method: str) -> Path:
    return write_hub_pair(root, without_drafter(HUB_RECIPE, method), target={"config": OWN_LAYERS})


def on_a_cluster(root: Path, method: str) -> Path:
    text = (
        HUB_RECIPE.replace("sagemaker", "kubernetes").replace("ml.g6.xlarge", "g6.xlarge").replace("0.30.0", "0.32.0")
    )
    return write_hub_pair(root, without_drafter(text, method), target={"config": OWN_LAYERS})


def here(root: Path, method: str) -> Path:
    write_pair(root)
    return write_recipe(root, without_drafter(RECIPE, method))


def document(capsys: Captured, *arguments: object) -> Any:
    assert run([str(argument) for argument in arguments]) == 0
    return json.loads(capsys.readouterr().out)


def made(plan: Mapping[str, Any], kind: str) -> list[Mapping[str, Any]]:
    return [action["request"] for action in plan["actions"] if action["kind"] == kind]


@pytest.mark.parametrize("method", METHODS)
def test_the_recipe_names_no_drafter(tmp_path: Path, method: str) -> None:
    recipe = toolkit.load(on_aws(tmp_path, method))
    assert recipe.drafter is None
    assert list(recipe.models) == ["target.model"]
    assert recipe.what_runs()["speculation"] == {"method": method, "num_speculative_tokens": 7}
    assert recipe.baseline().method == "none"
    assert method in repr(recipe)


@pytest.mark.parametrize("method", METHODS)
def test_only_a_missing_package_is_found(tmp_path: Path, method: str) -> None:
    found = [finding.code for finding in toolkit.check(on_aws(tmp_path, method)).findings]
    assert found == (["engine.package"] if method == "suffix" else [])


@pytest.mark.parametrize("method", METHODS)
def test_aws_gets_the_weights_of_the_target_alone(tmp_path: Path, method: str, capsys: Captured) -> None:
    plan = document(capsys, "plan", on_aws(tmp_path, method), "--json")
    (container,) = [model["PrimaryContainer"] for model in made(plan, "Model")]
    assert "AdditionalModelDataSources" not in container
    assert json.loads(container["Environment"]["SM_VLLM_SPECULATIVE_CONFIG"]) == {
        "method": method,
        "num_speculative_tokens": 7,
    }
    assert len(made(plan, "Weights")) == 1


@pytest.mark.parametrize(("method", "counted"), [("ngram", 0), ("suffix", 0), ("mtp", 2), ("dspark", 2)])
def test_the_log_is_counted_where_every_draft_has_k_tokens(
    tmp_path: Path, method: str, counted: int, capsys: Captured
) -> None:
    plan = document(capsys, "plan", on_aws(tmp_path, method), "--json")
    assert len(made(plan, "MetricFilter")) == counted


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_this_machine_gets_one_model(tmp_path: Path, method: str, capsys: Captured) -> None:
    plan = document(capsys, "plan", here(tmp_path, method), "--json", "--baseline")
    assert len(made(plan, "Model")) == 2
    assert len(made(plan, "Weights")) == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_cluster_fetches_one_model(tmp_path: Path, method: str, capsys: Captured) -> None:
    path = on_a_cluster(tmp_path, method)
    path.write_text(path.read_text().replace(", health_check_timeout: 600", ""))
    assert run(["render", str(path)]) == 0
    manifests = list(yaml.safe_load_all(capsys.readouterr().out))
    (pod,) = [item["spec"]["template"]["spec"] for item in manifests if item["kind"] == "Deployment"]
    variables = {item["name"]: item["value"] for item in pod["containers"][0]["env"] if "value" in item}
    assert variables["SM_VLLM_MODEL"] == "org/target"
    assert json.loads(variables["SM_VLLM_SPECULATIVE_CONFIG"]) == {"method": method, "num_speculative_tokens": 7}


def test_the_lock_has_the_target_alone(tmp_path: Path, capsys: Captured) -> None:
    path = here(tmp_path, "ngram")
    assert run(["lock", str(path)]) == 0
    assert json.loads(path.with_suffix(".lock.json").read_text())["drafter"] is None
    assert run(["check", str(path)]) == 0


def test_layers_of_the_targets_own_take_kv_cache(tmp_path: Path, capsys: Captured) -> None:
    recipe = on_aws(tmp_path, "mtp")
    own = document(capsys, "fit", recipe, "--json")
    recipe.write_text(recipe.read_text().replace("method: mtp", "method: ngram"))
    text = document(capsys, "fit", recipe, "--json")
    assert _tokens(own) * 5 == pytest.approx(_tokens(text) * 4, rel=0.02)  # five layers in the place of four


def _tokens(rows: Any) -> int:
    (row,) = [row for row in rows["fits"] if row["instance"] == "ml.g6.xlarge"]
    return int(row["kv_tokens"])


@pytest.mark.parametrize(
    ("speculation", "message"),
    [
        ("{method: ngram, model: ./drafter}", "method `ngram` drafts without a model: remove `model`"),
        ("{method: eagle}", "method `eagle` needs a drafter"),
        ("{method: mtp, revision: main}", "`revision` is that of a drafter"),
        (
            "{method: ngram, prompt_lookup_min: 4, prompt_lookup_max: 2}",
            "prompt_lookup_min 4 is above prompt_lookup_max",
        ),
        ("{method: suffix, suffix_decoding_min_token_prob: 2.0}", "less than or equal to 1"),
    ],
)
def test_what_a_recipe_may_not_say(tmp_path: Path, speculation: str, message: str) -> None:
    text = f"name: a\ntarget: {{model: org/a}}\nspeculation: {speculation}\nengine: {{version: 0.32.0}}\n"
    (finding,) = toolkit.check(write_recipe(tmp_path, f"{text}platform: {{name: local}}\n")).findings
    assert finding.code == "recipe.bad-value"
    assert message in finding.message
