"""The target as a folder: speculators reads a hub id at its main branch, whatever revision the job names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from huggingface_hub import snapshot_download

from toolkit.errors import HubError
from toolkit.training.job import TrainingJob

# Weights of other frameworks are as large, and nobody reads them.
_FILES = ["*.safetensors", "*.json", "*.jinja", "*.model", "*.txt"]


def with_local_target(job: TrainingJob, download: Callable[..., str] = snapshot_download) -> TrainingJob:
    """The job with its target as a folder: of a hub id, a snapshot at the job's revision. Raises HubError."""
    if Path(job.target).is_dir():
        return job
    try:
        folder = download(job.target, revision=job.target_revision, allow_patterns=_FILES)
    except (OSError, ValueError) as error:
        at = f" at {job.target_revision}" if job.target_revision else ""
        hint = "See that target.model is a folder or a hub id, that the hub is reached, and that HF_TOKEN may read it."
        raise HubError(f"the target {job.target}{at} cannot be downloaded: {error}", hint=hint) from error
    return job.model_copy(update={"target": folder})
