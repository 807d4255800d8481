"""Heads that training jobs made: from SageMaker's output to a folder, and from there to S3."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError, UsageError
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.recipe.content import PART_BYTES, part_bytes
from toolkit.recipe.folder import model_files


def fetch(clients: Clients, job: Mapping[str, Any], folder: Path) -> None:
    """Download what a completed job wrote to /opt/ml/model/head. Raises PlatformError where nothing is left of it."""
    name = job["TrainingJobName"]
    described = clients.sagemaker.describe_training_job(TrainingJobName=name)
    address = described["ModelArtifacts"]["S3ModelArtifacts"]
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    prefix = prefix.rstrip("/") + "/head/"
    found = 0
    for page in clients.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for item in page.get("Contents", []):
            _download(clients, bucket, item["Key"], folder, item["Key"].removeprefix(prefix))
            found += 1
    if not found:
        hint = "Remove the recipe's `seed`, or set another one, to train it again."
        raise PlatformError(f"the head of {name} is not in {address} any more", hint=hint)


def put(clients: Clients, folder: Path, address: str, progress: Progress) -> None:
    """Upload a head's files to `s3://bucket/prefix/`, config.json last: it makes them a model. Raises UsageError."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if not address.startswith("s3://") or not prefix:
        raise UsageError(f"a head cannot be copied to {address}", hint="Name a folder, or s3://bucket/prefix/.")
    for file in sorted(model_files(folder), key=lambda file: file.name == "config.json"):
        name, size = file.relative_to(folder).as_posix(), file.stat().st_size
        progress.update(f"{name} ({size / 1e6:.1f} MB)")
        with file.open("rb") as stream:
            clients.upload(stream, bucket, f"{prefix.rstrip('/')}/{name}", PART_BYTES, part_bytes(size), {})


def _download(clients: Clients, bucket: str, key: str, folder: Path, name: str) -> None:
    """Save an object below the folder. Raises PlatformError for a name that leads out of it."""
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        raise PlatformError(f"s3://{bucket}/{key} is not a file of a head")
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    clients.s3.download_file(bucket, key, str(path))
