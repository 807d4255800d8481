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


def check(
    recipe: RecipeLike,
    *,
    account: Callable[[Recipe], Iterable[Finding]] | None = None,
    today: date | None = None,
    ask: bool = False,
) -> Report:
    """All findings on a recipe, including errors in the file. Raises RecipeNotFound or UnreadableRecipe.

    `account` returns findings on the account that the recipe is deployed to; its exceptions are not caught. `today`
    tells old facts from recent ones. With `ask` the engine itself is asked, if the recipe's version is installed here:
    that takes half a minute, and is kept, so that later checks know it too.
    """
    try:
        complete = load(recipe)
    except RecipeError as error:
        return Report(error.recipe, error.findings)
    return run.check(complete, account=account, today=today, ask=ask)
