"""Models on their way to the bucket that pods mount, with the user's own rights on AWS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError

if TYPE_CHECKING:
    from boto3 import Session

    from toolkit.platforms.sagemaker.clients import Clients

_NOT_SEEN = "403"


def upload_weights(request: Mapping[str, Any], progress: Progress, session: Session | None = None) -> None:
    """Send what the bucket lacks of a local folder, or of a repository on the hub. Raises PlatformError.

    Only to a bucket of the user's own account: a recipe from elsewhere must not send files to its author.
    """
    import boto3  # a quarter of a second, which only uploads are worth

    from toolkit.platforms.model_files import open_files
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.errors import aws_errors
    from toolkit.platforms.sagemaker.staging import stage_weights

    clients = Clients(session or boto3.Session())
    with aws_errors(f"uploading to s3://{request['Bucket']}/{request['Prefix']}"):
        _require_own(clients, request["Bucket"])
        stage_weights(clients, request, progress, open_files)


def upload_head(folder: Path, address: str, progress: Progress) -> None:
    """Send a head to `s3://bucket/prefix/`, in a bucket of the user's own account. Raises PlatformError, UsageError."""
    import boto3

    from toolkit.platforms.sagemaker import heads
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.errors import aws_errors

    clients = Clients(boto3.Session())
    with aws_errors(f"copying the head to {address}"):
        _require_own(clients, address.removeprefix("s3://").partition("/")[0])
        heads.put(clients, folder, address, progress)


def _require_own(clients: Clients, bucket: str) -> None:
    try:
        clients.s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=clients.account_id)
    except clients.refusal as error:
        if error.response["Error"]["Code"] != _NOT_SEEN:
            raise
        hint = "Upload the model by other means, and write its address as the recipe's model: s3://bucket/prefix/."
        raise PlatformError(f"the bucket {bucket} is not one of account {clients.account_id}", hint=hint) from error
