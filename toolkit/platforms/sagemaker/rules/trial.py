"""Where a candidate head is tried: as a production variant of the endpoint, or on an endpoint of its own.

A production variant with a weight, and no shadow variant: a shadow's answers are dropped, so neither its latency nor
its acceptance could be measured pair by pair. A request can name a production variant, which "overrides the default
behavior for the endpoint, which is to distribute the invocation traffic based on the variant weights" (API reference,
InvokeEndpoint, TargetVariant).
"""

from __future__ import annotations

from toolkit.platforms.rules import Trial
from toolkit.platforms.sagemaker.rules.arms import CANDIDATE, VARIANT, endpoint_name, instances
from toolkit.platforms.sagemaker.rules.names import on_aws
from toolkit.recipe.resolve import Recipe


def trial(recipe: Recipe) -> Trial:
    """Where the recipe's endpoint lets a candidate be tried, and what that does to it."""
    if reason := _why_own_endpoint(recipe):
        return Trial(f"The new head is tried on an endpoint of its own, because {reason}")
    name, count = endpoint_name(recipe), instances(recipe)
    note = (
        f"The new head is tried as production variant {CANDIDATE} of {name}, one instance beside {VARIANT}: each "
        f"instance answers as many requests, so {CANDIDATE} {100 / (count + 1):.0f} % of them while it is measured"
    )
    if on_aws(recipe):
        note += (
            ". Adding it and removing it are updates of the endpoint, all at once and without alarms that roll back: "
            f"SageMaker starts {count + 1} new instances beside those that serve, and removes these after that"
        )
    return Trial(note, VARIANT, CANDIDATE)


def _why_own_endpoint(recipe: Recipe) -> str:
    if recipe.platform.component:
        return "an inference component has no production variants of its own"
    if recipe.rollout.shadow or recipe.rollout.speculative_percent < 100:
        return "`rollout` has the endpoint share its requests with a variant without speculation"
    return ""
