"""Every value that the recipe schema offers leads to requests that AWS's documents allow.

Held against botocore's own validation, the enums, patterns and limits of its service models, and the conditional
requirements of the API references that the local platform and the tests' AWS know.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from aws_kinds import OPERATIONS, desired
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from component_rules import specification_problems
from fakes import ACCOUNT
from pairs import HUB_RECIPE, write_pair, write_recipe

from toolkit.api.checking import check
from toolkit.catalog import methods
from toolkit.loading import load
from toolkit.planning.artifacts import compiles_ahead
from toolkit.platforms.local import validation
from toolkit.platforms.local.validation import problems
from toolkit.platforms.sagemaker.rules.compilation import compile_resources
from toolkit.platforms.sagemaker.rules.head_training import training_resources
from toolkit.recipe.assemble import json_schema
from toolkit.recipe.recipe import Recipe
from toolkit.registry import recipe_schema

BASE: Mapping[str, Any] = {
    **yaml.safe_load(HUB_RECIPE),
    "scaling": {"min_instances": 2, "max_instances": 4},
}


SCHEMA = json_schema(recipe_schema())


def offered(node: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of every enum and every switch of a part of the schema."""
    for branch in (node, *node.get("anyOf", ())):
        if "$ref" in branch:
            yield from offered(SCHEMA["$defs"][branch["$ref"].rpartition("/")[2]], path)
        values = (True, False) if branch.get("type") == "boolean" else branch.get("enum", ())
        yield from ((path, value) for value in values)
        for name, child in branch.get("properties", {}).items():
            yield from offered(child, (*path, name))


@cache
def model(service: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(service)


TRAINIUM = {"engine": {"name": "neuron", "max_model_len": 1024}, "platform": {"instance_types": ["ml.trn2.48xlarge"]}}
TRAINING = {"training": {"data": ["hf://org/chats"]}, "speculation": {"model": "s3://bucket/head"}}
VPC = {"subnets": ["subnet-0a1b2c3d"], "security_groups": ["sg-0a1b2c3d"]}
# Of other platforms, which get no request.
NOT_SAGEMAKER = {("platform", "name"), ("platform", "run")}
# What a value needs besides: a mirror its VPC, compiled code its hardware, a drafter in the image its folder, a
# method's own key that method.
BESIDES: Mapping[tuple[str, ...], Mapping[str, Mapping[str, Any]]] = {
    ("network", "private_registry"): {"network": VPC},
    ("engine", "compile"): TRAINIUM,
    ("container", "bake_drafter"): {"speculation": {"model": "./drafter"}},
    ("training", "encrypt_traffic"): TRAINING,
    ("training", "norms"): {**TRAINING, "speculation": {"method": "eagle3", "model": "s3://bucket/head"}},
    ("training", "preset"): TRAINING,
    ("training", "responses"): TRAINING,
    ("training", "spot"): TRAINING,
    ("training", "states"): TRAINING,
    ("training", "strict"): TRAINING,
    ("speculation", "use_heterogeneous_vocab"): {"speculation": {"method": "draft-model"}},
    ("speculation", "enable_adaptive_verification"): {"speculation": {"method": "dspark"}},
}
# A method of each engine for Trainium.
ON_TRAINIUM = {"neuron": "eagle3", "vllm-neuron": "eagle3", "nxd-inference": "draft-model"}
NEWER = "step5_mtp"  # needs a newer vLLM than the recipe's, which a check says
SHADOW = (("rollout", "shadow"), True)  # a component has one variant, which a check says
OFFERED = [
    (path, value)
    for path, value in offered(SCHEMA)
    if path not in NOT_SAGEMAKER and path[:2] != ("platform", "kubernetes")
]
OF_ENDPOINTS = [
    (path, value)
    for path, value in OFFERED
    if path[0] in ("platform", "scaling", "rollout", "network", "observability") and (path, value) != SHADOW
]


def recipe_with_value(folder: Path, path: tuple[str, ...], value: Any, **sections: Mapping[str, Any]) -> Recipe:
    """A recipe of the value, with what it needs besides; `sections` are merged into it."""
    document = copy.deepcopy(dict(BASE))
    for more in (BESIDES.get(path, {}), sections):
        for name, keys in more.items():
            document[name] = {**document.get(name, {}), **keys}
    if path == ("speculation", "method"):
        document["speculation"] = drafting(value)
    else:
        section = document
        for key in path[:-1]:
            section = section.setdefault(key, {})
        section[path[-1]] = value
    if document["engine"].get("name", "vllm") != "vllm":
        del document["engine"]["version"]
        del document["engine"]["max_num_batched_tokens"]
        document["platform"] |= TRAINIUM["platform"]
        document["speculation"] = drafting(ON_TRAINIUM[document["engine"]["name"]])
    write_pair(folder)
    return load(write_recipe(folder, yaml.safe_dump(document)))


def drafting(method: str) -> dict[str, Any]:
    needs = method != methods.BASELINE and methods.method(method).drafter == "required"
    return {"method": method, **({"model": "org/drafter"} if needs else {})}


def complaints(service: str, operation: str, request: Mapping[str, Any]) -> list[str]:
    """What botocore refuses before it sends, what its model says that AWS refuses, and what the references say."""
    shape = model(service).operation_model(operation).input_shape
    assert shape is not None
    report = ParamValidator().validate(request, shape)
    found = [report.generate_report()] if report.has_errors() else list(problems(dict(request), shape))
    if operation == "CreateEndpointConfig":
        found += validation.list_problems(dict(request))
        for variant in validation.variants(dict(request)):
            found += validation.variant_problems(variant)
    if "InferenceComponent" in operation:
        found += specification_problems(request)
    return found + list(validation.guardrail_problems(request.get("DeploymentConfig", {})))


CALLS = {
    **OPERATIONS,
    "Role": ("iam", "CreateRole"),
    "RolePolicy": ("iam", "PutRolePolicy"),
    "TrainingJob": ("sagemaker", "CreateTrainingJob"),
}
UPDATES = {"Endpoint": "UpdateEndpoint", "InferenceComponent": "UpdateInferenceComponent"}


def calls(recipe: Recipe) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The API calls that create the recipe's resources, and those that update its endpoint or component."""
    found = [*desired([recipe], ACCOUNT)]
    if compiles_ahead(recipe):
        found += compile_resources([recipe], ACCOUNT)
    if recipe.training:
        found += training_resources(recipe, ACCOUNT)
    for item in found:
        if item.kind in CALLS:
            yield *CALLS[item.kind], item.request
        if item.kind in UPDATES:
            yield "sagemaker", UPDATES[item.kind], item.update or {}


def named(item: object) -> str:
    return ".".join(item) if isinstance(item, tuple) else str(item)


@pytest.mark.parametrize(("path", "value"), OFFERED, ids=named)
def test_every_value_of_the_schema_can_be_deployed(path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    recipe = recipe_with_value(tmp_path, path, value)
    assert [found for call in calls(recipe) if (found := complaints(*call))] == []


@pytest.mark.parametrize(("path", "value"), OF_ENDPOINTS, ids=named)
def test_so_it_can_for_an_inference_component_on_several_types(
    path: tuple[str, ...], value: Any, tmp_path: Path
) -> None:
    types = {"inference_component": {}, "instance_types": ["ml.g6.xlarge", "ml.g6.2xlarge"]}
    recipe = recipe_with_value(tmp_path, path, value, platform=types)
    assert [found for call in calls(recipe) if (found := complaints(*call))] == []


@pytest.mark.parametrize(("path", "value"), OFFERED, ids=named)
def test_no_value_is_refused_by_our_own_checks(path: tuple[str, ...], value: Any, tmp_path: Path) -> None:
    recipe = recipe_with_value(tmp_path, path, value)
    errors = [finding.code for finding in check(recipe).findings if finding.severity == "error"]
    assert [code for code in errors if code != "lock.missing"] == (["engine.version"] if value == NEWER else [])


def test_the_schema_still_offers_what_sagemaker_routes_by() -> None:
    values = [value for path, value in OFFERED if path == ("platform", "routing")]
    assert {value.upper().replace("-", "_") for value in values} == set(
        model("sagemaker").shape_for("RoutingStrategy").enum
    )


@pytest.mark.parametrize(("max_num_seqs", "threshold"), [(128, 128), (1024, 1024), (2048, 1024)])
def test_prefix_aware_routing_by_default_passes_over_an_instance_that_decodes_all_it_can(
    tmp_path: Path, max_num_seqs: int, threshold: int
) -> None:
    """botocore, PrefixAwareRoutingConfig: a ConcurrencyThreshold is at most 1024."""
    recipe = recipe_with_value(tmp_path, ("platform", "routing"), "prefix-aware")
    recipe = replace(recipe, engine=recipe.engine.edit(max_num_seqs=max_num_seqs))
    (config,) = [item.request for item in desired([recipe], ACCOUNT) if item.kind == "EndpointConfig"]
    assert config["ProductionVariants"][0]["RoutingConfig"] == {
        "RoutingStrategy": "PREFIX_AWARE",
        "PrefixAwareRoutingConfig": {"PrefixLength": 4096, "ConcurrencyThreshold": threshold},
    }
