"""The body of an endpoint's CloudWatch dashboard.

Widgets as in CloudWatch's "Dashboard Body Structure and Syntax". PromQL needs widgets of type `chart`, which that page
names; their properties are taken from public dashboards (unverified).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from toolkit import documents
from toolkit.endpoint.metrics import DIMENSIONS
from toolkit.measure import expected
from toolkit.planning.resources import Account
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.rules import metrics
from toolkit.platforms.sagemaker.rules.metrics import ACCEPTED, DRAFTED, INVOCATIONS
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import MetricNames

_OWNER = re.compile(r"^Endpoint `([^`]+)`, made by toolkit\b", re.MULTILINE)
# A row has 24 columns.
_TEXT_HEIGHT, _WIDTH, _HEIGHT = 5, 8, 6
Row = list[Any]


def body(recipe: Recipe, account: Account, variants: Sequence[str], alarms: Sequence[str]) -> dict[str, Any]:
    """SageMaker's metrics, the engine's metrics and acceptance. The first widget names the endpoint."""
    region, tells = account.region, recipe.engine_rules.metrics
    names = tells.names if tells else None
    graphs = [
        *_requests(recipe, variants, region),
        *(_engine(recipe, names, variants, region) if names else []),
        *(_acceptance_from_the_log(recipe, region) if recipe.speculation else []),
        *(_acceptance(recipe, names, region) if recipe.speculation and names else []),
        *(_measurements(recipe, region) if recipe.speculation else []),
    ]
    if alarms:
        prefix = f"arn:{account.partition}:cloudwatch:{region}:{account.id}:alarm:"
        properties = {"title": "Alarms", "alarms": [prefix + name for name in alarms]}
        graphs.insert(0, {"type": "alarm", "properties": properties})
    text = {"type": "text", "properties": {"markdown": _text(recipe, names, region, bool(alarms))}}
    head = {**text, "x": 0, "y": 0, "width": 24, "height": _TEXT_HEIGHT}
    return {"widgets": [head, *(_place(widget, number) for number, widget in enumerate(graphs))]}


@dataclass(frozen=True)
class _Properties:
    markdown: str = ""


@dataclass(frozen=True)
class _Widget:
    properties: _Properties


@dataclass(frozen=True)
class _Dashboard:
    widgets: list[_Widget]


def owner(body: str) -> str | None:
    """The endpoint of a dashboard, None for somebody else's dashboard."""
    try:
        first, *_ = documents.parse(_Dashboard, body).widgets
    except ValueError:
        return None
    marked = _OWNER.search(first.properties.markdown)
    return marked[1] if marked else None


def _place(widget: Mapping[str, Any], number: int) -> dict[str, Any]:
    row, column = divmod(number, 24 // _WIDTH)
    return {
        **widget,
        "x": column * _WIDTH,
        "y": _TEXT_HEIGHT + row * _HEIGHT,
        "width": _WIDTH,
        "height": _HEIGHT,
    }


def _text(recipe: Recipe, names: MetricNames | None, region: str, alarms: bool) -> str:
    graphs = (
        "Graphs marked PromQL need SageMaker's detailed observability, which is on. They were not tested on a live "
        f"account: if one stays empty, look for `{names.prefix}` in CloudWatch's Query Studio."
        if names
        else f"{recipe.engine.name} has no metrics of its own."
    )
    lines = [
        f"# {recipe.name}",
        f"Endpoint `{recipe.name}`, made by toolkit in {region}. The next deployment overwrites changes made here.",
        "",
        *_acceptance_text(recipe, alarms),
        graphs,
    ]
    return "\n".join(lines)


def _acceptance_text(recipe: Recipe, alarms: bool) -> list[str]:
    if recipe.speculation is None:
        return ["No speculation.", ""]
    k, floor = expected.draft_length(recipe), expected.acceptance_floor(recipe)
    tokens = recipe.speculation.num_speculative_tokens
    what = (
        f"{recipe.method}, K={tokens}. Acceptance length = 1 + accepted / drafts: tokens per target step, bonus token "
        "included. Acceptance rate = accepted / drafted tokens."
    )
    if not alarms:
        why = "No alarm on acceptance: `observability.alarms` is false."
    elif k is None:
        why = "No alarm on acceptance: it cannot be read from the engine's log, because K varies or log stats are off."
    elif floor is None:
        why = f"No alarm on acceptance: the recipe has no `evidence` with an `acceptance_length` for K={k}."
    else:
        why = (
            f"An alarm goes off below {floor:g}, {expected.MARGIN_PERCENT} % of the lowest length published for K={k}."
        )
    return [what, why, ""]


def _requests(recipe: Recipe, variants: Sequence[str], region: str) -> list[dict[str, Any]]:
    """SageMaker's own metrics. Latencies are in microseconds."""

    def rows(*wanted: tuple[str, str], namespace: str = INVOCATIONS) -> list[Row]:
        return [
            [
                namespace,
                name,
                *chain.from_iterable(metrics.dimensions(recipe, variant).items()),
                {"stat": stat, "label": _label(variant, variants, name, stat)},
            ]
            for variant in variants
            for name, stat in wanted
        ]

    streaming = [] if aws(recipe).inference_component else [("FirstChunkLatency", "p50"), ("FirstChunkLatency", "p99")]
    broken_off = [] if aws(recipe).inference_component else [("MidStreamErrors", "Sum")]
    errors = [("InvocationModelErrors", "Sum"), ("Invocation5XXErrors", "Sum"), ("Invocation4XXErrors", "Sum")]
    latencies = [("ModelLatency", "p50"), ("ModelLatency", "p99"), ("OverheadLatency", "Average")]
    namespace, gpu, memory = metrics.utilization(recipe)
    queue = {"label": "engine.max_num_seqs: above it requests wait", "value": recipe.engine.max_num_seqs}
    return [
        _metric("Requests per minute", region, rows(("Invocations", "Sum"))),
        _metric("Errors per minute", region, rows(*errors, *broken_off)),
        _metric("Latency, µs", region, rows(*latencies, *streaming)),
        _metric("Requests in flight per container", region, rows((metrics.concurrency(recipe), "Maximum")), queue),
        _metric("GPU, %", region, rows((gpu, "Average"), (memory, "Average"), namespace=namespace)),
    ]


def _engine(recipe: Recipe, names: MetricNames, variants: Sequence[str], region: str) -> list[dict[str, Any]]:
    """The engine's own metrics."""
    prefixes = {variant: f"{variant} " if len(variants) > 1 else "" for variant in variants}
    return [
        _chart(
            title,
            region,
            {
                prefix + label: query.format(of=metrics.labels(recipe, variant))
                for variant, prefix in prefixes.items()
                for label, query in queries.items()
            },
        )
        for title, queries in _engine_queries(names).items()
    ]


def _engine_queries(names: MetricNames) -> Mapping[str, Mapping[str, str]]:
    """PromQL queries by title of the graph, with `{of}` for the selector."""

    def rate(metric: str) -> str:
        return f"sum(rate({metric}{{of}}[5m]))"

    def quantiles(metric: str) -> Mapping[str, str]:
        return {
            "p50": f"histogram_quantile(0.5, {rate(metric)})",
            "p99": f"histogram_quantile(0.99, {rate(metric)})",
        }

    return {
        "Time to first token, s (PromQL)": quantiles(names.time_to_first_token),
        "Time per output token, s (PromQL)": quantiles(names.time_per_output_token),
        "Tokens per second (PromQL)": {"output": rate(names.generated_tokens), "prompt": rate(names.prompt_tokens)},
        "Requests in the engine (PromQL)": {
            "running": f"sum({names.running_requests}{{of}})",
            "waiting": f"sum({names.waiting_requests}{{of}})",
        },
        "KV cache in use, % (PromQL)": {"fullest": f"100 * max({names.kv_cache_usage}{{of}})"},
    }


def _acceptance(recipe: Recipe, names: MetricNames, region: str) -> list[dict[str, Any]]:
    """From the engine's counters of the variant that drafts."""
    labels = metrics.labels(recipe)

    def rate(counter: str) -> str:
        return f"sum(rate({counter}{labels}[5m]))"

    accepted, drafts = rate(names.accepted_tokens), rate(names.drafts)
    by_position = rate(names.accepted_by_position).replace("sum(", "sum by (position) (", 1)
    share_by_position = f"100 * {by_position} / on () group_left () {drafts}"
    return [
        _chart("Acceptance length (PromQL)", region, {"length": f"1 + {accepted} / {drafts}"}),
        _chart("Acceptance rate, % (PromQL)", region, {"rate": f"100 * {accepted} / {rate(names.drafted_tokens)}"}),
        _chart("Acceptance rate by position, % (PromQL)", region, {"": share_by_position}),
    ]


_MEASURED = {
    "Speedup": "Speedup over the baseline",
    "OutputTokensPerSecond": "Output tokens per second",
    "TimePerOutputTokenP50": "Time per output token, s (median)",
    "TimeToFirstTokenP50": "Time to first token, s (median)",
}


def _measurements(recipe: Recipe, region: str) -> list[dict[str, Any]]:
    """What `toolkit prove --publish` measured: both arms side by side, by workload and load."""
    schema = f'{{"{metrics.namespace(recipe.name)}",{",".join(DIMENSIONS)}}}'
    label = " ".join(f"${{PROP('Dim.{name}')}}" for name in DIMENSIONS)
    return [
        _metric(
            f"{title} (toolkit prove --publish)",
            region,
            [[{"expression": f"SEARCH('{schema} MetricName=\"{name}\"', 'Average', 300)", "label": label}]],
            period=300,
        )
        for name, title in _MEASURED.items()
    ]


def _acceptance_from_the_log(recipe: Recipe, region: str) -> list[dict[str, Any]]:
    k, floor = expected.draft_length(recipe), expected.acceptance_floor(recipe)
    if k is None:
        return []
    namespace = metrics.namespace(recipe.name)
    sums: list[Row] = [
        [namespace, ACCEPTED, {"id": "accepted", "stat": "Sum", "visible": False}],
        [namespace, DRAFTED, {"id": "drafted", "stat": "Sum", "visible": False}],
    ]
    length: list[Row] = [*sums, [{"expression": metrics.acceptance_length(k), "label": "acceptance length"}]]
    rate: list[Row] = [*sums, [{"expression": "100 * accepted / drafted", "label": "acceptance rate"}]]
    alarm = {"label": "alarm", "value": floor} if floor else None
    return [
        _metric("Acceptance length (engine's log)", region, length, alarm, period=300),
        _metric("Acceptance rate, % (engine's log)", region, rate, period=300),
    ]


def _metric(
    title: str, region: str, rows: Sequence[Row], line: Mapping[str, Any] | None = None, *, period: int = 60
) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "title": title,
        "region": region,
        "view": "timeSeries",
        "period": period,
        "metrics": list(rows),
        "yAxis": {"left": {"min": 0}},
    }
    if line:
        properties["annotations"] = {"horizontal": [line]}
    return {"type": "metric", "properties": properties}


def _chart(title: str, region: str, queries: Mapping[str, str]) -> dict[str, Any]:
    lines = [
        {
            "id": f"q{number}",
            "type": "cloudwatch-metrics",
            "language": "PromQL",
            "query": query,
            **({"label": label} if label else {}),
        }
        for number, (label, query) in enumerate(queries.items(), start=1)
    ]
    return {
        "type": "chart",
        "properties": {"title": title, "region": region, "view": "line", "data": {"queries": lines}},
    }


def _label(variant: str, variants: Sequence[str], metric: str, stat: str) -> str:
    name = metric if stat in ("Sum", "Average", "Maximum") else f"{metric} {stat}"
    return f"{variant} {name}" if len(variants) > 1 else name
