"""A recipe in other tools' forms: a CloudFormation template, manifests for a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from toolkit.api.context import arms_of, complete_recipe, open_for_plan, pin_by_lock
from toolkit.checks.run import require
from toolkit.errors import RecipeError, UsageError
from toolkit.findings import Finding
from toolkit.loading import RecipeLike, load
from toolkit.planning.resources import Account
from toolkit.platforms.kubernetes.rules import manifests
from toolkit.platforms.kubernetes.rules.train_job import train_job
from toolkit.platforms.parts import Templates
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.trained import as_trained
from toolkit.registry import rules_of


def template(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> dict[str, Any]:
    """All that `deploy` would make where there is nothing, as a CloudFormation template. Starts nothing.

    Raises RecipeError when a check finds an error, or for a stack that could not work; UsageError for a recipe that
    does not run on AWS, or compiles ahead.
    """
    loaded, templates = _of_aws(recipe, platform)
    require(loaded)
    rules = rules_of(loaded.platform.name)
    complete, account = complete_recipe(loaded, open_for_plan(loaded))
    arranged = templates.arrange(complete, account)
    document = templates.template(rules.desired(arms_of(arranged, baseline), account))
    if failures := templates.failures(document):
        hint = "A stack of this template would not start."
        findings = [Finding("cloudformation.fails", text, "platform.weights", hint=hint) for text in failures]
        raise RecipeError(str(loaded.path), findings)
    return document


def ci_roles(recipe: RecipeLike, *, platform: str | None = None) -> dict[str, Any]:
    """Two roles for GitHub Actions as a CloudFormation template: one only plans, the other deploys. Starts nothing.

    Raises UsageError for a recipe that does not run on AWS.
    """
    from toolkit.platforms.sagemaker.ci_roles import template as roles  # brings boto3

    loaded, _ = _of_aws(recipe, platform)
    return roles(*complete_recipe(loaded, open_for_plan(loaded)))


def role_policy(recipe: RecipeLike, *, platform: str | None = None, baseline: bool = False) -> dict[str, Any]:
    """The IAM policy document that the execution role of the recipe's endpoint needs, if somebody else makes that role.

    Starts nothing. Raises UsageError for a recipe that does not run on AWS.
    """
    loaded, _ = _of_aws(recipe, platform)
    made = replace(loaded, platform=loaded.platform.edit(role="create"))
    complete, account = complete_recipe(made, open_for_plan(made))
    wanted = rules_of(made.platform.name).desired(arms_of(complete, baseline), account)
    documents = [json.loads(item.request["PolicyDocument"]) for item in wanted if item.kind == "RolePolicy"]
    statements = [statement for document in documents for statement in document["Statement"]]
    return {**documents[0], "Statement": [one for i, one in enumerate(statements) if one not in statements[:i]]}


def _of_aws(recipe: RecipeLike, platform: str | None) -> tuple[Recipe, Templates]:
    loaded = load(recipe, platform)
    templates = rules_of(loaded.platform.name).parts.templates
    if templates is None:
        hint = "Write `platform: {name: sagemaker}`, or add: --platform sagemaker"
        message = f"CloudFormation is AWS's, and {loaded.name} runs on platform `{loaded.platform.name}`"
        raise UsageError(message, hint=hint)
    return loaded, templates()


def render(recipe: RecipeLike, *, baseline: bool = False, to_train: bool = False) -> dict[str, list[Mapping[str, Any]]]:
    """Manifests of a recipe for a cluster, by part: `namespace`, `base`, `serve`, `compile`, `benchmark` and `rbac`.

    They go in this order, but what `compile` has runs before `serve` does; `namespace` may have other endpoints.
    Needs no cluster. `to_train` gives the part `train` alone, for a head that need not exist yet. Raises RecipeError
    when a check finds an error, UsageError for what Kubernetes cannot do.
    """
    loaded = load(recipe, "kubernetes")
    loaded = as_trained(loaded) if to_train else loaded
    require(loaded, to_train=to_train)
    pinned = pin_by_lock(loaded, Account("", ""))
    if to_train:
        return {"train": [item.request for item in train_job(pinned)]}
    return manifests.parts(arms_of(pinned, baseline))
