"""The keys of a recipe that the engines for Trainium read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from toolkit.recipe.assemble import Sections
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import EngineSection, SpeculationSection


class NeuronEngine(EngineSection):
    """An engine that compiles."""

    compile: Literal["ahead", "at-start"] = Field(
        "ahead",
        description="Trainium: `ahead` serves what `toolkit compile`, or a cluster's Job, has made; `at-start` "
        "compiles while it starts, which may take longer than SageMaker waits",
    )

    @property
    def compile_ahead(self) -> bool:
        return self.compile == "ahead"


def cluster_of(recipe: Recipe) -> Any | None:
    """The cluster's section of a recipe that runs on one."""
    return getattr(recipe.platform, "kubernetes", None)


SECTIONS: Sections = {"engine": NeuronEngine, "speculation": SpeculationSection}
