"""Do the recipe's platform and engine read every key? The classes of its sections have those that it reads."""

from __future__ import annotations

from collections.abc import Iterator

from toolkit.findings import Finding, Severity
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.section import Section

_OF_PLATFORMS = ("platform", "scaling", "rollout", "network", "observability", "training")
_OF_ENGINES = ("engine", "speculation")


def check_no_effect(recipe: Recipe) -> Iterator[Finding]:
    """Findings on keys that only others read; one of a rehearsal of the recipe's platform does no harm."""
    places = (
        (recipe.platform_rules.sections, _OF_PLATFORMS, f"on platform `{recipe.platform.name}`"),
        (recipe.engine_rules.sections, _OF_ENGINES, f"with engine `{recipe.engine.name}`"),
    )
    for sections, names, where in places:
        for name in names:
            section: Section | None = getattr(recipe, name)
            read = sections.get(name, Section)
            for key in section.dump(what_runs=True) if section else ():
                if key not in read.model_fields:
                    rehearsal = name == "platform" and issubclass(_declared_by(type(section), key), read)
                    severity: Severity = "info" if rehearsal else "error"
                    message, path = f"`{key}` has no effect {where}", f"{name}.{key}"
                    yield Finding("recipe.no-effect", message, path, hint="Remove it.", severity=severity)


def _declared_by(merged: type, key: str) -> type:
    return next(kind for kind in merged.__mro__ if key in kind.__annotations__)
