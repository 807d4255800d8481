"""Names of an endpoint's metrics on AWS. Unverified: nothing here was tested on a live account.

* SageMaker's own metrics: CloudWatch, by endpoint and variant, or by inference component (SageMaker AI developer guide,
  "Amazon SageMaker AI metrics in Amazon CloudWatch" and "Metric name mapping: legacy to OTel").
* The engine's metrics: detailed observability copies its /metrics page to CloudWatch, where only PromQL can query it.
  Names as in the guide's "OpenTelemetry metrics reference" (with a colon; its page on PromQL writes `_`), native
  histograms. The reference is incomplete, and lacks the metrics of speculative decoding.
* Accepted and drafted tokens are also in the engine's log, from which metric filters count them.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.platforms.sagemaker.keys import aws
from toolkit.recipe.recipe import Recipe

INVOCATIONS = "AWS/SageMaker"

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Log group of all training jobs, in streams that begin with the job's name."""

ACCEPTED, DRAFTED = "AcceptedTokens", "DraftedTokens"
"""The toolkit's metrics, in a namespace for each endpoint, as a metric filter cannot add constant dimensions."""


def dimensions(recipe: Recipe, variant: str) -> dict[str, str]:
    """The CloudWatch dimensions of an endpoint's metrics."""
    if aws(recipe).inference_component:
        return {"InferenceComponentName": recipe.name}
    return {"EndpointName": recipe.name, "VariantName": variant}


def utilization(recipe: Recipe) -> tuple[str, str, str]:
    """Namespace and names of the GPU and GPU memory metrics, in percent; on a plain endpoint summed over GPUs."""
    if aws(recipe).inference_component:
        return "/aws/sagemaker/InferenceComponents", "GPUUtilizationNormalized", "GPUMemoryUtilizationNormalized"
    return "/aws/sagemaker/Endpoints", "GPUUtilization", "GPUMemoryUtilization"


def concurrency(recipe: Recipe) -> str:
    """The metric of requests in flight, including those that wait in the container."""
    return "ConcurrentRequestsPerCopy" if aws(recipe).inference_component else "ConcurrentRequestsPerModel"


def namespace(name: str) -> str:
    """Namespace of an endpoint's or component's metrics from the log, and of what was measured."""
    return f"toolkit/{name}"


def log_group(recipe: Recipe) -> str:
    """Log group of the containers."""
    return log_groups(recipe.name)[aws(recipe).inference_component is not None]


def log_groups(name: str) -> tuple[str, str]:
    """Possible log groups of a name: as an endpoint, and as an inference component."""
    return f"/aws/sagemaker/Endpoints/{name}", f"/aws/sagemaker/InferenceComponents/{name}"


def labels(recipe: Recipe, variant: str | None = None) -> str:
    """The PromQL selector of the engine's metrics, of one variant or of all."""
    names: Mapping[str, str] = {"endpoint": recipe.name}
    if aws(recipe).inference_component:
        names = {"inference_component": recipe.name}
    elif variant:
        names = {"endpoint": recipe.name, "variant": variant}
    return "{" + ", ".join(f'"aws.sagemaker.{key}.name"="{value}"' for key, value in names.items()) + "}"


def acceptance_length(k: int) -> str:
    """The acceptance length in CloudWatch metric math, from the sums of accepted and drafted tokens."""
    return f"1 + {k} * accepted / drafted"
