"""The generated READMEs are those of the repository."""

from __future__ import annotations

import re
from pathlib import Path

import toolkit
from toolkit.checks.codes import codes
from toolkit.recipe.known import catalogue_dir
from tools import causes_readme, codes_readme, recipes_readme, threads_page


def test_the_table_of_recipes_is_the_generated_one() -> None:
    committed = (catalogue_dir() / "README.md").read_text(encoding="utf-8")
    assert committed == recipes_readme.readme(), "python -m tools.recipes_readme"


def test_the_table_of_codes_is_the_generated_one() -> None:
    assert codes_readme.FILE.read_text(encoding="utf-8") == codes_readme.readme(), "python -m tools.codes_readme"


def test_the_source_of_a_code_is_a_file_that_there_is() -> None:
    files = [name for code in codes().values() for name in re.findall(r"`(toolkit/[^`]+)`", code.source)]
    root = Path(toolkit.__file__).parents[1]
    assert files
    assert [name for name in files if not (root / name).exists()] == []


def test_the_table_of_causes_is_the_generated_one() -> None:
    assert causes_readme.FILE.read_text(encoding="utf-8") == causes_readme.readme(), "python -m tools.causes_readme"


def test_the_page_of_known_threads_is_the_generated_one() -> None:
    assert threads_page.FILE.read_text(encoding="utf-8") == threads_page.page(), "python -m tools.threads_page"


def test_a_row_of_the_table() -> None:
    row = recipes_readme.table(["gpt-oss-20b/p-eagle"]).splitlines()[-1]
    assert row.startswith("| [gpt-oss-20b/p-eagle](gpt-oss-20b/p-eagle.yaml) | p-eagle | 7 | ml.g7e.2xlarge | ")
    assert row.endswith(" | 3.94 tokens a step (HumanEval, K=7) | 2026-03-13 | vLLM blog 2026-03-13 (P-EAGLE) |")


def test_a_recipe_of_this_machine_costs_nothing() -> None:
    assert " | this machine | 0 | " in recipes_readme.table(["tiny/p-eagle"])
