"""Statements are found wherever they stand."""

from __future__ import annotations

import ast

from tools.catalogue.statements import statements

SOURCE = """
class A:
    async def f(self):
        async with a as b:
            x = [c for c in d if c]
        while a:
            pass
        else:
            raise B("text")

def g():
    for a in b:
        if a:
            return lambda: c
        elif d:
            def h(): yield e
        else:
            assert f, "text"
    else:
        del a
    try:
        a()
    except B:
        errors.append("text")
    else:
        c()
    finally:
        d()
    match a:
        case 1 if b:
            import c
        case _:
            break
"""


def test_all_of_them_in_the_order_of_walk() -> None:
    tree = ast.parse(SOURCE)
    assert [*statements(tree)] == [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
