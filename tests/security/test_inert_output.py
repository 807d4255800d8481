"""What is printed is inert: escape sequences, markup and HTML in values are shown, and never obeyed."""

from __future__ import annotations

import ast
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import toys
from hostile import HOSTILE, obeyed
from pairs import RECIPE, write_pair
from reports import with_text
from rich.console import Console
from ruamel.yaml import YAML
from toys import ToyBox, ToySession

import toolkit
from toolkit import registry
from toolkit.api.advising import Advice
from toolkit.api.catalogue import Catalogue
from toolkit.api.cleaning import Cleaning
from toolkit.api.endpoint import Endpoint
from toolkit.api.fitting import Fits
from toolkit.api.improvement import Improvement, ImprovementPlan
from toolkit.api.listing import Listing
from toolkit.api.proposing import NewRecipe
from toolkit.api.training_run import TrainingRun
from toolkit.apply.diagnose import Explanation
from toolkit.apply.progress import PlainProgress, TerminalProgress, default_progress
from toolkit.apply.waiter import EndpointStatus, LogLine
from toolkit.checks.run import Report
from toolkit.cli.main import run
from toolkit.cli.output import explain
from toolkit.cli.report_text import comparison_text, report_text
from toolkit.cli.study_command import study_text
from toolkit.display import card
from toolkit.endpoint.generation import Acceptance, Generation
from toolkit.endpoint.metrics import Metrics
from toolkit.endpoint.platform import Deployed
from toolkit.errors import Cause, EndpointFailed
from toolkit.findings import Finding
from toolkit.loading import load
from toolkit.measure import advise
from toolkit.measure.compare import Comparison, compare
from toolkit.measure.measurement import Gain, Interval
from toolkit.measure.study import StudyReport, published
from toolkit.measure.tune_report import TuneReport, TuneRow
from toolkit.planning.plan import Action, Plan
from toolkit.planning.retention import Leftover
from toolkit.platforms.kubernetes.rules.manifests import text
from toolkit.proposal.model import Choice
from toolkit.registry import PlatformEntry
from toolkit.sizing.fit import Fit
from toolkit.text import inert, inert_stream

SHOWN = (r"\x1b[2J", r"\u202egpj.exe", "[bold red]big[/nope]", "<img src=x onerror=alert(1)>&amp;")
YAML_HOSTILE = json.dumps(HOSTILE)
BAD_RECIPES = {
    "key": f"{RECIPE}{YAML_HOSTILE}: 1\n",
    "value": RECIPE.replace("method: p-eagle", f"method: {YAML_HOSTILE}"),
    "flag": RECIPE.replace("dtype: float32", f"{YAML_HOSTILE}: 1"),
    "file name": RECIPE.replace("./target", YAML_HOSTILE.replace("src=x", "src=/x")),
}


class HostileBox(ToyBox):
    """A platform whose endpoint, status and log an attacker wrote."""

    def address(self, name: str) -> str:
        return name

    def status(self, endpoint: str) -> EndpointStatus:
        return EndpointStatus(endpoint, HOSTILE, HOSTILE, HOSTILE)

    def logs(
        self,
        endpoint: str,
        since: float = 0.0,
        bookmarks: MutableMapping[str, str] | None = None,
        *,
        written_since: float = 0.0,
    ) -> Iterator[LogLine]:
        yield LogLine("AllTraffic/i-1", 0.0, HOSTILE)


class HostileSession(ToySession):
    def __init__(self) -> None:
        self.box = HostileBox()


RULES, SESSION = toys.RULES, HostileSession()


@pytest.fixture
def _hostile_platform() -> Iterator[None]:
    registry.register_platform("toy-box", PlatformEntry(f"{__name__}:RULES", f"{__name__}:SESSION", "toys:SECTIONS"))
    yield
    registry.unregister_platform("toy-box")


def assert_shown(written: str) -> None:
    assert obeyed(written) == []
    for part in SHOWN:
        assert part in written


@pytest.mark.parametrize("written", BAD_RECIPES.values(), ids=BAD_RECIPES)
def test_what_a_recipe_says(tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str) -> None:
    path = write_pair(tmp_path)
    path.write_text(written)
    assert run(["check", str(path)])
    out, err = capsys.readouterr()
    assert obeyed(out + err) == []
    run(["check", str(path), "--json"])
    document, _ = capsys.readouterr()
    assert obeyed(document) == []
    json.loads(document)


@pytest.mark.parametrize(
    "command",
    [("check", HOSTILE), ("plan", f"--{HOSTILE}"), ("recipes", HOSTILE)],
    ids=lambda command: command[0],
)
def test_what_an_error_says(capsys: pytest.CaptureFixture[str], command: tuple[str, ...]) -> None:
    assert run([*command]) == 2
    assert obeyed("".join(capsys.readouterr())) == []


def test_a_file_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / HOSTILE.replace("/", "")
    write_pair(tmp_path).rename(path)
    assert run(["plan", str(path)]) == 0
    assert run(["plan", str(path), "--out", f"{path}.json"]) == 0
    assert obeyed("".join(capsys.readouterr())) == []


@pytest.mark.usefixtures("_hostile_platform")
def test_a_container_s_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_pair(tmp_path)
    path.write_text(RECIPE.replace("{name: local}", "{name: toy-box}"))
    assert run(["logs", str(path)]) == 0
    assert_shown(capsys.readouterr().out)
    assert run(["logs", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lines"] == [HOSTILE]


def test_a_failure_s_evidence() -> None:
    cause = Cause("x", HOSTILE, HOSTILE, (HOSTILE,))
    for error in (EndpointFailed(HOSTILE, hint=HOSTILE, cause=cause), EndpointFailed(HOSTILE, logs=(HOSTILE,))):
        assert_shown(str(error))
        assert "red" in explain(error)


def test_progress_in_plain_lines() -> None:
    written: list[str] = []
    progress = PlainProgress(written.append)
    with progress.stage(HOSTILE):
        progress.update(HOSTILE)
        progress.say(HOSTILE)
    assert len(written) == 3
    for line in written:
        assert_shown(line)


@pytest.mark.parametrize("do", ["stage", "update", "say"])
def test_progress_on_a_terminal(do: str) -> None:
    """Compared with what harmless text of that length leads to: rich itself writes escape sequences."""

    def shown(value: str) -> list[str]:
        console = Console(file=io.StringIO(), force_terminal=True, width=1000, color_system="standard")
        progress = TerminalProgress(console)
        with progress.stage(value if do == "stage" else "wait"):
            if do != "stage":
                getattr(progress, do)(value)
        assert isinstance(console.file, io.StringIO)
        return sorted(set(obeyed(console.file.getvalue())) - {"\r"})

    assert shown(HOSTILE) == shown("harmless") == ["\x1b"]


def test_our_own_colours_reach_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    raw = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", inert_stream(raw))
    with default_progress().stage("wait"):
        print(HOSTILE, file=sys.stderr)
    assert "\x1b[32m✔\x1b[0m wait" in raw.getvalue()
    assert r"\x1b]0;title" in raw.getvalue()
    assert "\x1b]0;title" not in raw.getvalue()


def test_progress_obeys_no_markup() -> None:
    console = Console(file=io.StringIO(), width=1000)
    progress = TerminalProgress(console)
    with progress.stage(HOSTILE):
        progress.say(HOSTILE)
    assert isinstance(console.file, io.StringIO)
    for line in console.file.getvalue().splitlines():
        assert_shown(line)


def test_manifests_say_the_same_without_what_a_terminal_obeys() -> None:
    document = {"data": {HOSTILE: HOSTILE, "json": json.dumps([HOSTILE], ensure_ascii=False)}}
    lines = {"data": f"first\n{HOSTILE}\nlast\n"}
    written = text([document, lines])
    assert obeyed(written) == []
    assert list(YAML(typ="safe", pure=True).load_all(written)) == [document, lines]


def hostile_recipe(folder: Path) -> Any:
    path = write_pair(folder)
    path.write_text(
        RECIPE.replace("a pair of a few kB", YAML_HOSTILE).replace('OFFLINE: "1"', f"OFFLINE: {YAML_HOSTILE}")
        + f"tags: {{team: {YAML_HOSTILE}}}\n"
    )
    return load(path)


def hostile_plan(_: Path) -> Plan:
    verb: Any = HOSTILE
    action = Action(HOSTILE, HOSTILE, verb, HOSTILE, {HOSTILE: HOSTILE})
    return Plan(HOSTILE, HOSTILE, (HOSTILE,), (action,), None, HOSTILE, None, HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,))


def hostile_report(_: Path) -> Report:
    severity: Any = HOSTILE
    return Report(HOSTILE, (Finding(HOSTILE, HOSTILE, HOSTILE, 1, hint=HOSTILE, severity=severity),))


def hostile_metrics(_: Path) -> Metrics:
    return Metrics(HOSTILE, 60, notes=(HOSTILE,))


def hostile_catalogue(folder: Path) -> Catalogue:
    return Catalogue(((HOSTILE, hostile_recipe(folder)),))


def hostile_endpoint(_: Path) -> Endpoint:
    platform: Any = HostileBox()
    return Endpoint(HOSTILE, platform, HOSTILE, component=HOSTILE, destroyer=lambda name: hostile_plan(Path()))


def hostile_explanation(_: Path) -> Explanation:
    return Explanation(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE)


def hostile_tuning(_: Path) -> TuneReport:
    row = TuneRow(HOSTILE, HOSTILE, 1, ratio=1.5, low=1.2, high=1.9)
    return TuneReport(HOSTILE, "latency", (row,), HOSTILE, {"method": HOSTILE})


def hostile_answer(_: Path) -> Generation:
    return Generation(HOSTILE, 1, 2, HOSTILE, 0.5, HOSTILE, 1, Acceptance((0, 1)))


def hostile_listing(_: Path) -> Listing:
    deployed = Deployed(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0.0, ((HOSTILE, 1),), None, HOSTILE)
    return Listing((deployed,), (HOSTILE,))


def hostile_fits(_: Path) -> Fits:
    sized = Fit(HOSTILE, 1, 1, fits=True, weights_gib=1.0)
    return Fits(HOSTILE, (sized, Fit(HOSTILE, 1, 1, fits=False, reason=HOSTILE)), (HOSTILE,))


def hostile_comparison(_: Path) -> Comparison:
    return compare(with_text(HOSTILE), with_text(HOSTILE))


def hostile_improvement(_: Path) -> Improvement:
    ratio = Interval(1.0, 1.0, 1.0)
    own = (Gain(HOSTILE, 1, HOSTILE, ratio, ratio),)
    return Improvement(HOSTILE, HOSTILE, HOSTILE, False, HOSTILE, ratio, ratio, (1.0, 2.0), own, {HOSTILE: 1})


def hostile_improvement_plan(folder: Path) -> ImprovementPlan:
    return ImprovementPlan(HOSTILE, HOSTILE, (HOSTILE,), hostile_plan(folder), HOSTILE, HOSTILE, {HOSTILE: 1})


def hostile_run(_: Path) -> TrainingRun:
    return TrainingRun(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, {HOSTILE: 1.0})


def hostile_new_recipe(folder: Path) -> NewRecipe:
    choice = Choice("speculation.model", HOSTILE, HOSTILE, (HOSTILE,))
    return NewRecipe(folder / HOSTILE.replace("/", ""), [choice], [], [HOSTILE])


def hostile_cleaning(_: Path) -> Cleaning:
    item = Leftover("record", HOSTILE, 0.0, None, HOSTILE)
    return Cleaning((item,), (HOSTILE,), (HOSTILE,), (), ((item, HOSTILE),))


def hostile_advice(_: Path) -> Advice:
    choice = advise.Choice(
        HOSTILE, 3, 1, 1.0, 730.0, 0.1, 0.01, 1.0, margin=0.1, requests_per_instance=4, quality="measured",
        source=HOSTILE, acceptance_length=3.0,
    )  # fmt: skip
    worth = advise.Worth(3.0, 4.0, HOSTILE, HOSTILE, HOSTILE, 1, 0.1, 100.0)
    return Advice(HOSTILE, 10, 1.0, {"ttft": 1.0}, (choice,), (worth,), (), (HOSTILE,))


def hostile_study(_: Path) -> StudyReport:
    report = with_text(HOSTILE)
    arms = tuple(replace(arm, arm="speculative", workload="study/json") for arm in report.arms)
    return StudyReport(replace(report, arms=arms), dict.fromkeys(published().setting, HOSTILE))


PRINTABLE: Mapping[str, Callable[[Path], Any]] = {
    "Advice": hostile_advice,
    "Plan": hostile_plan,
    "Report": hostile_report,
    "BenchReport": lambda _: with_text(HOSTILE),
    "Cleaning": hostile_cleaning,
    "Comparison": hostile_comparison,
    "Metrics": hostile_metrics,
    "Catalogue": hostile_catalogue,
    "Endpoint": hostile_endpoint,
    "Explanation": hostile_explanation,
    "Improvement": hostile_improvement,
    "ImprovementPlan": hostile_improvement_plan,
    "TrainingRun": hostile_run,
    "TuneReport": hostile_tuning,
    "StudyReport": hostile_study,
    "Recipe": hostile_recipe,
    "Generation": hostile_answer,
    "Listing": hostile_listing,
    "Fits": hostile_fits,
    "NewRecipe": hostile_new_recipe,
}


TAGS = {"table", "tr", "td", "th", "ul", "li", "b", "div", "span", "pre", "details", "summary", "style", "h2"}


class Page(HTMLParser):
    """Tags with their attributes, the style sheets, and the other text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.styles: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "style":
            self.styles.append(data)
        else:
            self.text += data


@pytest.mark.parametrize("make", PRINTABLE.values(), ids=PRINTABLE)
def test_every_object_as_html(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    page = Page(make(tmp_path)._repr_html_())
    assert {tag for tag, _ in page.tags} <= TAGS
    attributes = [attribute for _, found in page.tags for attribute in found]
    assert {name for name, _ in attributes} <= {"class"}
    assert not any("red" in str(value) or "title" in str(value) for _, value in attributes)
    assert page.styles == Page(card("")).styles, "one style sheet, into which no value gets"
    assert not any(word in page.styles[0] for word in ("url(", "@import", "http")), "which loads nothing"
    assert "<img src=x onerror=alert(1)>&amp;" in page.text
    assert obeyed(page.text) == []


@pytest.mark.parametrize("make", PRINTABLE.values(), ids=PRINTABLE)
def test_every_object_as_text(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    assert obeyed(repr(make(tmp_path))) == []


def test_a_report_of_a_measurement_in_the_terminal() -> None:
    assert_shown(report_text(with_text(HOSTILE), 1000))
    assert_shown(study_text(hostile_study(Path()), 1000))
    assert_shown(comparison_text(compare(with_text(HOSTILE), with_text(HOSTILE)), 1000))


def test_no_object_with_html_is_left_out() -> None:
    package = Path(toolkit.__file__).parent
    with_html = {
        node.name
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        and any(isinstance(item, ast.FunctionDef) and item.name == "_repr_html_" for item in node.body)
    }
    assert with_html == set(PRINTABLE)


@pytest.mark.parametrize(
    "letter", "\u061c\u200b\u200e\u200f\u2028\u2029\u2060\u2064\ufeff\U000e0001\U000e0041\U000e007f"
)
def test_letters_that_nobody_sees(letter: str) -> None:
    shown = inert(f"a{letter}b")
    assert shown.isascii()
    assert shown == f"a{letter.encode('unicode_escape').decode()}b"


@pytest.mark.parametrize("text", ["\U0001f468\u200d\U0001f469", "\u0645\u06cc\u200c\u062e", "Zo\u00eb\ttab\r\n"])
def test_texts_of_people_stay_as_they_are(text: str) -> None:
    assert inert(text) == text
