"""A kind of resource that the toolkit does not have is one class: it is planned, templated, read, made and removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from fakes import ACCOUNT, Told
from pairs import write_hub_pair

from toolkit.loading import load
from toolkit.planning.plan import Action
from toolkit.planning.planner import make_plan
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.elsewhere import open_files
from toolkit.platforms.sagemaker import execute
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Look, Work
from toolkit.platforms.sagemaker.observe import observe
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules
from toolkit.platforms.sagemaker.rules.cloudformation import template
from toolkit.platforms.sagemaker.rules.model_data import Deployment
from toolkit.recipe.recipe import Recipe


@dataclass
class Topics:
    """Clients of an account that has nothing but topics."""

    topics: dict[str, Mapping[str, str]] = field(default_factory=dict)


class TopicKind(AwsKind):
    """A topic for each endpoint."""

    kind = "Topic"
    resource_type = "AWS::SNS::Topic"
    seen_when_new = True

    def desired(self, deployment: Deployment) -> list[Resource]:
        name = deployment.recipe.name
        return [Resource(self.kind, name, {"TopicName": name})]

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {"TopicName": existing.name}

    def observe(self, look: Look) -> Iterator[Existing]:
        for name in cast(Topics, look.clients).topics:
            yield Existing(self.kind, name, True, (name,), {})

    def create(self, work: Work, request: Any) -> None:
        cast(Topics, work.clients).topics[request["TopicName"]] = request

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        del cast(Topics, clients).topics[name]


class WithTopics(AwsRules):
    """SageMaker with one more kind."""

    @property
    def kinds(self) -> tuple[AwsKind, ...]:  # type: ignore[override]
        return (*RULES.kinds, TopicKind(on_aws=True))


TOPIC = TopicKind(on_aws=True)
WITH_TOPICS = WithTopics(RULES.name, RULES.facts, RULES.sections, RULES.check)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return load(write_hub_pair(tmp_path))


def seen(clients: Topics) -> Observed:
    look = Look(cast(Clients, clients), ACCOUNT, (), (), lambda request: False, lambda image: None)
    return observe(look, [TOPIC])


def _nothing(request: object, progress: object) -> None:
    pass


def test_it_is_planned_made_found_and_removed(recipe: Recipe) -> None:
    clients, resources = Topics(), WITH_TOPICS.desired([recipe], ACCOUNT)
    (made,) = [item for item in planned(recipe, resources, seen(clients)) if item.kind == "Topic"]
    assert (made.verb, made.request) == ("create", {"TopicName": "hub"})

    work = Work(cast(Clients, clients), Told(), open_files, _nothing, lambda *_: nullcontext(), _nothing)
    execute.create(TOPIC, work, made, lambda seconds: None, execute.FreshRoles())
    assert clients.topics == {"hub": {"TopicName": "hub"}}
    (found,) = [item for item in planned(recipe, resources, seen(clients)) if item.kind == "Topic"]
    assert found.verb == "reuse"

    (removed,) = planned(recipe, (), seen(clients))
    assert (removed.verb, removed.request) == ("delete", {"TopicName": "hub"})
    execute.delete(TOPIC, cast(Clients, clients), removed)
    assert clients.topics == {}


def test_it_stands_in_the_template(recipe: Recipe) -> None:
    made = template(WITH_TOPICS.desired([recipe], ACCOUNT), WITH_TOPICS.kinds)
    assert made["Resources"]["TopicHub"] == {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": "hub"}}


def planned(recipe: Recipe, resources: tuple[Resource, ...], observed: Observed) -> tuple[Action, ...]:
    return make_plan("recipe.yaml", WITH_TOPICS, [recipe.name], resources, observed).actions
