"""What the Prometheus operator reads: where to scrape an endpoint's pods, and when to tell somebody."""

from __future__ import annotations

from typing import Any

from toolkit.measure import expected
from toolkit.planning.resources import Resource
from toolkit.platforms.kubernetes.keys import cluster
from toolkit.platforms.kubernetes.rules.metadata import manifest, selector
from toolkit.recipe.recipe import Recipe

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
