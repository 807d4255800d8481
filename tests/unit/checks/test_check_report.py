"""The report: its forms, and the table of all codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairs import RECIPE, edit_config, write_pair, write_recipe

import toolkit
from toolkit.api.checking import check
from toolkit.checks import run
from toolkit.checks.codes import codes, explain
from toolkit.checks.run import Report, require
from toolkit.errors import RecipeError, UsageError
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.platforms.sagemaker.keys import AwsTraining
from toolkit.recipe.facts import Lock
from toolkit.recipe.recipe import EngineRules, Recipe
from toolkit.recipe.rules import EngineAnswer

ERROR = Finding("pair.mask-token", "no mask token", "speculation.model", 6, hint="Add one.")
WARNING = Finding("lock.stale", "stale", "target.model", 3, hint="", severity="warning")


def test_every_code_that_the_source_gives_is_explained() -> None:
    folder = Path(toolkit.__file__).parent
    text = "".join(source for path in folder.rglob("*.py") if "Finding(" in (source := path.read_text()))
    families = "|".join(dict.fromkeys(name.split(".")[0] for name in codes()))
    given = set(re.findall(rf'"((?:{families})\.(?!json|yaml)[a-z0-9-]+)"', text))
    keys = {f"training.{key}" for key in AwsTraining.model_fields} | {
        "container.wheels"
    }  # some codes are called like the key at fault
    assert given - (keys - set(codes())) == set(codes())


def test_a_code_is_explained() -> None:
    text = str(explain("pair.positions"))
    assert text.startswith("pair.positions (error; warning where speculation only stops): the drafter knows fewer")
    assert "source: vLLM issues 48894, 57941" in text


def test_what_is_not_known_of_a_code_has_no_line() -> None:
    assert not [name for name, code in codes().items() if re.search(r": *$", str(code), re.MULTILINE)]


def test_a_mistyped_code_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"Did you mean pair\.mask-token") as caught:
        explain("pair.mask-tokn")
    assert caught.value.message == "unknown code `pair.mask-tokn`"


def test_a_report_is_true_when_nothing_is_an_error() -> None:
    assert Report("r.yaml", (WARNING,))
    assert not Report("r.yaml", (WARNING, ERROR))
    assert Report("r.yaml", (WARNING, ERROR)).errors == [ERROR]


def test_a_report_as_text() -> None:
    assert repr(Report("r.yaml", (WARNING, ERROR))) == (
        "<Report r.yaml: 1 errors>\n"
        "r.yaml:3 target.model: warning: stale [lock.stale]\n"
        "r.yaml:6 speculation.model: no mask token [pair.mask-token]\n"
        "    Add one."
    )


def test_a_report_in_a_notebook_shows_text_as_text() -> None:
    html = Report("<r>", (Finding("a", "<script>", hint="<b>"),))._repr_html_()
    assert "&lt;r&gt;" in html
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;" in html


def test_a_report_as_json() -> None:
    assert json.loads(json.dumps(Report("r.yaml", (ERROR,)).to_dict())) == {
        "recipe": "r.yaml",
        "ok": False,
        "findings": [
            {
                "code": "pair.mask-token",
                "message": "no mask token",
                "path": "speculation.model",
                "line": 6,
                "hint": "Add one.",
                "severity": "error",
            }
        ],
    }


def test_faults_of_the_recipe_itself_are_findings_like_any_other(tmp_path: Path) -> None:
    report = check(write_recipe(tmp_path, RECIPE.replace("p-eagle", "peagle")))
    assert [finding.code for finding in report.findings] == ["recipe.bad-value"]


def test_findings_stand_in_the_order_of_their_lines(tmp_path: Path) -> None:
    recipe = write_pair(tmp_path)
    edit_config(tmp_path / "drafter", ptd_token_id=None)
    recipe.write_text(
        recipe.read_text().replace("0.32.0", "0.1.0").replace("max_model_len: 1024", "max_model_len: 9999")
    )
    lines = [finding.line for finding in check(recipe).findings]
    assert lines == sorted(lines, key=lambda line: line or 0)
    assert len(lines) == 5


def test_require_raises_errors_and_lets_warnings_pass(tmp_path: Path) -> None:
    recipe = load(write_pair(tmp_path))
    edit_config(tmp_path / "drafter", num_depths=1)
    assert [finding.severity for finding in require(recipe).findings] == ["warning"]
    edit_config(tmp_path / "drafter", ptd_token_id=None)
    with pytest.raises(RecipeError) as caught:
        require(recipe)
    assert [finding.code for finding in caught.value.findings] == ["pair.mask-token"]


def test_a_finding_of_no_key_stands_behind_the_file() -> None:
    assert Finding("account.credentials", "none", hint="").line_for("a.yaml") == "a.yaml: none [account.credentials]"


def test_a_short_form_that_vllm_takes_is_a_warning(tmp_path: Path) -> None:
    write_pair(tmp_path)
    text = RECIPE.replace("enforce-eager: true", "kv-cache-memory: 268435456")
    (finding,) = [one for one in check(write_recipe(tmp_path, text)).findings if one.code == "engine.unknown-flag"]
    assert (finding.severity, finding.path) == ("warning", "engine.args.kv-cache-memory")
    assert "short for `kv-cache-memory-bytes`" in finding.message


def test_what_the_engine_says_stands_beside_the_rest_but_not_twice(tmp_path: Path) -> None:
    """Whether it is kept from an earlier `--ask`, or asked now."""
    good = load(write_pair(tmp_path))
    refused = Finding("engine.refused", "no", "engine.args.dtype", hint="")
    twice = Finding("engine.refused", "no", "engine.max_num_batched_tokens", hint="")
    answer = EngineAnswer("vLLM 0.32.0", (refused, twice))
    asked = replace(good, engine_rules=Answering(good.engine_rules, answer))
    assert [finding.path for finding in run.check(asked).errors] == [twice.path, refused.path]
    small = replace(asked, engine=asked.engine.edit(max_num_batched_tokens=1))
    assert [finding.code for finding in run.check(small).errors] == ["engine.token-budget", "engine.refused"]
    assert run.check(asked).to_dict()["engine"] == {"name": "vLLM 0.32.0", "asked": True, "why_not": ""}


def test_that_it_was_not_asked_is_said_to_who_wanted_it(tmp_path: Path) -> None:
    good = load(write_pair(tmp_path))
    answer = EngineAnswer("vLLM 0.32.0", why_not="0.31.0 is installed here")
    other = replace(good, engine_rules=Answering(good.engine_rules, answer))
    assert run.check(other).findings == ()
    (finding,) = run.check(other, ask=True).findings
    assert (finding.code, finding.severity) == ("engine.not-asked", "info")
    assert finding.message == "vLLM 0.32.0 was not asked what it makes of this: 0.31.0 is installed here"


class Answering:
    """An engine's rules, with an answer of its own."""

    def __init__(self, rules: EngineRules, answer: EngineAnswer) -> None:
        self._rules, self._answer = rules, answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rules, name)

    def ask(self, recipe: Recipe, models: Lock | None, now: bool) -> EngineAnswer:
        return self._answer


def test_an_engine_that_cannot_be_asked_here_is_told() -> None:
    trainium = load("qwen3-32b/draft-model-trn2")
    (finding,) = [one for one in check(trainium, ask=True).findings if one.code == "engine.not-asked"]
    assert (finding.severity, finding.path) == ("info", "engine.version")
    assert "engine.not-asked" not in {one.code for one in check(trainium).findings}
