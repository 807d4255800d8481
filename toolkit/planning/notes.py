"""What the reader of a plan should know of the engine, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.catalog import neuron
from toolkit.recipe.resolve import Recipe


def engine_notes(recipe: Recipe) -> Iterator[str]:
    """Which generation of the Neuron SDK serves, and why no newer one does."""
    chosen, family = recipe.engine.generation, neuron.family(recipe.platform.instance_types[0])
    newest = neuron.newest(neuron.ANY_ENGINE, recipe.method, family)
    if chosen is None or newest is None:
        return
    about = f", {chosen.note}" if chosen.note else ""
    if chosen != newest:
        yield f"Engine: {chosen}{about}; the recipe says so, and {newest} does {recipe.method} on {family} too"
        return
    newer = neuron.generations()[: neuron.generations().index(chosen)]
    without = [f"{item.engine} {item.version}" for item in newer if family in item.families]
    others = f"; newer ones do not: {', '.join(without)}" if without else ""
    yield f"Engine: {chosen}{about}; it is the newest that does {recipe.method} on {family}{others}"
