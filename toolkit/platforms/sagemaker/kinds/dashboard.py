"""The dashboard of an endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from toolkit.planning.resources import Existing, Resource
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.kinds.alarm import alarms
from toolkit.platforms.sagemaker.kinds.base import ContentKind, Look, Work
from toolkit.platforms.sagemaker.kinds.log_group import has_dashboard
from toolkit.platforms.sagemaker.rules import widgets
from toolkit.platforms.sagemaker.rules.names import tags

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment


class DashboardKind(ContentKind):
    """A dashboard's tags cannot be read, so its first widget says to which endpoint it belongs."""

    kind = "Dashboard"
    resource_type = "AWS::CloudWatch::Dashboard"
    content_keys = ("DashboardBody",)

    def desired(self, deployment: Deployment) -> list[Resource]:
        recipe, account, variants = deployment.recipe, deployment.account, deployment.variants
        if not has_dashboard(recipe):
            return []
        names = [item.name for item in alarms(recipe, variants)]
        body = json.dumps(widgets.body(recipe, account, variants, names))
        name = dashboard_name(recipe.name, account.region)
        return [Resource(self.kind, name, {"DashboardName": name, "DashboardBody": body, "Tags": tags(recipe)})]

    def content(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"DashboardBody": json.loads(request["DashboardBody"])}

    def observe_endpoint(self, look: Look, name: str) -> Iterator[Existing]:
        dashboard, cloudwatch = dashboard_name(name, look.clients.session.region_name), look.clients.cloudwatch
        answer = unless_missing(look.clients, lambda: cloudwatch.get_dashboard(DashboardName=dashboard))
        if answer:
            yield self.described(dashboard, widgets.owner(answer["DashboardBody"]), answer)

    def create(self, work: Work, request: Any) -> None:
        work.clients.cloudwatch.put_dashboard(**request)

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        clients.cloudwatch.delete_dashboards(DashboardNames=[name])


def dashboard_name(name: str, region: str) -> str:
    """Name of an endpoint's dashboard. It has the region, because dashboards of an account are global."""
    return f"toolkit-{name}-{region}"
