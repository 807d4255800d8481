"""What a proof measured, in CloudWatch: by variant and workload, for the dashboard that shows both arms."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from reports import example
from standin import StandIn

from toolkit.measure.report import figures_of
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.metrics import publish


@pytest.fixture
def clients(standin: StandIn) -> Clients:
    return Clients(standin.session())


def test_each_arm_has_its_figures_by_workload_and_load(clients: Clients) -> None:
    where = publish(clients, "hub", figures_of(example()))

    assert where == "CloudWatch's namespace toolkit/hub"
    assert measured(clients, "OutputTokensPerSecond", "baseline") == 52.0
    assert measured(clients, "OutputTokensPerSecond", "p-eagle") == pytest.approx(52.0 * 2.31)
    assert measured(clients, "Speedup", "p-eagle") == pytest.approx(2.31)


def measured(clients: Clients, metric: str, variant: str) -> float:
    now = datetime.now(UTC)
    dimensions = {"Variant": variant, "Workload": "structured", "Load": "1"}
    (point,) = clients.cloudwatch.get_metric_statistics(
        Namespace="toolkit/hub",
        MetricName=metric,
        Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(hours=1),
        Period=7200,
        Statistics=["Average"],
    )["Datapoints"]
    return point["Average"]


def test_a_workload_of_any_name_can_be_published(clients: Clients) -> None:
    report = example()
    odd = replace(report, arms=(replace(report.arms[0], workload=":Fragen für\nalle"),), speedups=())
    publish(clients, "hub", figures_of(odd))

    names = {
        item["Value"]
        for metric in clients.cloudwatch.list_metrics(Namespace="toolkit/hub")["Metrics"]
        for item in metric["Dimensions"]
        if item["Name"] == "Workload"
    }
    assert names == {"Fragen f?r?alle"}
