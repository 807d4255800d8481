"""Measured figures in CloudWatch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from toolkit.endpoint.metrics import Figure
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.rules.metrics import namespace_of

if TYPE_CHECKING:
    from types_boto3_cloudwatch.type_defs import DimensionTypeDef, MetricDatumTypeDef

# A PutMetricData request has 1,000 metrics and 1 MB at most.
_AT_ONCE = 500
_LONGEST_VALUE = 1024


def publish(clients: Clients, name: str, figures: Sequence[Figure]) -> str:
    """Put the figures of an endpoint or component; where they are. Raises PlatformError."""
    namespace, rest = namespace_of(name), iter(figures)
    with aws_errors(f"publishing the figures of {name}"):
        while data := [_datum(figure) for figure in islice(rest, _AT_ONCE)]:
            clients.cloudwatch.put_metric_data(Namespace=namespace, MetricData=data)
    return f"CloudWatch's namespace {namespace}"


def _ascii(value: str) -> str:
    """The value of a dimension, which is printable ASCII, does not begin with a colon, and has 1,024 characters."""
    shown = "".join(character if " " <= character <= "~" else "?" for character in value)
    return shown.lstrip(":")[:_LONGEST_VALUE] or "?"


def _datum(figure: Figure) -> MetricDatumTypeDef:
    dimensions: list[DimensionTypeDef] = [
        {"Name": key, "Value": _ascii(value)} for key, value in figure.dimensions.items()
    ]
    return {"MetricName": figure.name, "Value": figure.value, "Unit": figure.unit, "Dimensions": dimensions}
