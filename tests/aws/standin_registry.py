"""The account's ECR registry, when a real registry on this machine stands for it."""

from __future__ import annotations

import base64
import ssl
from typing import Any

import httpx
from moto.ecr.models import ecr_backends
from standin_http import Call

from toolkit.images.manifest import SCHEMA_2
from toolkit.platforms.local.aws import ACCOUNT, ServiceError, now

_PASSWORD = "first"
# It listens without TLS: to read the certificates of all authorities takes longer than it does.
_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# Bills of materials and signatures too.
_ANY = f"{SCHEMA_2}, application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"


class OwnRegistry:
    """What of ECR depends on what was pushed; all else, such as repositories and their tags, is moto's.

    `findings` is what a scan of every image finds, by severity.
    """

    def __init__(self, host: str | None = None) -> None:
        self.host = host
        self.findings: dict[str, int] = {}
        self.operations = {
            "ecr:GetAuthorizationToken": self._token,
            "ecr:BatchDeleteImage": self._delete,
            "ecr:DescribeImages": self._images,
            "ecr:DescribeImageScanFindings": self._scan,
        }

    def has(self, repository: str, selector: str) -> bool:
        """Whether SageMaker could take that image: it is there, and its manifest is not OCI."""
        return self._head(repository, selector).headers.get("Content-Type") == SCHEMA_2

    def _token(self, _: Call) -> object:
        if self.host is None:
            return None
        token = base64.b64encode(f"AWS:{_PASSWORD}".encode()).decode()
        return {"authorizationData": [{"authorizationToken": token, "proxyEndpoint": f"http://{self.host}"}]}

    def _images(self, call: Call) -> object:
        if self.host is None:
            return None
        repository = call.request["repositoryName"]
        if repository not in ecr_backends[ACCOUNT][call.region].repositories:
            raise ServiceError(f"The repository {repository} does not exist", code="RepositoryNotFoundException")
        details: list[dict[str, Any]] = []
        wanted = [item["imageTag"] for item in call.request.get("imageIds", [])]
        for tag in wanted or self._tags(repository):
            answer = self._head(repository, tag, SCHEMA_2 if wanted else _ANY)
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise ServiceError(f"The image {tag} does not exist", code="ImageNotFoundException")
            digest = answer.headers["Docker-Content-Digest"]
            detail = {"repositoryName": repository, "imageDigest": digest, "imageTags": [tag], "imagePushedAt": now()}
            details.append(detail)
        return {"imageDetails": details}

    def _delete(self, call: Call) -> object:
        if self.host is None:
            return None
        repository = call.request["repositoryName"]
        for item in call.request["imageIds"]:
            url = f"http://{self.host}/v2/{repository}/manifests/{item['imageDigest']}"
            httpx.delete(url, trust_env=False, verify=_CONTEXT).raise_for_status()
        return {"imageIds": call.request["imageIds"], "failures": []}

    def _tags(self, repository: str) -> list[str]:
        answer = httpx.get(f"http://{self.host}/v2/{repository}/tags/list", trust_env=False, verify=_CONTEXT)
        return [] if answer.status_code == httpx.codes.NOT_FOUND else answer.json()["tags"] or []

    def _scan(self, call: Call) -> object:
        if self.host is None:
            return None
        return {
            "imageScanStatus": {"status": "COMPLETE"},
            "imageScanFindings": {"findings": [], "findingSeverityCounts": self.findings},
        }

    def _head(self, repository: str, selector: str, accept: str = SCHEMA_2) -> httpx.Response:
        url = f"http://{self.host}/v2/{repository}/manifests/{selector}"
        return httpx.head(url, headers={"Accept": accept}, trust_env=False, verify=_CONTEXT)
