"""Commands that explain: `explain` names the cause of a failure, `docs` shows the documentation, without a network."""

from __future__ import annotations

import difflib
import io
import os
import re
import stat
import sys
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Annotated, BinaryIO

import typer

import toolkit
from toolkit.cli.arguments import AnyPlatform, Json
from toolkit.cli.output import answer
from toolkit.cli.table import table
from toolkit.errors import UsageError
from toolkit.home import docs_dir

_LONGEST_LINE = 65_536
_LARGEST_DOCUMENT = 64 * 1024**2


def explain(
    file: Annotated[str | None, typer.Argument(metavar="[FILE|-]", help="A log; `-` reads it from stdin.")] = None,
    reason: Annotated[
        str, typer.Option("--reason", help="What the platform says, such as SageMaker's FailureReason.")
    ] = "",
    platform: Annotated[
        AnyPlatform | None, typer.Option("--platform", help="Look for messages of this platform only.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Name the cause of a failure, the lines that show it, and the edit to make.

    Reads any log of any size, also of endpoints that the toolkit did not create: of a container, CloudWatch or Docker,
    `kubectl describe pod` or `kubectl get events`, and what `aws` answers as JSON. Exits with 1 when the cause is not
    known.
    """
    if file is None and not reason:
        raise UsageError("give a log, or --reason", hint="See: toolkit explain --help")
    if file is None:
        explanation = toolkit.explain(reason=reason, platform=platform)
    else:
        with _opened(file) as log:
            explanation = toolkit.explain(_log(log), reason=reason, platform=platform)
    answer(explanation.to_dict(), as_json, lambda: str(explanation), yes=bool(explanation))


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """A log, whatever bytes it has. Raises UsageError for a file that cannot be read."""
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as log:
            if file != "-" and stat.S_ISCHR(os.fstat(log.fileno()).st_mode) and not log.isatty():
                raise UsageError(f"{file} is a device", hint="Give the path of a log, or `-` for stdin.")
            yield log
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", hint="Give the path of a log, or `-` for stdin.") from error


def _log(stream: BinaryIO) -> str | Iterator[str]:
    """The whole text of what may be one JSON document; the lines of anything else, however many there are."""
    start = stream.read(_LONGEST_LINE) + stream.readline(_LONGEST_LINE)
    if start.lstrip()[:1] in (b"{", b"["):
        start += stream.read(_LARGEST_DOCUMENT)
        if len(start) <= _LARGEST_DOCUMENT:
            return start.decode(errors="replace")
    return _lines(chain(io.BytesIO(start), iter(lambda: stream.readline(_LONGEST_LINE), b"")))


def _lines(parts: Iterable[bytes]) -> Iterator[str]:
    for part in parts:
        yield from part.decode(errors="replace").splitlines()


# In the order in which they are read: the tutorial, what to do, then why.
_FOLDERS = (".", "howto", "explain")
_FIGURE = re.compile(r"<figure.*?<figcaption>(.*?)</figcaption>\s*</figure>", re.DOTALL)
_NOT_FOR_USERS = ("index", "known-threads", "security-scan")


_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)")
# What shows what the site has in pages that are made from code, and that are not among these.
_COMMANDS = {
    "reference/recipe": "toolkit schema",
    "reference/commands": "toolkit -h",
    "reference/checks": "toolkit check --explain CODE",
    "reference/causes": "toolkit explain LOG",
    "reference/heads": "toolkit recipes",
    "reference/python": "python -c 'import toolkit; help(toolkit)'",
}


def _shown(link: re.Match[str], pages: Container[str]) -> str:
    """A link in a terminal: its words, and the command that shows what it leads to, if there is one."""
    words, target = link.groups()
    page = PurePosixPath(target.removesuffix(".md"))
    command = _COMMANDS.get("/".join(page.parts[-2:])) or (f"toolkit docs {page.name}" if page.name in pages else "")
    return f"{words} (`{command}`)" if command else words


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
    texts = {name: _LINK.sub(lambda found: _shown(found, texts), text) for name, text in texts.items()}
    if page in texts:
        answer({"page": page, "text": texts[page]}, as_json, lambda: texts[page].rstrip())
        return
    pages = {name: text for name, text in texts.items() if page is None or page.lower() in text.lower()}
    if not pages:
        near = difflib.get_close_matches(page or "", texts, n=1) or ["tutorial"]
        raise UsageError(f"no page is called {page}, and none has that word", hint=f"Run: toolkit docs {near[0]}")
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in pages.items()}
    then = ("docs", "tutorial" if "tutorial" in pages else next(iter(pages)))
    answer({"pages": titles}, as_json, lambda: table(("page", "about"), list(titles.items())), then=then)
