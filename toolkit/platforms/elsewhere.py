"""What recipes name elsewhere: a model's files on the hub or in S3, and what an image's tag means now."""

from __future__ import annotations

from toolkit.images.reference import parse
from toolkit.recipe.model_files import ModelFiles
from toolkit.recipe.source import ModelSource


def open_files(source: ModelSource) -> ModelFiles:
    """Files of a model on the hub or in S3, with the user's own credentials."""
    if source.kind == "hub":
        from toolkit.recipe.hub import HubFiles, hub_client

        return HubFiles(source.model, source.revision, hub_client())
    import boto3

    from toolkit.platforms.sagemaker.answers import check_answers
    from toolkit.platforms.sagemaker.clients import open_client
    from toolkit.platforms.sagemaker.errors import aws_errors
    from toolkit.platforms.sagemaker.objects import S3Files

    with aws_errors("opening an AWS session"):
        return S3Files(source.model, open_client(check_answers(boto3.Session()), "s3"))


def find_digest(image: str) -> str:
    """The digest of the image of that address, asked with the user's own credentials. Raises BuildError.

    ECR is asked through AWS's API, any other registry through its own, with the login of `docker login` or none.
    """
    import boto3

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.errors import aws_errors
    from toolkit.platforms.sagemaker.images import ECR_HOST, ecr_digest, registry_digest

    if ecr := ECR_HOST.fullmatch(parse(image).registry):
        with aws_errors("opening an AWS session"):
            clients = Clients(boto3.Session(region_name=ecr[1]), attempts=2)
        return ecr_digest(clients, image)
    return registry_digest(image)
