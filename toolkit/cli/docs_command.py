"""`toolkit docs`: the documentation in the terminal, without a browser or a network."""

from __future__ import annotations

import difflib
import re
from typing import Annotated

import typer

from toolkit.cli.output import answer, next_step
from toolkit.cli.recipe_commands import Json
from toolkit.cli.table import table
from toolkit.errors import UsageError
from toolkit.home import docs_dir

# In the order in which they are read: the tutorial, what to do, then why.
_FOLDERS = (".", "howto", "explain")
_FIGURE = re.compile(r"<figure.*?<figcaption>(.*?)</figcaption>\s*</figure>", re.DOTALL)
_NOT_FOR_USERS = ("index", "known-threads", "security-scan")


def register(app: typer.Typer) -> None:
    app.command()(docs)


def docs(
    page: Annotated[
        str | None, typer.Argument(help="A page of the list, or a word to look for in all of them.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the pages of the documentation, or print one of them."""
    files = [path for folder in _FOLDERS for path in sorted((docs_dir() / folder).glob("*.md"))]
    texts: dict[str, str] = {}
    for path in (path for path in files if path.stem not in _NOT_FOR_USERS):
        name = f"{path.parent.name}/{path.stem}" if path.stem in texts else path.stem
        texts[name] = _FIGURE.sub(r"(A picture: \1)", path.read_text(encoding="utf-8"))
    if page in texts:
        answer({"page": page, "text": texts[page]}, as_json, lambda: texts[page].rstrip())
        return
    found = {name: text for name, text in texts.items() if page is None or page.lower() in text.lower()}
    if not found:
        near = difflib.get_close_matches(page or "", texts, n=1) or ["tutorial"]
        raise UsageError(f"no page is called {page}, and none has that word", hint=f"Run: toolkit docs {near[0]}")
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in found.items()}
    answer({"pages": titles}, as_json, lambda: table(("page", "about"), list(titles.items())))
    if not as_json:
        next_step("docs", "tutorial" if "tutorial" in found else next(iter(found)))
