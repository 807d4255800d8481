"""How `toolkit deploy` and `toolkit train --deploy` end: one answer, and the exit code by what was proved."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from reports import verdict, with_verdicts

from toolkit.cli.endpoint_commands import finish
from toolkit.measure.report import BenchReport

PAYS = verdict("pays", True, workload="structured")
COSTS = verdict("pays", False, workload="open-ended")


@dataclass
class Proved:
    """An endpoint whose proof is given."""

    report: BenchReport
    name: str = "chat"
    speculative: bool = True
    workloads: Any = field(default_factory=lambda: [SimpleNamespace(prompts=[SimpleNamespace(text="Hello")])])

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name}

    def prove(self) -> BenchReport:
        return self.report

    def status(self) -> Any:
        return SimpleNamespace(status="InService")


@pytest.mark.parametrize("verdicts", [[PAYS], [PAYS, COSTS]])
def test_what_pays_somewhere_is_a_success(verdicts: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    finish(Proved(with_verdicts(*verdicts)), as_json=True, also={"training": {"job": "a"}})  # type: ignore[arg-type]
    answer = json.loads(capsys.readouterr().out)
    assert (answer["name"], answer["training"]) == ("chat", {"job": "a"})
    assert answer["proof"]["verdicts"]


def test_what_pays_nowhere_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        finish(Proved(with_verdicts(COSTS)), as_json=True)  # type: ignore[arg-type]
    assert ended.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["proof"]["ok"] is False


def test_what_comes_next_names_the_recipe_that_the_user_named(capsys: pytest.CaptureFixture[str]) -> None:
    """An endpoint's name alone does not lead to the recipe's own prompts, with which it is to be proved."""
    endpoint: Any = Proved(with_verdicts(PAYS))
    finish(endpoint, proof=False, as_json=False, called="tiny/p-eagle")
    finish(endpoint, proof=False, as_json=False)
    assert capsys.readouterr().err == "Next: toolkit invoke tiny/p-eagle Hello\nNext: toolkit invoke chat Hello\n"
