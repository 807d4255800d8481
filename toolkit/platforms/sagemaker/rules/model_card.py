"""The model card of a registered version, in the schema of model packages (developer guide, model-registry-details)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from toolkit.measure.headline import comparable, headline, speedup_of
from toolkit.measure.measurement import ArmReport
from toolkit.measure.report import BenchReport
from toolkit.measure.wording import interval, load
from toolkit.recipe.recipe import Recipe
from toolkit.version import __version__

# The schema's limits: characters of a name, of an observation and of other texts; items of a list.
_NAME, _OBSERVATION, _TEXT, _MOST = 63, 2096, 1024, 15


def model_card(recipe: Recipe, artifacts: Sequence[str], proof: BenchReport | None, training_job: str) -> str:
    """The card as JSON. It says what is known; what a model is for, and its risks, its owner adds."""
    drafter = {"drafter": str(recipe.drafter)} if recipe.drafter else {}
    tokens = {"num_speculative_tokens": str(recipe.speculation.num_speculative_tokens)} if recipe.speculation else {}
    details = {
        "recipe": recipe.name,
        "target": str(recipe.target),
        "method": recipe.method,
        **drafter,
        **tokens,
        "engine": f"{recipe.engine.name} {recipe.engine.version}",
        "toolkit": __version__,
    }
    card: dict[str, Any] = {
        "model_overview": {"model_artifact": list(artifacts[:_MOST])},
        "additional_information": {"custom_details": {key: text[:_TEXT] for key, text in details.items()}},
    }
    if training_job:
        card["training_details"] = {"training_job_details": {"training_arn": training_job}}
    if proof:
        card["evaluation_details"] = [_evaluation(proof)]
    return json.dumps(card)


def _evaluation(proof: BenchReport) -> dict[str, Any]:
    short = headline(proof)
    groups = [{"name": _group(arm)[:_NAME], "metric_data": list(_metrics(proof, arm))} for arm in proof.arms]
    return {
        "name": "toolkit prove",
        "evaluation_observation": " ".join([f"{short.title}.", *short.sentences])[:_OBSERVATION],
        "metric_groups": [group for group in groups if group["metric_data"]],
    }


def _group(arm: ArmReport) -> str:
    return f"{arm.workload}, load {load(arm)}, {arm.arm}"


def _metrics(proof: BenchReport, arm: ArmReport) -> Iterator[dict[str, Any]]:
    speedup = speedup_of(proof, arm) if comparable(proof) else None
    figures = {
        "output tokens per second": arm.output_tokens_per_second,
        "acceptance length": arm.acceptance_length,
        "share of answers equal to the baseline's": arm.identical,
        "speedup": speedup.ratio if speedup else None,
    }
    for name, value in figures.items():
        if value is not None:
            notes = {"notes": interval(speedup)} if speedup and name == "speedup" else {}
            yield {"name": name, "type": "number", "value": value, **notes}
