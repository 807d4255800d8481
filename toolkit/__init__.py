"""Deploy large language models with speculative decoding, and prove that it pays.

    recipe.yaml
       │ recipe    load -> resolve (defaults, catalogue, lock)     pure      Recipe
       v
     check     pair, engine, container, workloads                  pure      Report[Finding]    an error stops here
       v
     plan      desired resources x observed                        reads     Plan[Action]
       v
     apply     build image, stage weights, create or update, wait  writes    Record, a line per action
       v
     prove     a minute of measuring: on, lossless, does it pay?   invokes   BenchReport
       v
     endpoint  handle: chat, stream, openai(), logs                reads

`import toolkit` is light: the functions below bring in what they need when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.api.acceptance import what_if as what_if
    from toolkit.api.advising import advise as advise
    from toolkit.api.catalogue import recipes as recipes
    from toolkit.api.checking import check as check
    from toolkit.api.cleaning import clean as clean
    from toolkit.api.deployment import deploy as deploy
    from toolkit.api.deployment import plan as plan
    from toolkit.api.deployment import rollback as rollback
    from toolkit.api.endpoint import Endpoint as Endpoint
    from toolkit.api.export import render as render
    from toolkit.api.fitting import fit as fit
    from toolkit.api.handles import connect as connect
    from toolkit.api.handles import endpoints as endpoints
    from toolkit.api.handles import watch as watch
    from toolkit.api.images import build as build
    from toolkit.api.improvement import improve as improve
    from toolkit.api.jobs import compile as compile
    from toolkit.api.listing import status as status
    from toolkit.api.measuring import bench as bench
    from toolkit.api.proposing import new as new
    from toolkit.api.registering import register as register
    from toolkit.api.removal import destroy as destroy
    from toolkit.api.removal import pause as pause
    from toolkit.api.sagemaker_sdk import from_sagemaker as from_sagemaker
    from toolkit.api.sagemaker_sdk import to_sagemaker as to_sagemaker
    from toolkit.api.studying import study as study
    from toolkit.api.training import train as train
    from toolkit.api.training import train_plan as train_plan
    from toolkit.api.tuning import tune as tune
    from toolkit.apply.diagnose import explain as explain
    from toolkit.errors import ApplyError as ApplyError
    from toolkit.errors import EndpointNotFound as EndpointNotFound
    from toolkit.errors import InvocationError as InvocationError
    from toolkit.errors import PlatformError as PlatformError
    from toolkit.errors import RecipeError as RecipeError
    from toolkit.errors import ToolkitError as ToolkitError
    from toolkit.errors import UsageError as UsageError
    from toolkit.loading import load as load
    from toolkit.measure.parquet import to_parquet as to_parquet
    from toolkit.measure.report import BenchReport as BenchReport
    from toolkit.measure.report import load_report as load_report
    from toolkit.recipe.recipe import Recipe as Recipe

_MODULES = {
    "ApplyError": "toolkit.errors",
    "BenchReport": "toolkit.measure.report",
    "Endpoint": "toolkit.api.endpoint",
    "EndpointNotFound": "toolkit.errors",
    "InvocationError": "toolkit.errors",
    "PlatformError": "toolkit.errors",
    "Recipe": "toolkit.recipe.recipe",
    "RecipeError": "toolkit.errors",
    "ToolkitError": "toolkit.errors",
    "UsageError": "toolkit.errors",
    "advise": "toolkit.api.advising",
    "bench": "toolkit.api.measuring",
    "build": "toolkit.api.images",
    "check": "toolkit.api.checking",
    "clean": "toolkit.api.cleaning",
    "compile": "toolkit.api.jobs",
    "connect": "toolkit.api.handles",
    "deploy": "toolkit.api.deployment",
    "destroy": "toolkit.api.removal",
    "endpoints": "toolkit.api.handles",
    "explain": "toolkit.apply.diagnose",
    "fit": "toolkit.api.fitting",
    "from_sagemaker": "toolkit.api.sagemaker_sdk",
    "improve": "toolkit.api.improvement",
    "load": "toolkit.loading",
    "load_report": "toolkit.measure.report",
    "new": "toolkit.api.proposing",
    "pause": "toolkit.api.removal",
    "plan": "toolkit.api.deployment",
    "recipes": "toolkit.api.catalogue",
    "register": "toolkit.api.registering",
    "render": "toolkit.api.export",
    "rollback": "toolkit.api.deployment",
    "status": "toolkit.api.listing",
    "study": "toolkit.api.studying",
    "to_parquet": "toolkit.measure.parquet",
    "to_sagemaker": "toolkit.api.sagemaker_sdk",
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
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
