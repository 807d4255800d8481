"""Engines: one folder each, with everything that differs between them. Other code uses `recipe.engine_rules`.

A folder has `rules.py` with an EngineRules (toolkit/recipe/recipe.py), to which the engine's file in catalog/engines
points, and the parts that it has. Beside it: facts by version, flags and environment variables, checks, its memory
use, and JSON files with causes of failure and stages of its log. `training.py`, to which the file points too, is what
the training of heads asks of it.
`arguments` is common to all: the recipe as a container's environment.
"""

from pathlib import Path

CAUSES = Path(__file__).with_name("causes.json")
"""Causes of failure common to all engines."""
