"""What commands for the local platform load: no SDK without need, no HTTP client, nothing that only others need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"boto3", "botocore", "huggingface_hub", "httpx", "kubernetes", "moto", "openai", "rich", "starlette", "yaml"}
OF_OTHERS = {
    "toolkit.apply.executor",
    "toolkit.api.endpoint",
    "toolkit.platforms.kubernetes.rules",
    "toolkit.platforms.local.platform",
    "toolkit.platforms.sagemaker.rules.cloudformation",
    "toolkit.platforms.sagemaker.session",
}
LOADED = """
import sys
from toolkit.cli.main import run
assert run(sys.argv[1:]) == 0
print("loaded:", *sys.modules)
"""


@pytest.mark.parametrize(
    ("command", "also"), [("check", {"toolkit.api.context", "toolkit.planning.planner"}), ("plan", set())]
)
def test_a_local_recipe_loads_only_what_the_command_needs(command: str, also: set[str], tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", LOADED, command, "tiny/p-eagle"],
        env={**os.environ, "TOOLKIT_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(process.stdout.rpartition("loaded:")[2].split())
    assert "toolkit.checks.run" in loaded
    assert loaded & (HEAVY | OF_OTHERS | also) == set()


def test_the_list_of_commands_loads_none_of_them() -> None:
    process = subprocess.run([sys.executable, "-c", LOADED, "--help"], capture_output=True, text=True, check=True)
    loaded = set(process.stdout.rpartition("loaded:")[2].split())
    assert loaded & (HEAVY | {"pydantic", "toolkit.registry", "toolkit.recipe.schema"}) == set()


def test_a_client_of_the_local_platform_loads_neither_its_servers_nor_httpx() -> None:
    """Every command that finds it running would take half a second longer."""
    program = "import sys, toolkit.platforms.local.platform, toolkit.platforms.sagemaker.staging; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "boto3" in process.stdout.split()
    assert set(process.stdout.split()) & {"httpx", "moto", "rich", "starlette", "werkzeug"} == set()
