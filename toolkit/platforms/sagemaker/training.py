"""How far a training job is."""

from __future__ import annotations

from toolkit.apply.training import TrainingJob
from toolkit.platforms.sagemaker.clients import Clients


def status(clients: Clients, name: str) -> TrainingJob:
    """How far a job is."""
    answer = clients.sagemaker.describe_training_job(TrainingJobName=name)
    created = answer["CreationTime"].timestamp()
    changes = answer.get("SecondaryStatusTransitions", [])
    return TrainingJob(
        name,
        answer["TrainingJobStatus"],
        answer["SecondaryStatus"],
        answer.get("FailureReason", ""),
        created,
        changes[-1]["StartTime"].timestamp() if changes else created,
    )
