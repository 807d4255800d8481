"""Every command in the documents has a program that is known and, if it is ours, options that exist.

Those of the README and the tutorial are also run: on this machine in tests/serving/test_quickstart.py, on AWS's
stand-in in tests/aws/test_documented_on_sagemaker.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from documented_commands import PAGES, ROOT, TUTORIAL, blocks, commands, of_toolkit
from typer.core import TyperGroup

from toolkit.cli.main import app, run
from toolkit.version import CPU_BUILDS

OTHERS = {".", "aws", "curl", "echo", "export", "git", "helm", "kubectl", "make", "pip", "python", "rm"}
CALLS = [(page, call) for page in PAGES for call in of_toolkit(page)]


def test_the_documents_have_commands() -> None:
    assert len(CALLS) > 60
    assert len(of_toolkit("README.md")) > 10
    assert len(of_toolkit(TUTORIAL)) > 15


@pytest.mark.parametrize(("page", "call"), CALLS, ids=[f"{page}-{' '.join(call)}" for page, call in CALLS])
def test_a_command_has_options_that_exist(
    page: str, call: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    group, arguments = typer.main.get_group(app), list(call)
    while arguments[0] in group.commands:
        name = arguments.pop(0)
        command = group.commands[name]
        if not (isinstance(command, TyperGroup) and arguments and arguments[0] in command.commands):
            command.make_context(name, arguments)
            return
        group = command
    pytest.fail(f"{page}: there is no command `{arguments[0]}`")


@pytest.mark.parametrize("page", PAGES)
def test_other_programs_are_common_ones(page: str) -> None:
    assert {line.split()[0] for line in commands(page)} <= {"toolkit", *OTHERS}


def test_the_readme_shows_the_recipe_and_its_mistakes_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, *_ = blocks("README.md", "yaml")
    assert (ROOT / "recipes/tiny/p-eagle.yaml").read_text(encoding="utf-8").startswith(recipe)
    monkeypatch.chdir(tmp_path)
    wrong = recipe.replace("method: p-eagle", "method: p-eagel").replace("max_num_seqs", "max_seqs")
    Path("my-recipe.yaml").write_text(wrong, encoding="utf-8")

    assert run(["check", "my-recipe.yaml"]) == 1

    shown = next(block for block in blocks("README.md", "console") if "my-recipe.yaml" in block)
    printed = capsys.readouterr()
    assert (printed.out + printed.err).strip() == shown.partition("\n")[2].strip()


def test_who_installs_vllm_for_cpus_is_told_where_its_pytorch_is() -> None:
    """The public index has no build of PyTorch that vLLM's for CPUs takes: pip finds no solution there."""
    pages = [*PAGES, *(str(path.relative_to(ROOT)) for path in (ROOT / "notebooks").glob("*.ipynb"))]
    pages.append("toolkit/apply/README.md")
    told = [
        line
        for page in pages
        for line in (ROOT / page).read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install '[\w-]+\[[\w,]*\b(local|train)\b", line)
    ]
    assert len(told) >= 7
    assert [line for line in told if CPU_BUILDS not in line] == []
