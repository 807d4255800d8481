"""Check a recipe: `toolkit check`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date

from toolkit.checks import run
from toolkit.checks.run import Report
from toolkit.errors import RecipeError
from toolkit.findings import Finding
from toolkit.loading import RecipeLike, load
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import Ask


def check(
    recipe: RecipeLike,
    *,
    account: Callable[[Recipe], Iterable[Finding]] | None = None,
    today: date | None = None,
    ask: Ask = False,
) -> Report:
    """All findings on a recipe, including errors in the file. Raises RecipeNotFound or UnreadableRecipe.

    `account` returns findings on the account that the recipe is deployed to; its exceptions are not caught. `today`
    tells old facts from recent ones. With `ask` the engine itself is asked, if the recipe's version is installed here:
    that takes half a minute, and is kept, so that later checks know it too. With `ask="deep"` also if it is not: then
    its Python code is fetched, 0.3 GB once for each version.
    """
    try:
        complete = load(recipe)
    except RecipeError as error:
        return Report(error.recipe, error.findings)
    return run.check(complete, account=account, today=today, ask=ask)
