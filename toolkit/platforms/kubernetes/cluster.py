"""Requests to a cluster in plain JSON, by the official client's address, credentials and TLS; its kinds of objects."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack
from urllib.parse import urlencode

from kubernetes.client import ApiClient, ApiException
from urllib3 import HTTPResponse, Retry, Timeout

from toolkit import documents
from toolkit.platforms.kubernetes.documents import UnreadableAnswer, read_answer
from toolkit.platforms.kubernetes.rules.kinds import KINDS, ApiResource
from toolkit.platforms.kubernetes.rules.metadata import OURS
from toolkit.platforms.lease import Fenced

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
# A proxied model may think for long before its first byte.
_ANSWER_SECONDS = 300.0
_LONGEST_REFUSAL = 1024**2
_LIMITS = documents.Limits(size=64 * 1024**2)
FIELD_MANAGER = "toolkit"
# So many objects in one answer, as kubectl asks for: with what a pod's status says that is up to 10 MB.
_PAGE = 500
# The requests that hold a lease are conditions themselves.
_LEASES = "/apis/coordination.k8s.io/"


# What nobody plans, but is looked at on the way.
_OTHERS = {
    "Pod": ApiResource("v1", "pods"),
    "Event": ApiResource("v1", "events"),
    "ReplicaSet": ApiResource("apps/v1", "replicasets"),
    "StatefulSet": ApiResource("apps/v1", "statefulsets"),
    "Lease": ApiResource("coordination.k8s.io/v1", "leases"),
}
_RESOURCES = {**{str(rule.kind): rule.api for rule in KINDS}, **_OTHERS}


def path(kind: str, namespace: str, name: str = "") -> str:
    """The address of an object, or of all of a kind in the namespace; an empty namespace is all of them."""
    version, plural, namespaced = _RESOURCES[kind]
    root = "/apis" if "/" in version else "/api"
    within = f"/namespaces/{namespace}" if namespaced and namespace else ""
    return f"{root}/{version}{within}/{plural}" + (f"/{name}" if name else "")


def is_ours(manifest: Mapping[str, Any]) -> bool:
    """Whether the toolkit made it."""
    return OURS.items() <= labels(manifest).items()


def labels(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    written: Mapping[str, str] = manifest["metadata"].get("labels") or {}
    return written


def annotations_of(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    written: Mapping[str, str] = manifest["metadata"].get("annotations") or {}
    return written


def selector(wanted: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in wanted.items())


class SuppressStatus:
    """`contextlib.suppress` for the API server's refusals with one of these statuses."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = statuses

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, ApiException) and error.status in self._statuses


class _Options(TypedDict, total=False):
    query: Mapping[str, str]
    content_type: str


class _AskedAgain(Retry):
    """Asks before a request is sent again: this process may have been stopped meanwhile."""

    def __init__(self, *arguments: Any, ask: Callable[[], None], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._ask = ask

    def new(self, **options: Any) -> _AskedAgain:
        return super().new(ask=self._ask, **options)

    def increment(self, *arguments: Any, **options: Any) -> _AskedAgain:
        left = super().increment(*arguments, **options)
        self._ask()
        return left


class _NamedTls(ssl.SSLContext):
    """Asks for the certificate of `server_name`, whatever host is connected to: that may be the end of a tunnel."""

    server_name = ""

    @classmethod
    def create(cls, server_name: str, authority: str | None) -> ssl.SSLContext:
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context.server_name = server_name
        if authority:
            context.load_verify_locations(authority)
        else:
            context.load_default_certs()
        return context

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(*arguments, **{**options, "server_hostname": self.server_name})

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return super().wrap_bio(*arguments, **{**options, "server_hostname": self.server_name})


@dataclass(frozen=True)
class Cluster(Fenced):
    """The cluster of a kubeconfig's `context`, or the one that we run in. All calls raise ApiException.

    `namespace` is where the toolkit works, `proxy` the kubeconfig's.
    """

    client: ApiClient = field(repr=False)
    context: str
    namespace: str
    proxy: str | None = field(default=None, repr=False, kw_only=True)

    @property
    def url(self) -> str:
        return str(self.client.configuration.host)

    def call(self, method: str, path: str, body: Any = None, **options: Unpack[_Options]) -> dict[str, Any]:
        content = self.read(method, path, body, read_seconds=_READ_SECONDS, **options)
        return read_answer(content, f"{method} {self.url}{path}")

    def find(self, path: str) -> dict[str, Any] | None:
        with SuppressStatus(404):
            return self.call("GET", path)
        return None

    def items(self, path: str, query: Mapping[str, str]) -> list[dict[str, Any]]:
        return list(self.each(path, query))

    def each(self, path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """The objects of a list, of which one page is held at a time."""
        more = {"limit": str(_PAGE)}
        while more:
            page = self.call("GET", path, query={**query, **more})
            yield from page["items"]
            rest = (page.get("metadata") or {}).get("continue")
            more = {"limit": str(_PAGE), "continue": str(rest)} if rest else {}

    def apply(
        self, path: str, manifest: Mapping[str, Any], *, dry_run: bool = False, force: bool = False
    ) -> dict[str, Any]:
        """Server-side apply; returns the resulting object. Conflicts are refused, unless `force`."""
        query = {"fieldManager": FIELD_MANAGER, "force": str(force).lower(), **({"dryRun": "All"} if dry_run else {})}
        # JSON is YAML, and all that this content type may hold.
        return self.call("PATCH", path, manifest, query=query, content_type="application/apply-patch+yaml")

    def read(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        read_seconds: float = _ANSWER_SECONDS,
        limits: documents.Limits = _LIMITS,
        **options: Unpack[_Options],
    ) -> bytes:
        """The whole body of the answer. Raises UnreadableAnswer when it is too large or takes too long."""
        answer = self.open(method, path, body, read_seconds=read_seconds, retries=1, **options)
        try:
            with closing(answer):
                return documents.collect(answer.stream(), limits)
        except documents.Unfit as error:
            raise UnreadableAnswer(f"the answer to {method} {self.url}{path} cannot be used: {error}") from error

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        read_seconds: float = _ANSWER_SECONDS,
        retries: int = 0,
    ) -> HTTPResponse:
        """The answer itself, whose body is still to be read and closed."""
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        again: Retry | bool = Retry(retries) if retries else False
        if method != "GET" and "dryRun" not in (query or {}) and not path.startswith(_LEASES):
            self.confirm()
            again = _AskedAgain(retries, ask=self.confirm) if retries else False
        answer: HTTPResponse = self.client.rest_client.pool_manager.request(
            method,
            url,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Accept": "application/json, */*", **self.credentials()},
            timeout=Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
            retries=again,
            preload_content=False,
            decode_content=False,
        )
        if answer.status >= 400:
            error = ApiException(status=answer.status, reason=answer.reason)
            with closing(answer):
                error.body = answer.read(_LONGEST_REFUSAL).decode(errors="replace")
            raise error
        return answer

    def credentials(self) -> dict[str, str]:
        """Names the toolkit, with a fresh Authorization header unless there is a client certificate."""
        login = self.client.configuration.auth_settings().get("BearerToken")
        return {"User-Agent": "toolkit", **({login["key"]: login["value"]} if login else {})}

    def tls(self) -> ssl.SSLContext:
        """The cluster's certificate authority, and the client certificate where there is one."""
        settings = self.client.configuration
        if settings.tls_server_name:
            context = _NamedTls.create(settings.tls_server_name, settings.ssl_ca_cert)
        else:
            context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if not settings.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return context


def is_served(cluster: Cluster, kind: str) -> bool:
    """Whether the cluster has the kind, which whoever is logged in may ask (the role system:discovery)."""
    version, plural, _ = _RESOURCES[kind]
    with SuppressStatus(403):
        found = cluster.find(f"/{'apis' if '/' in version else 'api'}/{version}") or {}
        return any(item["name"] == plural for item in found.get("resources", ()))
    return True
