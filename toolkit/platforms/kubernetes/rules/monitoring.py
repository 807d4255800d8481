"""What the Prometheus operator reads (where to scrape an endpoint's pods, and when to tell somebody), and Grafana.

The dashboard lies in a ConfigMap, for which the sidecar of Grafana's Helm chart (`sidecar.dashboards.label`) and
kube-prometheus-stack look by the label `grafana_dashboard`. The model is that of Grafana's "Dashboard JSON model";
nobody has opened it in a live Grafana yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from toolkit.measure import expected
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import cluster
from toolkit.platforms.kubernetes.rules.metadata import manifest, selector
from toolkit.recipe.recipe import Recipe
from toolkit.recipe.rules import MetricNames

_SCRAPE = "15s"  # as often as an autoscaler looks


def of_endpoint(recipe: Recipe) -> str:
    """The labels of its metrics, as PromQL selects them."""
    return f'{{model_name="{recipe.name}",namespace="{cluster(recipe).namespace}"}}'


def monitors(recipe: Recipe) -> list[Resource]:
    """A PodMonitor and a PrometheusRule, with the labels that the recipe says; none where it says nothing."""
    labels, rules = cluster(recipe).monitors, _rules(recipe)
    if labels is None or not rules:
        return []
    endpoints = [{"port": "http", "path": "/metrics", "interval": _SCRAPE}]
    scraped = {"selector": {"matchLabels": selector(recipe)}, "podMetricsEndpoints": endpoints}
    told = {"groups": [{"name": f"toolkit-{recipe.name}", "rules": rules}]}
    return [
        manifest(recipe, "PodMonitor", recipe.name, labels=labels, spec=scraped),
        manifest(recipe, "PrometheusRule", recipe.name, labels=labels, spec=told),
    ]


def _rules(recipe: Recipe) -> list[dict[str, Any]]:
    """Alerts, as on AWS: on acceptance where the recipe's evidence says what to expect. None without metrics."""
    metrics, of = recipe.engine_rules.metrics, of_endpoint(recipe)
    if metrics is None:
        return []
    waits = _alert(
        recipe, "ToolkitRequestsWait", f"sum({metrics.names.waiting_requests}{of}) > 0", "requests have been waiting"
    )
    floor = expected.acceptance_floor(recipe)
    if floor is None:
        return [waits]
    accepted, drafts = (f"sum(rate({name}{of}[5m]))" for name in (metrics.names.accepted_tokens, metrics.names.drafts))
    why = (
        f"the acceptance length is below {floor:g}, {expected.MARGIN_PERCENT} % of the lowest published: the traffic, "
        "its chat template or the drafter is not what it was"
    )
    return [waits, _alert(recipe, "ToolkitAcceptanceLow", f"1 + {accepted} / {drafts} < {floor:g}", why)]


def _alert(recipe: Recipe, name: str, expression: str, why: str) -> dict[str, Any]:
    summary = f"{recipe.name}: for 15 minutes {why}. See: toolkit watch {recipe.name}"
    labels = {"severity": "warning", "endpoint": recipe.name}
    return {"alert": name, "expr": expression, "for": "15m", "labels": labels, "annotations": {"summary": summary}}


_FOUND_BY = {"grafana_dashboard": "1"}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# A row has 24 columns.
_WIDTH, _HEIGHT = 8, 8
_ARM = "{{model_name}}"

_Queries = Mapping[str, str]
"""PromQL by the text of its line in the legend."""


def dashboard(recipe: Recipe) -> Resource | None:
    """None where the recipe has no `monitors`. The baseline has none: it is shown beside its endpoint."""
    metrics = recipe.engine_rules.metrics
    if metrics is None or cluster(recipe).monitors is None or recipe.baseline_of:
        return None
    data = {f"{recipe.name}.json": json.dumps(_model(recipe, metrics.names), indent=1)}
    return manifest(recipe, "ConfigMap", f"{recipe.name}-dashboard", labels=_FOUND_BY, data=data)


def _model(recipe: Recipe, names: MetricNames) -> dict[str, Any]:
    namespace = cluster(recipe).namespace
    chosen = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "title": f"{namespace}/{recipe.name}",
        "uid": hashlib.sha256(f"{namespace}/{recipe.name}".encode()).hexdigest()[:20],
        "description": "Made by toolkit. `toolkit deploy RECIPE --baseline` shows the baseline beside it.",
        "tags": ["toolkit"],
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [chosen]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(_panels(recipe, names))],
    }


def _panels(recipe: Recipe, names: MetricNames) -> list[tuple[str, str, _Queries]]:
    """Title, unit and queries of each panel; those of drafts only where it drafts."""
    own, baseline = of_endpoint(recipe), of_endpoint(recipe.baseline())
    both = own.replace(f'="{recipe.name}"', f'=~"{recipe.name}(-baseline)?"')

    def rate(metric: str, of: str, by: str = "model_name") -> str:
        return f"sum by ({by}) (rate({metric}{of}[5m]))"

    def quantile(share: float, histogram: str, of: str) -> str:
        return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', of, 'le, model_name')})"

    def spread(histogram: str) -> _Queries:
        return {f"{_ARM} p{share * 100:.0f}": quantile(share, histogram, both) for share in (0.5, 0.9)}

    def median(of: str) -> str:
        return quantile(0.5, names.time_per_output_token, of)

    served = [
        ("Time to first token", "s", spread(names.time_to_first_token)),
        ("Time between tokens", "s", spread(names.inter_token_latency)),
        ("Time per output token", "s", spread(names.time_per_output_token)),
        ("Output tokens per second", "short", {_ARM: rate(names.generated_tokens, both)}),
        (
            "Requests",
            "short",
            {
                f"{_ARM} {what}": f"sum by (model_name) ({metric}{both})"
                for what, metric in (("in work", names.running_requests), ("waiting", names.waiting_requests))
            },
        ),
        ("KV cache in use", "percentunit", {_ARM: f"max by (model_name) ({names.kv_cache_usage}{both})"}),
    ]
    if recipe.speculation is None:
        return served
    drafts, accepted = rate(names.drafts, own), rate(names.accepted_tokens, own)
    by_position = rate(names.accepted_by_position, own, "position")
    return [
        (
            "Speedup: median time per output token, the baseline's over its own",
            "short",
            {"times": f"{median(baseline)} / ignoring (model_name) {median(own)}"},
        ),
        ("Acceptance length: tokens per step of the target", "short", {"tokens": f"1 + {accepted} / {drafts}"}),
        (
            "Drafts accepted at each position",
            "percentunit",
            {"{{position}}": f"{by_position} / on () group_left () {rate(names.drafts, own, '')}"},
        ),
        *served,
    ]


def _panel(number: int, title: str, unit: str, queries: _Queries) -> dict[str, Any]:
    row, column = divmod(number, 24 // _WIDTH)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": label}
            for index, (label, query) in enumerate(queries.items())
        ],
    }
