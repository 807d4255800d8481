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

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.api import bench as bench
    from toolkit.api import build as build
    from toolkit.api import check as check
    from toolkit.api import compile as compile
    from toolkit.api import connect as connect
    from toolkit.api import deploy as deploy
    from toolkit.api import destroy as destroy
    from toolkit.api import endpoints as endpoints
    from toolkit.api import explain as explain
    from toolkit.api import fit as fit
    from toolkit.api import improve as improve
    from toolkit.api import load as load
    from toolkit.api import new as new
    from toolkit.api import plan as plan
    from toolkit.api import recipes as recipes
    from toolkit.api import render as render
    from toolkit.api import rollback as rollback
    from toolkit.api import status as status
    from toolkit.api import train as train
    from toolkit.api import train_plan as train_plan
    from toolkit.api import tune as tune
    from toolkit.api import watch as watch
    from toolkit.api import what_if as what_if

__all__ = [
    "bench",
    "build",
    "check",
    "compile",
    "connect",
    "deploy",
    "destroy",
    "endpoints",
    "explain",
    "fit",
    "improve",
    "load",
    "new",
    "plan",
    "recipes",
    "render",
    "rollback",
    "status",
    "train",
    "train_plan",
    "tune",
    "watch",
    "what_if",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from toolkit import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
