"""The public functions: each composes the stages of the one road with the platform of the recipe."""

from toolkit.api.build import build, scan
from toolkit.api.catalogue import Catalogue, recipes
from toolkit.api.compilation import compile, compile_plan
from toolkit.api.context import RecipeLike
from toolkit.api.deployment import DeploymentPlan, deploy, plan, rollback
from toolkit.api.export import render, template
from toolkit.api.handles import connect, endpoints
from toolkit.api.removal import destroy
from toolkit.checks.run import check
from toolkit.endpoint.handle import Endpoint
from toolkit.findings import Report
from toolkit.recipe.resolve import load

__all__ = [
    "Catalogue",
    "DeploymentPlan",
    "Endpoint",
    "RecipeLike",
    "Report",
    "build",
    "check",
    "compile",
    "compile_plan",
    "connect",
    "deploy",
    "destroy",
    "endpoints",
    "load",
    "plan",
    "recipes",
    "render",
    "rollback",
    "scan",
    "template",
]
