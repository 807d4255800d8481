"""Platforms and engines are asked through the registry: outside their rooms no code goes by their names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import toolkit
from toolkit.catalog import registry

PACKAGE = Path(toolkit.__file__).parent
MOST_BRANCHES = 5


def compared(path: Path) -> Iterator[str]:
    """Texts that the module's code compares something with."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                for part in ast.walk(side):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value


def texts(path: Path) -> Iterator[str]:
    """Texts of the module's code, docstrings left out."""
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def modules(*without: str) -> list[Path]:
    outside = [PACKAGE / name for name in without]
    return [path for path in PACKAGE.rglob("*.py") if not any(folder in path.parents for folder in outside)]


def test_few_branches_go_by_a_platforms_name() -> None:
    platforms = set(registry.platforms())
    found = [path.name for path in modules("platforms") for text in compared(path) if text in platforms]
    assert len(found) <= MOST_BRANCHES, found


def test_no_code_names_an_engine() -> None:
    """But for training, `convert`, JumpStart's images of vLLM, and the engine of this machine."""
    engines = set(registry.engines())
    found = {
        path.relative_to(PACKAGE).as_posix() for path in modules("engines") for text in texts(path) if text in engines
    }
    found -= {"training/convert.py", "training/data.py"}
    assert found <= {"platforms/sagemaker/rules/jumpstart_entry.py", "platforms/local/doctor.py"}
    flags = [path for path in modules("engines") for text in texts(path) if text.startswith(("SM_VLLM_", "vllm:"))]
    assert {path.name for path in flags} <= {"jumpstart_entry.py"}


def test_planning_has_no_platforms_word() -> None:
    assert len(list((PACKAGE / "planning").glob("*.py"))) <= 10
