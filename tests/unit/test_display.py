"""What objects look like in a notebook, and as rows of pandas."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from reports import example
from toys import ToyBox

import toolkit
from toolkit.api.endpoint import Endpoint
from toolkit.api.listing import Listing
from toolkit.api.training_run import TrainingRun
from toolkit.apply.waiter import EndpointStatus
from toolkit.endpoint.generation import Acceptance, Generation
from toolkit.endpoint.platform import Deployed
from toolkit.errors import EndpointNotFound, UsageError
from toolkit.planning.plan import Action, Plan

DEPLOYED = Deployed("tiny", "local", "us-west-2", "InService", "c-1", 0.0, (), 0.0)


def test_a_recipe_is_a_card_with_price_and_source() -> None:
    recipe = toolkit.load("gpt-oss-20b/p-eagle")
    shown = recipe._repr_html_()
    assert "<th>method</th><td>p-eagle, K = 7</td>" in shown
    assert "<th>price</th><td>4.20 $/h</td>" in shown
    assert "num_speculative_tokens: 7  #" in shown, "the text of the file is folded below"
    assert "{&#x27;" not in shown.split("<details>")[0], "no Python dict at first sight"


def test_a_recipe_whose_file_is_gone_is_still_shown() -> None:
    recipe = replace(toolkit.load("tiny/p-eagle"), path=Path("/gone/recipe.yaml"))
    assert "<th>method</th>" in recipe._repr_html_()


def test_a_plan_has_a_sign_for_each_change_and_folds_what_stays() -> None:
    verbs: Any = ("create", "update", "replace", "delete", "reuse")
    actions = tuple(Action("Model", f"m-{verb}", verb, "because", {}, 180) for verb in verbs)
    plan = Plan("<r>", "sagemaker", ("e",), actions, 4.2, "f", price_before=1.2)
    shown, _, folded = plan._repr_html_().partition("<details>")
    assert [sign for sign in ("+ create", "~ update", "± replace", "- delete") if sign in shown] == [
        "+ create",
        "~ update",
        "± replace",
        "- delete",
    ]
    assert "4.20 $/h while running, 3.00 more than now" in shown
    assert "about 3 min" in shown
    assert "4 changes" in shown
    assert "m-reuse" in folded
    assert "m-reuse" not in shown
    assert replace(plan, actions=actions[3:]).size == "1 change"


@dataclass
class Gone(ToyBox):
    def status(self, endpoint: str) -> EndpointStatus:
        raise EndpointNotFound(f"there is no endpoint {endpoint}")


def test_an_endpoint_that_is_gone_is_shown_as_gone() -> None:
    platform: Any = Gone()
    shown = Endpoint("tiny", platform, destroyer=lambda name: pytest.fail(name))._repr_html_()
    assert "there is no endpoint tiny" in shown
    assert "toolkit invoke tiny" in shown


def test_an_endpoint_and_an_answer_are_short_in_a_terminal() -> None:
    platform: Any = Gone()
    endpoint = Endpoint("tiny", platform, destroyer=lambda name: pytest.fail(name), baseline="tiny-baseline")
    assert repr(endpoint) == "<Endpoint tiny, without speculation tiny-baseline>"
    assert repr(Generation("a\x1b[31m" * 99, 3, 10, "stop", 0.5)).startswith(
        r"<Generation of 10 tokens in 0.50 s: 'a\x1b"
    )


def test_an_answer_shows_what_it_took() -> None:
    answer = Generation("<b>hi</b>", 3, 10, "length", 0.5, "because", 4, Acceptance((0, 1, 3)))
    shown = answer._repr_html_()
    assert "&lt;b&gt;hi" in shown
    assert "10, 4 of them reasoning, 20 tokens/s" in shown
    assert "2.75 tokens per target step" in shown
    assert "100%, 75%" in shown
    assert "cut at max_tokens" in shown
    assert "<summary>reasoning</summary>" in shown


def test_a_listing_is_a_sequence_with_what_is_missing() -> None:
    found = Listing((DEPLOYED,), ("there are no AWS credentials",))
    assert [item.name for item in found] == ["tiny"]
    assert "<ul><li>not listed: there are no AWS credentials</li></ul>" in found._repr_html_()
    assert "<ul>" not in Listing((DEPLOYED,))._repr_html_(), "no list where nothing is missing"
    assert [line.strip() for line in repr(found).splitlines()] == [
        "<Listing: 1 endpoints>",
        f"tiny: InService, {DEPLOYED.platform} {DEPLOYED.region}",
        "not listed: there are no AWS credentials",
    ]


def test_fits_are_a_sequence_with_verdicts() -> None:
    found = toolkit.fit("gpt-oss-20b/p-eagle", instances=["ml.g7e.2xlarge", "ml.g6.xlarge"])
    assert [one.fits for one in found] == [True, False]
    assert found.ok
    assert "fits 1 of 2 instance types" in found._repr_html_()
    assert "ml.g7e.2xlarge  1             1   17.0 GiB" in repr(found)


def test_an_instance_type_that_does_not_exist_is_corrected() -> None:
    with pytest.raises(UsageError, match="not in the catalogue") as refusal:
        toolkit.fit("gpt-oss-20b/p-eagle", instances=["ml.g7e.2xlarg"])
    assert "ml.g7e.2xlarge" in str(refusal.value.hint)


ROWS = {
    "report": (example, "ttft_p50"),
    "status": (lambda: Listing((DEPLOYED,)), "price_per_hour"),
    "fit": (lambda: toolkit.fit("gpt-oss-20b/p-eagle", instances=["ml.g6.xlarge"]), "kv_gib"),
    "recipes": (toolkit.recipes, "method"),
    "check": (lambda: toolkit.check("qwen3-8b/p-eagle"), "hint"),
    "plan": (lambda: toolkit.plan("tiny/p-eagle"), "verb"),
}


@pytest.mark.parametrize(("make", "column"), ROWS.values(), ids=ROWS)
def test_rows_go_to_pandas(monkeypatch: pytest.MonkeyPatch, make: Any, column: str) -> None:
    """With a pandas that keeps what it is given: the toolkit does not need the real one."""
    pandas: Any = ModuleType("pandas")
    pandas.DataFrame = lambda rows: rows
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    rows = make().to_pandas()
    assert len(rows) >= 1
    assert column in rows[0]


def test_without_pandas_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="needs the package pandas") as refusal:
        example().to_pandas()
    assert refusal.value.hint == "Run: pip install pandas"


def test_a_run_that_is_not_waited_for_is_not_shown_as_done() -> None:
    run = TrainingRun("<r>", "local", "my-head-1", "training")
    assert 'toolkit-head toolkit-head-fair"' in run._repr_html_()
    assert 'toolkit-head toolkit-head-good"' in replace(run, status="trained", head="/heads/1")._repr_html_()
