"""The dashboard for Grafana: its queries are PromQL, of this endpoint and its baseline alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import promql_parser
import pytest
from pairs import recipe_with

from toolkit.loading import load
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.rules.manifests import resources
from toolkit.recipe.lock import lock_path, pinned, read_lock
from toolkit.recipe.recipe import Recipe

NAME = "qwen3-32b-draft-model-trn2-eks"
OWN = f'{{model_name="{NAME}",namespace="toolkit"}}[5m]'
BOTH = f'{{model_name=~"{NAME}(-baseline)?",namespace="toolkit"}}'


def watched(monitors: Mapping[str, str] | None) -> Recipe:
    recipe = load("qwen3-32b/draft-model-trn2-eks")
    recipe = pinned(recipe, read_lock(lock_path(recipe)))
    return recipe_with(recipe, kubernetes=KubernetesSection(monitors=monitors, artifacts_bucket="ours"))


def config_maps(recipe: Recipe) -> list[Mapping[str, Any]]:
    made = [item.request for item in resources(recipe) if item.kind == "ConfigMap"]
    return [item for item in made if item["metadata"]["labels"].get("grafana_dashboard") == "1"]


def panels(recipe: Recipe) -> dict[str, list[str]]:
    """The queries of each panel by its title."""
    (found,) = config_maps(recipe)
    (text,) = found["data"].values()
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in json.loads(text)["panels"]}


def test_every_query_is_promql_of_the_endpoint_or_its_baseline() -> None:
    recipe = watched({})
    queries = [query for of_panel in panels(recipe).values() for query in of_panel]
    assert len(queries) == 13
    for query in queries:
        assert promql_parser.parse(query), query
        assert query.count("{") == query.count(NAME) == query.count('namespace="toolkit"')


def test_every_panel_asks_the_prometheus_that_is_chosen_above_it() -> None:
    """Grafana, "Dashboard JSON model": a variable of the type datasource, named where a panel says its source."""
    (found,) = config_maps(watched({}))
    (text,) = found["data"].values()
    model = json.loads(text)
    (variable,) = model["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    asked = [asks["datasource"] for panel in model["panels"] for asks in (panel, *panel["targets"])]
    assert asked == [source] * len(asked)


def test_latencies_are_the_median_and_the_90th_percentile() -> None:
    (found,) = config_maps(watched({}))
    (text,) = found["data"].values()
    shown = next(one for one in json.loads(text)["panels"] if one["title"] == "Time to first token")
    quantiles = [(target["legendFormat"], target["expr"].partition(",")[0]) for target in shown["targets"]]
    assert quantiles == [
        ("{{model_name}} p50", "histogram_quantile(0.5"),
        ("{{model_name}} p90", "histogram_quantile(0.9"),
    ]


def test_acceptance_is_of_the_endpoint_and_speed_of_both_arms() -> None:
    shown = panels(watched({}))
    accepted, drafts = (f"vllm:spec_decode_num_{what}_total{OWN}" for what in ("accepted_tokens", "drafts"))
    by_arm = "sum by (model_name) (rate("
    assert shown["Acceptance length: tokens per step of the target"] == [
        f"1 + {by_arm}{accepted})) / {by_arm}{drafts}))"
    ]
    assert shown["Output tokens per second"] == [f"{by_arm}vllm:generation_tokens_total{BOTH}[5m]))"]
    speedup, *_ = next(queries for title, queries in shown.items() if title.startswith("Speedup"))
    baseline, own = speedup.split(" / ignoring (model_name) ")
    assert baseline == own.replace(NAME, f"{NAME}-baseline")


def test_without_speculation_there_is_nothing_of_drafts() -> None:
    recipe = watched({})
    without = recipe_with(recipe, speculation=None)
    assert [title for title in panels(recipe) if title not in panels(without)] == [
        "Speedup: median time per output token, the baseline's over its own",
        "Acceptance length: tokens per step of the target",
        "Drafts accepted at each position",
    ]
    assert "spec_decode" not in str(panels(without))


@pytest.mark.parametrize("recipe", [watched(None), watched({}).baseline()], ids=["no monitors", "the baseline"])
def test_there_is_none(recipe: Recipe) -> None:
    assert config_maps(recipe) == []


def test_a_gitops_tool_may_remove_it_with_its_endpoint() -> None:
    (found,) = config_maps(watched({}))
    assert not [key for key in found["metadata"]["annotations"] if "argocd" in key or "fluxcd" in key]
