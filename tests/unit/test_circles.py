"""No circle of imports, wherever they stand: inside functions, for type checkers, or as the text of the registry."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import toolkit

PACKAGE = Path(toolkit.__file__).parent
REGISTRIES = {"platforms.json": "toolkit.registry", "engines": "toolkit.engines.registry"}
"""Who imports what a file or a folder of the catalogue names."""

Graph = dict[str, set[str]]


def module_of(path: Path) -> str:
    parts = ("toolkit", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, known: set[str]) -> Iterator[str]:
    """The package's modules that a file imports; a name of a package that is a module is that module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative"
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else node.module or "" for name in submodules)


def registered(document: Any) -> Iterator[str]:
    """The modules of all `module:attribute` in a document."""
    if isinstance(document, dict | list):
        for item in document.values() if isinstance(document, dict) else document:
            yield from registered(item)
    elif isinstance(document, str) and document.startswith("toolkit.") and ":" in document:
        yield document.partition(":")[0]


@cache
def import_graph() -> Graph:
    files = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    graph = {name: {*imports(path.read_text(), {*files})} & {*files} - {name} for name, path in files.items()}
    for name, registry in REGISTRIES.items():
        named = PACKAGE / "catalog" / name
        for path in named.glob("*.json") if named.is_dir() else (named,):
            graph[registry] |= {*registered(json.loads(path.read_text()))}
    return graph


def circles(graph: Graph) -> list[set[str]]:
    """The strongly connected components of more than one module, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            members = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(members)

    for name in graph:
        if name not in order:
            visit(name)
    return found


def test_the_search_finds_circles() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}) == [{"a", "b", "c"}]


def test_the_registries_text_counts() -> None:
    graph = import_graph()
    assert "toolkit.engines.vllm.rules" in graph["toolkit.engines.registry"]
    assert "toolkit.platforms.kubernetes.session" in graph["toolkit.registry"]


def test_no_circle_of_imports() -> None:
    assert [sorted(circle) for circle in circles(import_graph())] == []
