"""What the rest of the toolkit asks of the platform: decisions of plans, settings, waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolkit import registry
from toolkit.catalog import lookup
from toolkit.errors import PlatformError, UsageError
from toolkit.loading import load, on_platform
from toolkit.planning.plan import Action, Plan
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.kubernetes.keys import KubernetesSection
from toolkit.platforms.kubernetes.rules import RULES, wait_seconds
from toolkit.platforms.kubernetes.rules.kinds import KINDS, KINDS_BY_NAME
from toolkit.platforms.kubernetes.rules.manifests import parts
from toolkit.platforms.kubernetes.rules.rollback import rollback_plan
from toolkit.recipe.lock import lock_path, pinned, read_lock

SERVICE = Resource("Service", "chat", {"kind": "Service"})


def decided(state: Mapping[str, Any] | None, resource: Resource = SERVICE, *, ours: bool = True) -> tuple[str, str]:
    rule = KINDS_BY_NAME[resource.kind]
    existing = None if state is None else Existing(resource.kind, resource.name, ours, (resource.name,), state)
    decision = rule.decide(resource, existing, Observed())
    return decision.verb, decision.reason


@pytest.mark.parametrize(
    ("state", "verb", "reason"),
    [
        (None, "create", "does not exist"),
        ({"Changes": []}, "reuse", "is up to date"),
        ({"Changes": ["spec.a"]}, "update", "changes spec.a"),
        ({"Changes": ["a", "b", "c", "d", "e"]}, "update", "changes a, b, c and 2 more"),
        ({"Immutable": ["spec.selector"]}, "replace", "spec.selector cannot be changed"),
        ({"Deleting": True, "Changes": ["a"]}, "replace", "is being deleted"),
    ],
)
def test_the_clusters_dry_run_decides(state: Mapping[str, Any] | None, verb: str, reason: str) -> None:
    assert decided(state) == (verb, reason)


def test_a_field_that_somebody_else_sets_is_theirs() -> None:
    with pytest.raises(PlatformError, match=r"Service chat: spec\.replicas is set by kubectl") as error:
        decided({"Conflicts": [["kubectl", "spec.replicas"]]})
    assert "--force-conflicts" in error.value.hint


def test_a_namespace_is_used_whoever_made_it_and_stays() -> None:
    namespace = Resource("Namespace", "ml", {})
    assert decided({}, namespace, ours=False) == ("reuse", "exists and belongs to somebody else; is used as it is")
    lenient = {rule.kind for rule in KINDS if rule.may_be_foreign or rule.is_kept}
    assert lenient == {"Namespace"}
    note = KINDS_BY_NAME["Namespace"].kept_note(Existing("Namespace", "ml", True, ("chat",), {}))
    assert note.endswith("kubectl delete namespace ml")


def test_a_deployment_or_a_set_of_groups_is_an_endpoint_and_runs_its_recipe() -> None:
    request = {"metadata": {"annotations": {"toolkit/recipe": "aaaa"}}}
    assert {rule.kind: rule.serves(request) for rule in KINDS if rule.serves(request) is not None} == {
        "Deployment": "aaaa",
        "LeaderWorkerSet": "aaaa",
    }


def test_resources_are_made_in_the_order_of_the_table_and_shared_ones_once() -> None:
    recipe = on_platform(load("gpt-oss-20b/p-eagle"), "kubernetes")
    recipe = pinned(recipe, read_lock(lock_path(recipe)))
    made = RULES.desired([recipe, recipe.baseline()], Account("", ""))
    order = [rule.kind for rule in KINDS]
    positions = [order.index(item.kind) for item in made]
    assert positions == sorted(positions)
    assert [item.name for item in made if item.kind == "Namespace"] == ["toolkit"]
    assert {item.name for item in made if item.kind == "Deployment"} == {recipe.name, recipe.baseline().name}


def test_what_is_deployed_is_what_is_rendered() -> None:
    """Both apply as the same manager: what only one of them writes, the other would remove."""
    recipe = on_platform(load("gpt-oss-20b/p-eagle"), "kubernetes")
    recipe = pinned(recipe, read_lock(lock_path(recipe)))
    rendered = parts([recipe])
    deployed = [item.request for item in RULES.desired([recipe], Account("", ""))]
    assert deployed == [*rendered["namespace"], *rendered["base"], *rendered["serve"]]
    annotated = [item["kind"] for item in deployed if "Prune=false" in str(item["metadata"].get("annotations"))]
    assert annotated == ["Namespace", "ConfigMap"]


def test_a_recipe_for_aws_gets_a_clusters_settings() -> None:
    recipe = load("gpt-oss-20b/p-eagle")
    aws, moved = recipe.platform, on_platform(recipe, "kubernetes").platform
    assert (moved.name, moved.weights, moved.kubernetes) == ("kubernetes", "hub", KubernetesSection())
    assert moved.types == tuple(name.removeprefix("ml.") for name in aws.instance_types)


def test_a_nodes_type_is_ec2s_name_of_the_catalogues() -> None:
    known = lookup.instance("ml.g6e.2xlarge")
    found = RULES.instance("g6e.2xlarge")
    assert known
    assert found
    assert (found.name, found.vcpus) == ("g6e.2xlarge", known.vcpus)
    assert RULES.instance("ml.g6e.2xlarge") is None
    assert found in RULES.instances()
    assert len(RULES.instances()) == len(lookup.instances())


def plan_of(seconds: int, replicas: int) -> Plan:
    spec = {"progressDeadlineSeconds": seconds, "replicas": replicas}
    action = Action("Deployment", "chat", "update", "changes spec", {"spec": spec})
    return Plan("r.yaml", "kubernetes", ("chat",), (action,), None, "")


def test_waiting_lasts_until_the_last_pods_deadline_and_two_hours_at_least() -> None:
    assert wait_seconds(plan_of(5400, 1)) == 7200
    assert wait_seconds(plan_of(5400, 4)) == 4 * 5400 + 600


def test_there_is_nothing_to_roll_back_to_where_nothing_is() -> None:
    with pytest.raises(UsageError, match="the toolkit has created no endpoint chat"):
        rollback_plan("r.yaml", "kubernetes", "chat", Observed())


def test_a_version_that_the_toolkit_did_not_make_is_the_cluster_s_to_restore() -> None:
    history = [{"Annotations": {}, "Template": {"spec": image}} for image in ("new", "old")]
    existing = Existing("Deployment", "chat", True, ("chat",), {"History": history})
    with pytest.raises(UsageError, match="it is not known which recipe chat ran") as error:
        rollback_plan("r.yaml", "kubernetes", "chat", Observed((existing,)))
    assert "kubectl rollout undo deployment/chat" in error.value.hint


def test_a_plan_without_a_cluster_says_so_in_a_clusters_words() -> None:
    recipe = on_platform(load("gpt-oss-20b/p-eagle"), "kubernetes")
    first = next(iter(RULES.notes(recipe, Account("000000000000", "", scope="/toolkit"))))
    assert first == "This plan was made without a cluster, as if it were empty. It cannot be applied."


def test_the_registry_knows_it() -> None:
    assert registry.rules_of("kubernetes") is RULES
