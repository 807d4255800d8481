"""What a tag means now: the one place that chooses how an image's registry is asked for a digest."""

from __future__ import annotations

from toolkit.errors import BuildError
from toolkit.images.docker_config import docker_credentials
from toolkit.images.reference import parse
from toolkit.images.registry import Registry


def find_digest(image: str) -> str:
    """The digest of the image of that address, asked with the user's own credentials. Raises BuildError.

    ECR is asked through AWS's API, any other registry through its own, with the login of `docker login` or none.
    """
    from toolkit.platforms.sagemaker.images import ECR_HOST, ecr_digest

    reference = parse(image)
    if ecr := ECR_HOST.fullmatch(reference.registry):
        import boto3

        from toolkit.platforms.sagemaker.clients import Clients

        return ecr_digest(Clients(boto3.Session(region_name=ecr[1]), attempts=2), image)
    with Registry(reference.registry, docker_credentials) as registry:
        found = registry.find_manifest(reference.repository, reference.selector)
    if found is None:
        raise BuildError(f"{reference.registry} has no image {image}", hint="Correct the engine's version or the base.")
    return found.digest
