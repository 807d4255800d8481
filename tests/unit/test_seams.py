"""Platforms and engines are asked through the registry: outside their rooms no code goes by their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import toolkit
from toolkit import registry
from toolkit.engines import registry as engine_registry

PACKAGE = Path(toolkit.__file__).parent
MOST_BRANCHES = 5
# What AWS calls Neuron besides its engines: cores and devices of chips, their driver and its settings, how a cluster
# gives them to pods. And the folder of compiled code in users' buckets, which is found again by its name.
OF_AWS = re.compile(
    r"neuron_(cores|devices|driver)|NEURON_(LOGICAL_NC_CONFIG|RT_VIRTUAL_CORE_SIZE)|Neuron driver|aws-neuronx-dkms"
    r"|aws\.amazon\.com/neuron|neuron\.aws\.com|Neuron's (DRA driver|device plugin)|\bNEURON\b|'neurons'"
    r"|awsdocs-neuron\.readthedocs-hosted\.com\S*|NeuronConfig|logicalNeuronCore|neuronDriverVersion|'neuron/'"
)


def compared(path: Path) -> Iterator[str]:
    """Texts that the module's code compares something with."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                for part in ast.walk(side):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value


class WithoutProse(ast.NodeTransformer):
    """Leaves out docstrings, and those below a constant or a field."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def code(path: Path) -> str:
    """The module's names and texts, without docstrings and comments."""
    return ast.unparse(WithoutProse().visit(ast.parse(path.read_text())))


def modules(*without: str) -> list[Path]:
    outside = [PACKAGE / name for name in without]
    return [path for path in PACKAGE.rglob("*.py") if not any(folder in path.parents for folder in outside)]


def test_few_branches_go_by_a_platforms_name() -> None:
    platforms = set(registry.platforms())
    found = [path.name for path in modules("platforms") for text in compared(path) if text in platforms]
    assert len(found) <= MOST_BRANCHES, found


def test_no_code_names_an_engine() -> None:
    named = re.compile("|".join(name.partition("-")[0] for name in engine_registry.engines()), re.IGNORECASE)
    found = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in modules("engines")
        if named.search(path.read_text())
        for line in code(path).splitlines()
        if named.search(OF_AWS.sub("", line))
    }
    assert found == set()


def test_planning_has_no_platforms_word() -> None:
    assert len(list((PACKAGE / "planning").glob("*.py"))) <= 10
