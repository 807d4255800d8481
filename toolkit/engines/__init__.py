"""Engines: one folder each, which holds all that differs between them. Other rooms ask `recipe.engine.rules`.

A folder has `rules.py` with an EngineRules (toolkit/recipe/rules.py), which the engine's file in catalog/engines names.
Beside it: facts by version, flags and variables, checks, the memory that it takes, and JSON with the causes of failure
and the stages of its log. `arguments` is what all have in common: the recipe as a container's environment.
"""

from pathlib import Path

CAUSES = Path(__file__).with_name("causes.json")
"""Causes of failure that every engine may name, in the words of what all are built on."""
