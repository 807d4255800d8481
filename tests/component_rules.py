"""What AWS demands of inference components beyond the shapes of their fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def specification_problems(request: Mapping[str, Any]) -> Iterator[str]:
    """CloudFormation's schema of AWS::SageMaker::InferenceComponent; wording unverified."""
    if "InstanceType" in request.get("Specification", {}):
        yield "InstanceType is not accepted in Specification; use Specifications."
    by_type = request.get("Specifications")
    if by_type is None:
        return
    if len(by_type) < 2:
        yield "Specifications needs at least two entries; use Specification for a single instance type."
    types = [item.get("InstanceType") for item in by_type]
    if None in types or len(set(types)) < len(types):
        yield "Specifications needs one entry for each InstanceType."
