"""The public functions: each composes the stages of the one road with the platform of the recipe.

A name is imported when it is first used, so that `check` does not load what `deploy` needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.api.acceptance import what_if as what_if
    from toolkit.api.catalogue import Catalogue as Catalogue
    from toolkit.api.catalogue import recipes as recipes
    from toolkit.api.compilation import compile as compile
    from toolkit.api.compilation import compile_plan as compile_plan
    from toolkit.api.context import RecipeLike as RecipeLike
    from toolkit.api.deployment import DeploymentPlan as DeploymentPlan
    from toolkit.api.deployment import deploy as deploy
    from toolkit.api.deployment import plan as plan
    from toolkit.api.deployment import rollback as rollback
    from toolkit.api.endpoint import Endpoint as Endpoint
    from toolkit.api.export import render as render
    from toolkit.api.export import template as template
    from toolkit.api.facts import CatalogStatus as CatalogStatus
    from toolkit.api.facts import CatalogUpdate as CatalogUpdate
    from toolkit.api.facts import catalog_status as catalog_status
    from toolkit.api.facts import catalog_update as catalog_update
    from toolkit.api.fitting import Fits as Fits
    from toolkit.api.fitting import fit as fit
    from toolkit.api.handles import connect as connect
    from toolkit.api.handles import endpoints as endpoints
    from toolkit.api.handles import watch as watch
    from toolkit.api.images import build as build
    from toolkit.api.images import scan as scan
    from toolkit.api.improvement import Improvement as Improvement
    from toolkit.api.improvement import ImprovementPlan as ImprovementPlan
    from toolkit.api.improvement import improve as improve
    from toolkit.api.improvement import improve_plan as improve_plan
    from toolkit.api.listing import Listing as Listing
    from toolkit.api.listing import status as status
    from toolkit.api.measuring import bench as bench
    from toolkit.api.proposing import NewRecipe as NewRecipe
    from toolkit.api.proposing import new as new
    from toolkit.api.removal import destroy as destroy
    from toolkit.api.saved_plan import read_plan as read_plan
    from toolkit.api.training import TrainingRun as TrainingRun
    from toolkit.api.training import train as train
    from toolkit.api.training import train_plan as train_plan
    from toolkit.api.tuning import tune as tune
    from toolkit.apply.explain import Explanation as Explanation
    from toolkit.apply.explain import explain as explain
    from toolkit.checks.run import Report as Report
    from toolkit.checks.run import check as check
    from toolkit.recipe.resolve import load as load

_MODULES = {
    "CatalogStatus": "toolkit.api.facts",
    "CatalogUpdate": "toolkit.api.facts",
    "Catalogue": "toolkit.api.catalogue",
    "DeploymentPlan": "toolkit.api.deployment",
    "Endpoint": "toolkit.api.endpoint",
    "Fits": "toolkit.api.fitting",
    "Listing": "toolkit.api.listing",
    "Explanation": "toolkit.apply.explain",
    "Improvement": "toolkit.api.improvement",
    "ImprovementPlan": "toolkit.api.improvement",
    "RecipeLike": "toolkit.api.context",
    "Report": "toolkit.checks.run",
    "TrainingRun": "toolkit.api.training",
    "bench": "toolkit.api.measuring",
    "build": "toolkit.api.images",
    "catalog_status": "toolkit.api.facts",
    "catalog_update": "toolkit.api.facts",
    "check": "toolkit.checks.run",
    "compile": "toolkit.api.compilation",
    "compile_plan": "toolkit.api.compilation",
    "connect": "toolkit.api.handles",
    "deploy": "toolkit.api.deployment",
    "destroy": "toolkit.api.removal",
    "endpoints": "toolkit.api.handles",
    "fit": "toolkit.api.fitting",
    "status": "toolkit.api.listing",
    "explain": "toolkit.apply.explain",
    "improve": "toolkit.api.improvement",
    "improve_plan": "toolkit.api.improvement",
    "load": "toolkit.recipe.resolve",
    "NewRecipe": "toolkit.api.proposing",
    "new": "toolkit.api.proposing",
    "plan": "toolkit.api.deployment",
    "read_plan": "toolkit.api.saved_plan",
    "recipes": "toolkit.api.catalogue",
    "render": "toolkit.api.export",
    "rollback": "toolkit.api.deployment",
    "scan": "toolkit.api.images",
    "template": "toolkit.api.export",
    "train": "toolkit.api.training",
    "train_plan": "toolkit.api.training",
    "tune": "toolkit.api.tuning",
    "watch": "toolkit.api.handles",
    "what_if": "toolkit.api.acceptance",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value  # `toolkit.api.images` is the function, not the module that was just imported
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
