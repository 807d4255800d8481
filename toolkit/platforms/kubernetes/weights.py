"""Models on their way to the bucket that pods mount, with the user's own rights on AWS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.apply.progress import Progress


def upload_weights(request: Mapping[str, Any], progress: Progress) -> None:
    """Send what the bucket lacks of a local folder, or of a repository on the hub. Raises PlatformError."""
    from boto3 import Session  # a quarter of a second, which only uploads are worth

    from toolkit.platforms.model_files import open_files
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.errors import aws_errors
    from toolkit.platforms.sagemaker.staging import stage_weights

    with aws_errors(f"uploading to s3://{request['Bucket']}/{request['Prefix']}"):
        stage_weights(Clients(Session()), request, progress, open_files)
