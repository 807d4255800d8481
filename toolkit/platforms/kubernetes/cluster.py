"""Requests to a cluster in plain JSON, with address, credentials and TLS of the official client."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from kubernetes.client import ApiClient, ApiException
from urllib3 import HTTPResponse, Timeout

from toolkit.platforms.kubernetes.kinds import FIELD_MANAGER

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
# A proxied model may think for long before its first byte.
_ANSWER_SECONDS = 300.0


@dataclass(frozen=True)
class Cluster:
    """The cluster of a kubeconfig's `context`, or the one that we run in. All calls raise ApiException."""

    client: ApiClient = field(repr=False)
    context: str

    @property
    def url(self) -> str:
        """URL of the API server."""
        return str(self.client.configuration.host)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """The JSON document that the API server answers with."""
        answer = self.open(method, path, body, query, content_type, _READ_SECONDS)
        try:
            document: dict[str, Any] = json.loads(answer.data)
        except ValueError as error:
            reason = (
                f"{self.url} does not answer with JSON, so it is not an API server but perhaps a proxy or a login page"
            )
            raise ApiException(status=answer.status, reason=reason) from error
        return document

    def find(self, path: str) -> dict[str, Any] | None:
        """The object at a path, if it exists."""
        try:
            return self.call("GET", path)
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def items(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """The objects of a list."""
        found: list[dict[str, Any]] = self.call("GET", path, query=query)["items"]
        return found

    def apply(
        self, path: str, manifest: Mapping[str, Any], *, dry_run: bool = False, force: bool = False
    ) -> dict[str, Any]:
        """Server-side apply; returns the resulting object. Conflicts are refused, unless `force`."""
        query = {"fieldManager": FIELD_MANAGER, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
        # JSON is YAML, and all that this content type may hold.
        return self.call("PATCH", path, manifest, query, "application/apply-patch+yaml")

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        read_seconds: float = _ANSWER_SECONDS,
        *,
        stream: bool = False,
    ) -> HTTPResponse:
        """The answer itself; with `stream` its body is still to be read and closed."""
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        answer: HTTPResponse = self.client.rest_client.pool_manager.request(
            method,
            url,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Accept": "application/json, */*", **self.credentials()},
            timeout=Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
            retries=False if stream else 1,
            preload_content=not stream,
        )
        if answer.status >= 400:
            error = ApiException(status=answer.status, reason=answer.reason)
            error.body = answer.data.decode(errors="replace")
            raise error
        return answer

    def credentials(self) -> dict[str, str]:
        """A fresh Authorization header; empty with a client certificate."""
        headers: dict[str, str] = {}
        self.client.update_params_for_auth(headers, [], ["BearerToken"])
        return {"User-Agent": "toolkit", **headers}

    def tls(self) -> ssl.SSLContext:
        """The cluster's certificate authority, and the client certificate where there is one."""
        settings = self.client.configuration
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if not settings.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return context
