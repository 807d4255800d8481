"""The reference of the Python API, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import toolkit
from toolkit import errors
from toolkit.api.deployment import DeploymentPlan
from toolkit.api.endpoint import Endpoint
from toolkit.apply.diagnose import Explanation
from toolkit.checks.run import Report
from toolkit.endpoint.access import ConnectInfo
from toolkit.endpoint.generation import Generation, Stream
from toolkit.findings import Finding
from toolkit.measure.report import BenchReport
from toolkit.recipe.recipe import Recipe
from tools.docs.markdown import code, page, prose, table

CLASSES = (
    Endpoint,
    ConnectInfo,
    Generation,
    Stream,
    Recipe,
    Report,
    Finding,
    DeploymentPlan,
    BenchReport,
    Explanation,
)
_INTRODUCTION = """\
`import toolkit` is light: each function brings in what it needs when it is first used. A recipe is given as a path,
as a name from `toolkit recipes`, or as what `toolkit.load` returned."""

_ONE_LINE = 90


def python_page() -> str:
    """The public functions, the classes that they return, and the errors that they raise."""
    public = {name: getattr(toolkit, name) for name in toolkit.__all__}
    ours = {name: one for name, one in public.items() if not inspect.isclass(one)}
    functions = [part for name, one in ours.items() for part in _function(f"### toolkit.{name}", one)]
    classes = [part for cls in CLASSES for part in _class(cls)]
    listed = [cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, errors.ToolkitError)]
    rows = [
        (f"`{cls.__module__}.{cls.__name__}`", f"`{cls.__bases__[0].__name__}`", inspect.getdoc(cls) or "")
        for cls in listed
    ]
    failures = table(("error", "is a", "meaning"), rows)
    return page(
        "Python API", _INTRODUCTION, "## Functions", *functions, "## What they return", *classes, "## Errors", failures
    )


def _class(cls: type) -> Iterator[str]:
    yield f"### {'toolkit.' if cls.__name__ in toolkit.__all__ else ''}{cls.__name__}"
    ours = [base for base in cls.__mro__ if base.__module__.startswith("toolkit")]
    for base in ours:
        yield from _documentation(base)
    if is_dataclass(cls):
        fields = [name for name in cls.__dataclass_fields__ if not name.startswith("_")]
        yield f"Fields: {', '.join(f'`{name}`' for name in fields)}."
    for name, member in (member for base in ours for member in vars(base).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"#### {cls.__name__}.{name}"
            yield from _documentation(member)
        elif inspect.isfunction(member):
            yield from _function(f"#### {cls.__name__}.{name}", member, cls.__name__)


def _function(title: str, function: Callable[..., Any], itself: str = "Self") -> Iterator[str]:
    yield title
    yield code(f"{title.lstrip('# ')}{_signature(function)}".replace("-> Self", f"-> {itself}"), "python")
    yield from _documentation(function)


class _Bare(str):
    """An annotation that is shown without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(function: Callable[..., Any]) -> str:
    """Arguments one a line where they are many; names with an underscore are for tests."""
    signature = inspect.signature(function)
    shown = [
        item.replace(annotation=_bare(item.annotation))
        for item in signature.parameters.values()
        if item.name != "self" and not item.name.startswith("_")
    ]
    text = str(signature.replace(parameters=shown, return_annotation=_bare(signature.return_annotation)))
    if len(text) <= _ONE_LINE:
        return text
    arguments, arrow, returned = text[1:].rpartition(") -> ")
    return "(\n    " + re.sub(r", (?=\w+:|\*,|\*\*)", ",\n    ", arguments) + f",\n{arrow}{returned}"


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _documentation(thing: object) -> Iterator[str]:
    text = inspect.getdoc(thing) or ""
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        as_it_stands = any(line.startswith("  ") for line in lines)
        yield code(paragraph) if as_it_stands else prose(paragraph)
