"""What watches an endpoint: which alarms and graphs a recipe gets, and whether they still are what they shall be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from aws_kinds import ALARMS, DASHBOARD, SCALING, differs, halved, kind_of, wanted
from fakes import ACCOUNT
from filter_patterns import extract
from pairs import recipe_with, write_hub_pair
from reports import example

from toolkit.engines.vllm.rules import RULES
from toolkit.loading import load, on_platform
from toolkit.measure.expected import acceptance_floor
from toolkit.measure.report import figures_of
from toolkit.planning.resources import Existing, Resource
from toolkit.platforms.local.validation import problems
from toolkit.platforms.sagemaker.keys import AwsObservability, ComponentSection
from toolkit.platforms.sagemaker.kinds.base import ContentKind
from toolkit.platforms.sagemaker.kinds.monitoring import rollback_alarms
from toolkit.platforms.sagemaker.rules import widgets
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.schema import Evidence, InstanceType, ScalingSection

ONE = ("AllTraffic",)
BOTH = ("speculative", "baseline")
TOPIC = "arn:aws:sns:us-west-2:123456789012:oncall"
# As the logger of vLLM 0.32 writes it.
LINE = (
    "(APIServer pid=7) INFO 11-21 09:12:53 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.30, "
    "Accepted throughput: 13.90 tokens/s, Drafted throughput: 42.80 tokens/s, Accepted: 139 tokens, "
    "Drafted: 428 tokens, Per-position acceptance rate: 0.570, 0.374, 0.243, 0.112, Avg Draft acceptance rate: 32.5%"
)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """K=7, and evidence for it."""
    published = [evidence("chat", 3.8), evidence("code", 3.3), evidence("code", 2.0, k=3)]
    return replace(load(write_hub_pair(tmp_path)), evidence=tuple(published))


def evidence(workload: str, acceptance_length: float | None, k: int | None = 7) -> Evidence:
    return Evidence(
        workload=workload,
        num_speculative_tokens=k,
        acceptance_length=acceptance_length,
        hardware="a GPU",
        engine="vllm 0.30.0",
        date="2026-11-20",
        source="us",
    )


def watched(recipe: Recipe, **observability: Any) -> Recipe:
    return replace(recipe, observability=AwsObservability(**observability))


def alarm_names(recipe: Recipe) -> list[str]:
    return [item.name for item in wanted(recipe, "Alarm")]


def alarm(recipe: Recipe, name: str) -> Mapping[str, Any]:
    return next(item.request for item in wanted(recipe, *ALARMS) if item.name == name)


def board(recipe: Recipe) -> list[dict[str, Any]]:
    """The dashboard's widgets."""
    (made,) = wanted(recipe, "Dashboard")
    return list(json.loads(made.request["DashboardBody"])["widgets"])


def text(recipe: Recipe) -> str:
    return str(board(recipe)[0]["properties"]["markdown"])


def titles(recipe: Recipe) -> set[str]:
    return {widget["properties"]["title"] for widget in board(recipe)[1:]}


# ---- what there is ----


def test_on_aws_an_endpoint_is_watched(recipe: Recipe) -> None:
    found = wanted(recipe, *ALARMS, "Dashboard")
    assert [(item.kind, item.name) for item in found] == [
        ("LogGroup", "/aws/sagemaker/Endpoints/hub"),
        ("MetricFilter", "/aws/sagemaker/Endpoints/hub:toolkit-AcceptedTokens"),
        ("MetricFilter", "/aws/sagemaker/Endpoints/hub:toolkit-DraftedTokens"),
        ("Alarm", "toolkit-hub-errors"),
        ("Alarm", "toolkit-hub-first-token"),
        ("Alarm", "toolkit-hub-acceptance"),
        ("Dashboard", "toolkit-hub-us-west-2"),
    ]


def test_on_this_machine_it_is_not(recipe: Recipe) -> None:
    here = on_platform(recipe, "local")
    assert [*wanted(here, *ALARMS, "Dashboard"), *rollback_alarms(here, ONE)] == []


def test_a_dashboard_without_alarms(recipe: Recipe) -> None:
    quiet = watched(recipe, alarms=False)
    assert [*wanted(quiet, "Alarm"), *rollback_alarms(quiet, ONE)] == []
    assert "Alarms" not in titles(quiet)
    assert "No alarm on acceptance: `observability.alarms` is false" in text(quiet)
    assert [item.kind for item in wanted(quiet, *DASHBOARD)] == [
        "LogGroup",
        "MetricFilter",
        "MetricFilter",
        "Dashboard",
    ]


def test_alarms_without_a_dashboard(recipe: Recipe) -> None:
    assert wanted(watched(recipe, dashboard=False), "Dashboard") == []
    assert len(alarm_names(watched(recipe, dashboard=False))) == 3


def test_an_inference_component_is_watched_by_its_own_metrics(recipe: Recipe) -> None:
    component = recipe_with(recipe, inference_component=ComponentSection(endpoint="shared"))
    assert wanted(component, *ALARMS)[0].name == "/aws/sagemaker/InferenceComponents/hub"
    assert alarm_names(component) == ["toolkit-hub-errors", "toolkit-hub-no-copy", "toolkit-hub-acceptance"]
    assert {"Name": "InferenceComponentName", "Value": "hub"} in alarm(component, "toolkit-hub-no-copy")["Dimensions"]
    shown = board(component)
    queries = [query["query"] for widget in shown for query in widget["properties"].get("data", {}).get("queries", [])]
    assert all('{"aws.sagemaker.inference_component.name"="hub"}' in query for query in queries)
    assert "FirstChunkLatency" not in json.dumps(shown)


def test_the_alarm_on_first_tokens_is_in_microseconds_as_sagemakers_metric_is(recipe: Recipe) -> None:
    made = alarm(recipe, "toolkit-hub-first-token")
    seconds = re.search(r"after more than (\d+) s", made["AlarmDescription"])
    assert seconds
    assert made["Threshold"] == int(seconds[1]) * 1_000_000


def test_the_minutes_in_an_alarms_text_are_those_after_which_it_sounds(recipe: Recipe) -> None:
    told = {}
    for name in alarm_names(recipe):
        made = alarm(recipe, name)
        text = made["AlarmDescription"]
        found = re.search(r"(?:(\d+) of )?(\d+) (?:consecutive )?minutes", text)
        assert found, text
        period = made["Period"] if "Period" in made else made["Metrics"][0]["MetricStat"]["Period"]
        told[name] = found[0]
        minutes = [made[key] * period / 60 for key in ("DatapointsToAlarm", "EvaluationPeriods")]
        assert minutes == [int(found[1] or found[2]), int(found[2])], text
    assert sorted(told.values()) == ["15 minutes", "3 of 5 minutes", "5 consecutive minutes"]


def test_a_component_that_may_have_no_copies_is_not_in_alarm_without(recipe: Recipe) -> None:
    scaling = ScalingSection(min_instances=0, max_instances=2)
    idle = recipe_with(recipe, inference_component=ComponentSection(), scaling=scaling)
    assert "toolkit-hub-no-copy" not in alarm_names(idle)


def test_the_variants_of_an_experiment_have_alarms_and_lines_of_their_own(recipe: Recipe) -> None:
    assert alarm_names(halved(recipe)) == [
        "toolkit-hub-errors-speculative",
        "toolkit-hub-errors-baseline",
        "toolkit-hub-first-token-speculative",
        "toolkit-hub-first-token-baseline",
        "toolkit-hub-acceptance",
    ]
    graphs = [widget["properties"] for widget in board(halved(recipe))[1:]]
    first_token = next(graph for graph in graphs if graph["title"].startswith("Time to first token"))
    labels = [query["label"] for query in first_token["data"]["queries"]]
    assert labels == ["speculative p50", "speculative p99", "baseline p50", "baseline p99"]


# ---- alarms ----


def test_only_errors_undo_an_update(recipe: Recipe) -> None:
    assert rollback_alarms(recipe, ONE) == ["toolkit-hub-errors"]
    assert rollback_alarms(recipe, BOTH) == ["toolkit-hub-errors-speculative", "toolkit-hub-errors-baseline"]


def test_requests_that_the_caller_got_wrong_are_no_errors(recipe: Recipe) -> None:
    *_, share = alarm(recipe, "toolkit-hub-errors")["Metrics"]
    assert share["Expression"] == "100 * (model_errors - client_errors) / requests"
    assert share["ReturnData"]


def test_alarms_are_sent_to_the_topic_of_the_recipe(recipe: Recipe) -> None:
    for item in wanted(watched(recipe, notify=TOPIC), *ALARMS):
        if item.kind == "Alarm":
            assert item.request["AlarmActions"] == item.request["OKActions"] == [TOPIC]


def test_acceptance_is_held_to_four_fifths_of_the_lowest_evidence_for_k(recipe: Recipe) -> None:
    made = alarm(recipe, "toolkit-hub-acceptance")
    assert (made["ComparisonOperator"], made["Threshold"]) == ("LessThanThreshold", 2.64)
    assert made["Metrics"][-1]["Expression"] == "1 + 7 * accepted / drafted"


@pytest.mark.parametrize(
    "published",
    [(), (evidence("chat", None),), (evidence("chat", 3.8, k=3),)],
    ids=["none", "of speed only", "for another K"],
)
def test_without_evidence_acceptance_has_no_alarm_and_the_dashboard_says_so(
    recipe: Recipe, published: tuple[Evidence, ...]
) -> None:
    unknown = replace(recipe, evidence=published)
    assert acceptance_floor(unknown) is None
    assert "toolkit-hub-acceptance" not in alarm_names(unknown)
    assert "No alarm on acceptance: the recipe has no `evidence` with an `acceptance_length` for K=7" in text(unknown)


def varying(recipe: Recipe) -> list[Recipe]:
    assert recipe.speculation
    schedule = ((1, 8, 7), (9, 128, 3))
    other = InstanceType(type="ml.g6e.xlarge", num_speculative_tokens=4)
    return [
        replace(recipe, speculation=recipe.speculation.edit(num_speculative_tokens_per_batch_size=schedule)),
        recipe_with(recipe, instance_types=("ml.g6.xlarge", other.type), overrides={other.type: other}),
        replace(recipe, engine=recipe.engine.edit(args={"disable-log-stats": True})),
    ]


@pytest.mark.parametrize("case", [0, 1, 2], ids=["by batch size", "by instance type", "no log stats"])
def test_where_the_log_does_not_tell_the_engines_counters_remain(recipe: Recipe, case: int) -> None:
    unknown = varying(recipe)[case]
    assert [item.kind for item in wanted(unknown, *ALARMS)] == ["LogGroup", "Alarm", "Alarm"]
    assert "No alarm on acceptance: it cannot be read from the engine's log" in text(unknown)
    assert "Acceptance length (PromQL)" in titles(unknown)
    assert "Acceptance length (engine's log)" not in titles(unknown)


def test_without_speculation_there_is_no_acceptance(recipe: Recipe) -> None:
    plain = recipe.baseline()
    assert [item.kind for item in wanted(plain, *ALARMS)] == ["LogGroup", "Alarm", "Alarm"]
    assert not any("cceptance" in title for title in titles(plain))


# ---- the engine's log line ----


def test_tokens_are_counted_from_the_engines_log() -> None:
    found = extract(RULES.metrics.draft_line(4), LINE)
    assert found
    assert (found["accepted"], found["drafted"]) == ("139", "428")


def test_the_acceptance_length_from_tokens_is_the_engines_own() -> None:
    found = extract(RULES.metrics.draft_line(4), LINE)
    assert found
    assert round(1 + 4 * float(found["accepted"]) / float(found["drafted"]), 2) == 2.3


@pytest.mark.parametrize("prefix", ["", "[sagemaker logs] ", "2026-11-21T09:12:53Z vllm "])
def test_whatever_stands_before_it(prefix: str) -> None:
    assert extract(RULES.metrics.draft_line(4), prefix + LINE.split("] ", 1)[1])


@pytest.mark.parametrize(
    "line",
    [
        "(APIServer pid=7) INFO 11-21 09:12:53 [loggers.py:271] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
        "generation throughput: 61.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%",
        LINE.replace("0.243, 0.112", "0.243"),
    ],
    ids=["another line", "another K"],
)
def test_other_lines_are_not_counted(line: str) -> None:
    assert extract(RULES.metrics.draft_line(4), line) is None


# ---- the dashboard ----


def test_the_first_widget_says_whose_the_dashboard_is(recipe: Recipe) -> None:
    (made,) = wanted(recipe, "Dashboard")
    assert widgets.owner(made.request["DashboardBody"]) == "hub"


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        "no JSON",
        '{"widgets": []}',
        '{"widgets": [{"type": "metric", "properties": {"metrics": []}}]}',
        '{"widgets": [{"type": "text", "properties": {"markdown": "Endpoint `hub`, made by me"}}]}',
    ],
)
def test_a_dashboard_of_somebody_else_is_nobodys(body: str) -> None:
    assert widgets.owner(body) is None


def test_widgets_do_not_overlap(recipe: Recipe) -> None:
    for one, other in combinations(board(recipe), 2):
        beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
        assert beside or one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]


def test_what_the_dashboard_shows(recipe: Recipe) -> None:
    assert titles(recipe) == {
        "Alarms",
        "Requests per minute",
        "Errors per minute",
        "Latency, µs",
        "Requests in flight per container",
        "GPU, %",
        "Time to first token, s (PromQL)",
        "Time per output token, s (PromQL)",
        "Tokens per second (PromQL)",
        "Requests in the engine (PromQL)",
        "KV cache in use, % (PromQL)",
        "Acceptance length (engine's log)",
        "Acceptance rate, % (engine's log)",
        "Acceptance length (PromQL)",
        "Acceptance rate, % (PromQL)",
        "Acceptance rate by position, % (PromQL)",
        "Speedup over the baseline (toolkit prove --publish)",
        "Output tokens per second (toolkit prove --publish)",
        "Time per output token, s (median) (toolkit prove --publish)",
        "Time to first token, s (median) (toolkit prove --publish)",
    }


def test_published_figures_are_searched_by_variant_and_workload(recipe: Recipe) -> None:
    shown = next(widget for widget in board(recipe) if "Speedup" in str(widget["properties"].get("title")))
    (((row,),),) = (shown["properties"]["metrics"],)
    schema = '{"toolkit/hub",Variant,Workload,Load}'
    assert row["expression"] == f"SEARCH('{schema} MetricName=\"Speedup\"', 'Average', 300)"


def test_what_is_searched_is_published(recipe: Recipe) -> None:
    rows = [row for widget in board(recipe) for row in widget["properties"].get("metrics", [])]
    searches = [row[0]["expression"] for row in rows if isinstance(row[0], dict) and "expression" in row[0]]
    searched = {name for text in searches for name in re.findall(r'MetricName="(\w+)"', text)}
    published = {figure.name for figure in figures_of(example())}
    assert searched
    assert searched <= published


def test_every_graph_asks_for_this_endpoint_only(recipe: Recipe) -> None:
    for widget in board(recipe)[2:]:
        properties = widget["properties"]
        for query in properties.get("data", {}).get("queries", []):
            selectors = re.findall(r"vllm:\w+(\{[^}]*\})", query["query"])
            assert selectors
            assert all('"aws.sagemaker.endpoint.name"="hub"' in selector for selector in selectors)
        for row in properties.get("metrics", []):
            assert isinstance(row[0], dict) or row[0] == "toolkit/hub" or row[2:4] == ["EndpointName", "hub"]


def test_the_alarms_of_the_dashboard_are_those_that_are_made(recipe: Recipe) -> None:
    shown = board(recipe)[1]["properties"]["alarms"]
    assert shown == [f"arn:aws:cloudwatch:us-west-2:123456789012:alarm:{name}" for name in alarm_names(recipe)]


def test_the_same_endpoint_elsewhere_has_another_dashboard(recipe: Recipe) -> None:
    (there,) = wanted(recipe, "Dashboard", account=replace(ACCOUNT, region="eu-west-1"))
    assert there.name == "toolkit-hub-eu-west-1"


# ---- requests ----

OPERATIONS: Mapping[str, tuple[str, str]] = {
    "MetricFilter": ("logs", "PutMetricFilter"),
    "Alarm": ("cloudwatch", "PutMetricAlarm"),
    "Dashboard": ("cloudwatch", "PutDashboard"),
}


@pytest.mark.parametrize("component", [None, ComponentSection()])
def test_requests_are_such_as_aws_takes(recipe: Recipe, component: ComponentSection | None) -> None:
    made = recipe_with(recipe, inference_component=component)
    session = botocore.session.get_session()
    for item in wanted(made, *ALARMS, "Dashboard"):
        if item.kind != "LogGroup":
            service, operation = OPERATIONS[item.kind]
            shape = session.get_service_model(service).operation_model(operation).input_shape
            assert shape is not None
            assert list(problems(item.request, shape)) == []


# ---- whether they are what they shall be ----


def everything(recipe: Recipe) -> list[Resource]:
    scaling = ScalingSection(min_instances=0, max_instances=2)
    component = recipe_with(recipe, inference_component=ComponentSection(), scaling=scaling)
    return [*wanted(recipe, "MetricFilter", "Alarm", "Dashboard"), *wanted(component, *SCALING)]


def holding(resource: Resource, held: Mapping[str, Any]) -> Existing:
    kind = kind_of(resource.kind)
    assert isinstance(kind, ContentKind)
    return kind.described(resource.name, "hub", held)


def test_what_was_just_made_is_what_it_shall_be(recipe: Recipe) -> None:
    for item in everything(recipe):
        assert not differs(item, holding(item, item.request)), item.name


def test_what_aws_adds_does_not_count(recipe: Recipe) -> None:
    for item in everything(recipe):
        described = json.loads(json.dumps(item.request)) | {"StateValue": "OK", "CreationTime": 0}
        for metric in described.get("Metrics", []):
            metric.get("MetricStat", {})["Unit"] = "None"
        assert not differs(item, holding(item, described)), item.name


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("toolkit-hub-errors", {"Threshold": 50.0}),
        ("toolkit-hub-errors", {"AlarmActions": [TOPIC]}),
        ("toolkit-hub-errors", {"ActionsEnabled": False}),
        ("toolkit-hub-errors", {"Metrics": []}),
        ("toolkit-hub-first-token", {"MetricName": "ModelLatency"}),
        ("toolkit-hub-us-west-2", {"DashboardBody": '{"widgets": []}'}),
        ("/aws/sagemaker/Endpoints/hub:toolkit-AcceptedTokens", {"filterPattern": "ERROR"}),
        ("inference-component/hub", {"MaxCapacity": 20}),
        ("inference-component/hub/concurrency", {"TargetTrackingScalingPolicyConfiguration": {"TargetValue": 1.0}}),
        ("inference-component/hub/from-zero", {"Alarm": {}}),
    ],
)
def test_what_somebody_changed_is_found(recipe: Recipe, name: str, change: dict[str, Any]) -> None:
    item = next(item for item in everything(recipe) if item.name == name)
    assert differs(item, holding(item, {**item.request, **change}))


@pytest.mark.parametrize(
    ("tagged", "days", "changed"),
    [(True, 30, False), (True, 365, False), (True, None, True), (False, 30, True), (False, None, True)],
)
def test_a_log_group_needs_our_tag_and_an_end_to_its_retention(
    recipe: Recipe, tagged: bool, days: int | None, changed: bool
) -> None:
    (group,) = wanted(recipe, "LogGroup")
    state = {"Tagged": tagged, "RetentionInDays": days}
    assert differs(group, Existing("LogGroup", group.name, True, ("hub",), state)) is changed
