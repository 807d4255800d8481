"""Text of a recipe stays text in what is exported: no other program reads a form of its own in it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aws_kinds import TEMPLATES, desired
from fakes import ACCOUNT
from pairs import write_hub_pair, write_recipe

from toolkit.errors import RecipeError, UsageError
from toolkit.loading import load
from toolkit.platforms.kubernetes.rules.manifests import parts, text
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe

sys.path.append(str(Path(__file__).parents[1] / "kubernetes"))
from pod_life import expanded

SECRET = "{{resolve:secretsmanager:prod/database:SecretString:password}}"
REFERENCES = "$(HF_TOKEN) $$(HF_TOKEN) $HF_TOKEN ${HF_TOKEN} $"


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_hub_pair(tmp_path))


@pytest.fixture
def on_cluster() -> Recipe:
    found = load("qwen3-32b/draft-model-trn2-eks")
    return pinned(found, read_lock(lock_path(found)))


def with_env(recipe: Recipe, value: str) -> Recipe:
    return replace(recipe, engine=recipe.engine.edit(env={"NOTE": value}))


@pytest.mark.parametrize("form", [SECRET, "a {{Resolve:ssm:/x}} b", "{{ resolve:ssm-secure:/x:1}}"])
def test_cloudformation_reads_no_secret_for_a_recipe(recipe: Recipe, form: str) -> None:
    with pytest.raises(UsageError, match=r"would replace \{\{resolve:…\}\} in Resources\.Model\w+\.Properties\..*NOTE"):
        TEMPLATES.template(desired([with_env(recipe, form)], ACCOUNT))


def test_a_chat_template_is_no_reference(recipe: Recipe) -> None:
    assert "{{ messages }}" in str(TEMPLATES.template(desired([with_env(recipe, "{{ messages }}")], ACCOUNT)))


def test_no_function_of_cloudformation_reads_text(recipe: Recipe) -> None:
    """`${…}` is read by Fn::Sub alone, and no template of ours has one."""
    made = str(TEMPLATES.template(desired([with_env(recipe, "${AWS::AccountId}")], ACCOUNT)))
    assert "${AWS::AccountId}" in made
    assert "Fn::Sub" not in made
    assert "Fn::Transform" not in made


def environment_of(made: dict[str, Any]) -> dict[str, str]:
    (deployment,) = [item for item in made["serve"] if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item.get("value", "") for item in container["env"]}


def test_kubernetes_puts_no_variable_into_another(on_cluster: Recipe) -> None:
    note = environment_of(parts([with_env(on_cluster, REFERENCES)]))["NOTE"]
    assert expanded(note, {"HF_TOKEN": "hunter2"}) == REFERENCES


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object/apply:os.system [id]",
        "&anchor *anchor",
        "*anchor",
        "<<: *x",
        "yes",
        "0x10",
        "1_000",
        "12:30:45",
        "2026-11-22",
        "~",
        "a: b",
        "# no comment",
        "%YAML 1.1",
        "--- two\n...\nmore: true",
        "'\" \\ \t {x} [y]",
        " lines\n  with\n\nspaces \n",
    ],
)
def test_yaml_reads_text_as_text(on_cluster: Recipe, value: str) -> None:
    """PyYAML reads YAML 1.1, as kubectl does."""
    made = parts([with_env(on_cluster, value)])
    assert list(yaml.safe_load_all(text(made["serve"]))) == made["serve"]
    assert environment_of(made)["NOTE"] == value


@pytest.mark.parametrize("name", ['x"} or vector(1) #', "${PROP('Dim.x')}", "a](https://evil.example)", "x\n# y"])
def test_a_name_has_no_room_for_a_query(tmp_path: Path, name: str) -> None:
    """Names stand in queries of Prometheus (KEDA), and in CloudWatch's expressions, labels and Markdown."""
    path = write_hub_pair(tmp_path)
    written = path.read_text().replace("name: hub", f"name: {name!r}", 1)
    with pytest.raises(RecipeError, match="name"):
        load(write_recipe(tmp_path, written))
