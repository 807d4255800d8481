"""The recipes that come with the toolkit, and the command lines of the cards that they follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from toolkit.api.checking import check
from toolkit.catalog import lookup
from toolkit.catalog.lookup import Head
from toolkit.loading import load
from toolkit.recipe.facts import Lock, ModelFacts
from toolkit.recipe.known import catalogue
from toolkit.recipe.lock import lock_path, read_lock
from toolkit.sizing.fit import fit

ON_AWS = [name for name in catalogue() if load(name).platform.name != "local"]
ON_TRAINIUM = [name for name in ON_AWS if load(name).engine_rules.compilation]
ON_GPUS = [name for name in ON_AWS if name not in ON_TRAINIUM]
LIMITS = {"max-model-len", "max-num-seqs", "max-num-batched-tokens"}  # flags that recipes write as keys of the engine


def lock_of(name: str) -> Lock:
    lock = read_lock(lock_path(load(name)))
    assert lock
    return lock


def known_models() -> dict[str, ModelFacts]:
    locks = [lock_of(name) for name in ON_AWS]
    return {facts.model: facts for lock in locks for facts in (lock.target, lock.drafter) if facts}


KNOWN = known_models()
CARDS = [head for head in lookup.heads() if head.card_k and {head.repo, head.target} <= KNOWN.keys()]


@pytest.mark.parametrize("name", [name for name in catalogue() if name not in ON_TRAINIUM])
def test_nothing_is_wrong_with_a_shipped_recipe(name: str) -> None:
    assert [finding for finding in check(name).findings if finding.severity != "info"] == []


@pytest.mark.parametrize("name", ON_TRAINIUM)
def test_a_shipped_recipe_for_trainium_has_no_errors(name: str) -> None:
    """Warnings it may have: what nobody could try on the hardware, such as SageMaker's driver."""
    assert check(name).errors == []


@pytest.mark.parametrize("name", catalogue())
def test_a_shipped_recipe_is_json_data(name: str) -> None:
    recipe = load(name)
    assert json.loads(json.dumps(recipe.to_dict())) == recipe.to_dict()


@pytest.mark.parametrize("name", ON_AWS)
def test_a_recipe_is_named_after_its_file(name: str) -> None:
    assert load(name).name == name.replace("/", "-").replace(".", "-")


@pytest.mark.parametrize("name", ON_AWS)
def test_a_curated_lock_says_so_and_names_its_source(name: str) -> None:
    lock = lock_of(name)
    assert lock.drafter or load(name).training
    for facts in filter(None, (lock.target, lock.drafter)):
        assert facts.partial
        assert facts.unverified
        assert facts.source


@pytest.mark.parametrize("name", ON_GPUS)
def test_the_target_leaves_room_for_its_head(name: str) -> None:
    """The sizes of some heads are not known, and then `check` says nothing of memory; the largest stated is 3.6 GB."""
    recipe = load(name)
    alone = Lock(lock_of(name).target)
    for instance_type in recipe.platform.types:
        instance = lookup.instance(instance_type)
        assert instance
        found = fit(recipe.baseline(), alone, instance)
        assert (found.fits, found.tensor_parallel) == (True, 1)
        assert found.kv_gib > 10


def test_two_recipes_of_a_model_have_the_same_facts_of_it() -> None:
    for name in ON_AWS:
        lock = lock_of(name)
        for facts in filter(None, (lock.target, lock.drafter)):
            assert KNOWN[facts.model] == facts


@pytest.mark.parametrize("name", catalogue())
def test_evidence_has_a_number(name: str) -> None:
    for evidence in load(name).evidence:
        assert evidence.acceptance_length or evidence.speedup


def test_no_card_with_flags_is_left_out() -> None:
    assert {head.repo for head in lookup.heads() if head.card_flags} <= {head.repo for head in CARDS}


@pytest.mark.parametrize("head", CARDS, ids=lambda head: head.repo)
def test_the_command_line_of_a_card_has_no_errors(head: Head, tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    YAML().dump(card_recipe(head), path)
    lock = Lock(KNOWN[head.target], KNOWN[head.repo])
    lock_path(load(path)).write_text(json.dumps(lock.to_dict()), encoding="utf-8")
    assert check(path).errors == []


def card_recipe(head: Head) -> dict[str, Any]:
    """The card's flags, K and environment, on the large GPU that cards are measured on."""
    limits = {flag.replace("-", "_"): value for flag, value in head.card_flags.items() if flag in LIMITS}
    args = {flag: value for flag, value in head.card_flags.items() if flag not in LIMITS}
    return {
        "name": "card",
        "target": {"model": head.target},
        "speculation": {"method": head.method, "model": head.repo, "num_speculative_tokens": head.card_k},
        "engine": {"version": "0.30.0", **limits, "args": args, "env": dict(head.card_env)},
        "platform": {"name": "sagemaker", "instance_types": ["ml.p6-b200.48xlarge"]},
    }
