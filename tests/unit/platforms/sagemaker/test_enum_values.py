"""Every value that the recipe schema offers leads to requests that AWS's documents allow.

Held against botocore's own validation, the enums, patterns and limits of its service models, and the conditional
requirements of the API references that the local platform and the tests' AWS know.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from aws_kinds import OPERATIONS, desired
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from fakes import ACCOUNT
from pairs import HUB_RECIPE, write_recipe

from toolkit.platforms.local import configs
from toolkit.platforms.local.validation import problems
from toolkit.recipe.resolve import Recipe, load
from toolkit.recipe.schema import json_schema

BASE: Mapping[str, Any] = {
    **yaml.safe_load(HUB_RECIPE),
    "scaling": {"min_instances": 2, "max_instances": 4},
}
SECTIONS = ("platform", "scaling", "rollout", "network", "observability")


def offered(node: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of every enum and every switch of a part of the schema."""
    for branch in (node, *node.get("anyOf", ())):
        if "$ref" in branch:
            yield from offered(json_schema()["$defs"][branch["$ref"].rpartition("/")[2]], path)
        values = (True, False) if branch.get("type") == "boolean" else branch.get("enum", ())
        yield from ((path, value) for value in values)
        for name, child in branch.get("properties", {}).items():
            yield from offered(child, (*path, name))


@cache
def model(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)


NOT_SAGEMAKER = {("platform", "name"), ("platform", "kubernetes", "neuron_devices")}
# What the schema asks for besides, and why: a mirror needs its VPC, a shadow excludes a share of requests.
BESIDES: Mapping[tuple[str, ...], Mapping[str, Any]] = {
    ("network", "private_registry"): {"subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]},
}
OFFERED = [
    (path, value)
    for section in SECTIONS
    for path, value in offered(json_schema()["properties"][section], (section,))
    if path not in NOT_SAGEMAKER
]


def recipe_text(path: tuple[str, ...], value: Any) -> str:
    document = copy.deepcopy(dict(BASE))
    section = document
    for key in path[:-1]:
        section = section.setdefault(key, {})
    section |= {**BESIDES.get(path, {}), path[-1]: value}
    return yaml.safe_dump(document)


def complaints(service: str, operation: str, request: Mapping[str, Any]) -> list[str]:
    """What botocore refuses before it sends, what its model says that AWS refuses, and what the references say."""
    shape = model(service).operation_model(operation).input_shape
    assert shape is not None
    report = ParamValidator().validate(request, shape)
    found = [report.generate_report()] if report.has_errors() else list(problems(dict(request), shape))
    if operation == "CreateEndpointConfig":
        found += configs.list_problems(dict(request))
        for variant in configs.variants(dict(request)):
            found += configs.variant_problems(variant)
    return found


def calls(recipe: Recipe) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The API calls that create the recipe's resources, and the one that updates its endpoint."""
    for item in desired([recipe], ACCOUNT):
        if item.kind in OPERATIONS:
            yield *OPERATIONS[item.kind], item.request
        if item.kind == "Endpoint":
            yield "sagemaker", "UpdateEndpoint", item.update or {}


@pytest.mark.parametrize(
    ("path", "value"), OFFERED, ids=lambda item: ".".join(item) if isinstance(item, tuple) else str(item)
)
def test_every_value_of_the_schema_can_be_deployed(path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, recipe_text(path, value)))
    assert [found for call in calls(recipe) if (found := complaints(*call))] == []


def test_the_schema_still_offers_what_sagemaker_routes_by() -> None:
    values = [value for path, value in OFFERED if path == ("platform", "routing")]
    assert {value.upper().replace("-", "_") for value in values} == set(
        model("sagemaker").shape_for("RoutingStrategy").enum
    )


def test_prefix_aware_routing_by_default_passes_over_an_instance_that_decodes_all_it_can(tmp_path: Path) -> None:
    recipe = load(write_recipe(tmp_path, recipe_text(("platform", "routing"), "prefix-aware")))
    (config,) = [item.request for item in desired([recipe], ACCOUNT) if item.kind == "EndpointConfig"]
    assert config["ProductionVariants"][0]["RoutingConfig"] == {
        "RoutingStrategy": "PREFIX_AWARE",
        "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": 128},
    }
