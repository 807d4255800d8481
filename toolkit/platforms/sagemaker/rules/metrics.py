"""Where the numbers of a running endpoint stand on AWS, and what they are called there. Nothing here was tried live.

* SageMaker's own metrics: CloudWatch, by endpoint and variant, or by inference component (SageMaker AI developer guide,
  "Amazon SageMaker AI metrics in Amazon CloudWatch" and "Metric name mapping: legacy to OTel").
* Those of the engine: detailed observability brings what it shows on /metrics to CloudWatch, where PromQL alone finds
  it. Names as in the guide's "OpenTelemetry metrics reference" (with a colon; its page on PromQL writes `_`), native
  histograms. The reference says that it is not complete, and lacks those of speculative decoding.
* Accepted and drafted tokens also stand in the engine's log, from which metric filters count them.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolkit.recipe.resolve import Recipe

INVOCATIONS = "AWS/SageMaker"

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Where the output of all training jobs goes, in streams that begin with a job's name."""

ACCEPTED, DRAFTED = "AcceptedTokens", "DraftedTokens"
"""Metrics of ours, in the endpoint's own namespace: a metric filter can take dimensions from the log line only."""

MARGIN_PERCENT = 80
"""Traffic differs from the published workloads: acceptance is bad below this share of the lowest published length."""


def dimensions(recipe: Recipe, variant: str) -> dict[str, str]:
    """What SageMaker tells an endpoint's metrics apart by."""
    if recipe.platform.component:
        return {"InferenceComponentName": recipe.name}
    return {"EndpointName": recipe.name, "VariantName": variant}


def utilization(recipe: Recipe) -> tuple[str, str, str]:
    """Namespace and names of the metrics of GPU and GPU memory, percent. A plain endpoint's add up over its GPUs."""
    if recipe.platform.component:
        return "/aws/sagemaker/InferenceComponents", "GPUUtilizationNormalized", "GPUMemoryUtilizationNormalized"
    return "/aws/sagemaker/Endpoints", "GPUUtilization", "GPUMemoryUtilization"


def concurrency(recipe: Recipe) -> str:
    """The metric of requests in flight, those that wait in the container included."""
    return "ConcurrentRequestsPerCopy" if recipe.platform.component else "ConcurrentRequestsPerModel"


def namespace(recipe: Recipe) -> str:
    """Where the metrics are that we take from the log."""
    return f"toolkit/{recipe.name}"


def log_group(recipe: Recipe) -> str:
    """Where the containers' output goes."""
    return log_groups(recipe.name)[recipe.platform.component is not None]


def log_groups(name: str) -> tuple[str, str]:
    """That of an endpoint, and that of an inference component."""
    return f"/aws/sagemaker/Endpoints/{name}", f"/aws/sagemaker/InferenceComponents/{name}"


def labels(recipe: Recipe, variant: str | None = None) -> str:
    """The selector of the engine's metrics in PromQL; without a variant, those of all."""
    found: Mapping[str, str] = {"endpoint": recipe.name}
    if recipe.platform.component:
        found = {"inference_component": recipe.name}
    elif variant:
        found = {"endpoint": recipe.name, "variant": variant}
    return "{" + ", ".join(f'"aws.sagemaker.{key}.name"="{value}"' for key, value in found.items()) + "}"


def draft_length(recipe: Recipe) -> int | None:
    """K where every draft of the recipe has that many tokens and the engine's log counts them, None elsewhere."""
    if recipe.speculation is None or not recipe.speculation.facts.full_drafts:
        return None
    if recipe.speculation.schedule or recipe.engine.args.get("disable-log-stats"):
        return None
    if not recipe.engine.rules.reports_drafts(recipe):
        return None
    on_types = [recipe.on(name).speculation for name in recipe.platform.instance_types]
    lengths = {speculation.num_speculative_tokens for speculation in on_types if speculation}
    return lengths.pop() if len(lengths) == 1 else None


def acceptance_length(k: int) -> str:
    """The acceptance length in CloudWatch's metric math, from the sums of tokens: a draft has K of them."""
    return f"1 + {k} * accepted / drafted"


def acceptance_floor(recipe: Recipe) -> float | None:
    """The acceptance length below which something is wrong, None without evidence for the K of all drafts."""
    k = draft_length(recipe)
    published = [
        item.acceptance_length
        for item in recipe.evidence
        if item.acceptance_length and item.num_speculative_tokens in (None, k)
    ]
    return round(MARGIN_PERCENT / 100 * min(published), 2) if k and published else None
