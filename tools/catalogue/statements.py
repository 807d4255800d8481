"""The statements of a module: far fewer than its nodes, and all of those that raise and define something."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator

_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Those in a module or statement, with itself, in the order of `ast.walk`."""
    todo = deque([node])
    while todo:
        node = todo.popleft()
        if isinstance(node, ast.stmt):
            yield node
        for name in _BLOCKS:
            todo.extend(getattr(node, name, ()))
