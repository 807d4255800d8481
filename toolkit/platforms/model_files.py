"""Open the files of a model on the hub or in S3."""

from __future__ import annotations

from toolkit.recipe.model_files import ModelFiles
from toolkit.recipe.source import ModelSource


def open_files(source: ModelSource) -> ModelFiles:
    """Files of a model on the hub or in S3, with the user's own credentials."""
    if source.kind == "hub":
        from toolkit.recipe.hub import HubFiles, hub_client

        return HubFiles(source.model, source.revision, hub_client())
    import boto3

    from toolkit.platforms.sagemaker.answers import check_answers
    from toolkit.platforms.sagemaker.model_files import S3Files

    return S3Files(source.model, check_answers(boto3.Session()).client("s3"))
