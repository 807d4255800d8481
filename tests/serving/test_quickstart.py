"""Commands of README and tutorial, and notebooks 01 and 06, with the endpoint that other tests share.

`deploy` then finds that no changes are needed. Notebook 06 brings it back to what it was before its last section, which
removes it: notebook 01 does that too.
That the same cells deploy what is not there yet is shown on AWS's stand-in, in tests/aws/test_notebook_on_sagemaker.py.
This is best the last module of those that share the endpoint: another would deploy it again.
"""

from __future__ import annotations

import re

import pytest
from documented_commands import TUTORIAL, of_toolkit
from run_notebook import output, run

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.cli import main

pytestmark = [
    pytest.mark.serving,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


LOCAL = ("tiny/p-eagle", "tiny-p-eagle")
AT_THE_END = (("destroy", "tiny/p-eagle", "--yes"), ("local", "stop"))
SHORT = {"prove": ("--requests", "1", "--max-tokens", "24", "--time", "10s")}
DOCUMENTED = dict.fromkeys(
    call
    for page in ("README.md", TUTORIAL)
    for call in of_toolkit(page)
    if set(LOCAL) & set(call) or call in (("doctor",), ("status",)) or call in AT_THE_END
)


@pytest.mark.parametrize("call", [call for call in DOCUMENTED if call not in AT_THE_END], ids=" ".join)
def test_a_documented_command(endpoint: Endpoint, call: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code = main.run([*call, *SHORT.get(call[0], ())])

    assert code in ((0, 1) if call[0] == "prove" else (0,)), "one request may be too few to prove all"
    assert capsys.readouterr().out


def test_a_plan_of_what_is_in_service_leads_to_a_request(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["plan", "tiny/p-eagle", "--baseline"]) == 0
    printed = capsys.readouterr()
    assert "\n0 changes on local" in printed.out
    assert printed.err == "Next: toolkit invoke tiny-p-eagle Hello\n"


def test_an_endpoints_life_but_for_its_removal(endpoint: Endpoint) -> None:
    notebook = run("06_operations", until="## Remove")

    assert "the same tokens as before: True" in output(notebook, "second =")
    (length,) = re.findall(r"([\d.]+) tokens per target step", output(notebook, "rollback("))
    assert float(length) > 5, "more than K=4 can give"
    assert ": 0 changes, " in output(notebook, "nothing is left to do")
    assert "flag-value" in output(notebook, "explain(")


def test_the_quickstart_runs_to_its_end(endpoint: Endpoint) -> None:
    notebook = run("01_quickstart")

    assert "Its answers are the target model" in output(notebook, "prove(")
    assert "tiny-p-eagle" not in [found.name for found in toolkit.endpoints(platform="local")]


@pytest.mark.parametrize("call", AT_THE_END, ids=" ".join)
def test_a_documented_command_at_the_end(call: tuple[str, ...]) -> None:
    assert call in DOCUMENTED
    assert main.run(call) == 0
