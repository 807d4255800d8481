"""A recipe in a notebook: what is served, how, where and for how much; its file is folded below."""

from __future__ import annotations

from toolkit.display import Fragment, card, dollars_per_hour, facts, folded
from toolkit.documents import read_file
from toolkit.recipe.resolve import Recipe
from toolkit.recipe.rules import price_per_hour


def recipe_card(recipe: Recipe) -> str:
    speculation, engine = recipe.speculation, recipe.engine
    rows: list[tuple[str, object]] = [
        ("target", recipe.target),
        ("drafter", recipe.drafter),
        ("method", f"{recipe.method}, K = {speculation.num_speculative_tokens}" if speculation else "no speculation"),
        ("engine", f"{engine.name} {engine.version}"),
        ("limits", _limits(recipe)),
        ("platform", _platform(recipe)),
        ("price", dollars_per_hour(price_per_hour(recipe))),
        ("workloads", ", ".join(recipe.workloads)),
        ("measured", _measured(recipe)),
    ]
    settings = "\n".join(f"{key}: {value}" for key, value in recipe.to_dict().items())
    parts = (facts(rows), folded(recipe.path, _source(recipe)), folded("all settings, with defaults", settings))
    return card(recipe.name, *parts, says=recipe.description)


def _limits(recipe: Recipe) -> str:
    context = f"{recipe.engine.max_model_len:,} tokens of context" if recipe.engine.max_model_len else ""
    return ", ".join(filter(None, (context, f"{recipe.engine.max_num_seqs} requests at once")))


def _platform(recipe: Recipe) -> str:
    if not recipe.platform_rules.facts.has_instance_types:
        return recipe.platform.name
    return f"{recipe.platform.name}, {' or '.join(recipe.platform.instance_types)}"


def _measured(recipe: Recipe) -> str:
    """The speedups that the recipe's evidence gives."""
    found = [item for item in recipe.evidence if item.speedup]
    return "; ".join(f"{item.speedup:.2f}x on {item.workload} ({item.hardware}, {item.date})" for item in found)


def _source(recipe: Recipe) -> str | Fragment:
    """The text of the recipe's file; empty where it is gone."""
    try:
        return read_file(recipe.path).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
