"""The keys of a recipe that Grove reads: its drafts are trees."""

from __future__ import annotations

from pydantic import Field

from toolkit.recipe.assemble import Sections
from toolkit.recipe.schema import EngineSection, SpeculationSection
from toolkit.recipe.section import PositiveInt


class GroveSpeculation(SpeculationSection):
    """A tree of K levels."""

    topk: PositiveInt = Field(4, description="children that a node of the tree has at most")
    draft_tokens: PositiveInt = Field(8, description="nodes of the tree that are verified at once")


SECTIONS: Sections = {"engine": EngineSection, "speculation": GroveSpeculation}
