"""SECURITY.md promises nothing that no test holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
DEFENDED = PAGE.partition("## What is defended\n")[2].partition("\n## ")[0]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
SKIPS = re.compile(r"\b(skip|skipif|xfail)\b")


@pytest.mark.parametrize("line", re.findall(r"^- .+$", DEFENDED, re.M))
def test_every_line_names_its_test(line: str) -> None:
    assert TEST.search(line), line


@pytest.mark.parametrize(("file", "name"), TEST.findall(PAGE))
def test_every_test_that_is_named_exists_and_runs(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    marks = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
    ]
    (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    marks += map(ast.unparse, found.decorator_list)
    assert not [mark for mark in marks if SKIPS.search(mark)]


def test_no_test_of_an_attack_is_without_a_line() -> None:
    """Every file of this folder is named; it may hold more tests than the page has lines."""
    files = {f"tests/security/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert files - {file for file, _ in TEST.findall(PAGE)} == {"tests/security/test_security_page.py"}


def test_the_readme_links_it() -> None:
    assert "[security](SECURITY.md)" in (ROOT / "README.md").read_text()
