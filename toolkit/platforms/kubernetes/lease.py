"""The lease of an endpoint as a Kubernetes Lease in its namespace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from toolkit.apply.progress import default_progress
from toolkit.errors import PlatformError
from toolkit.platforms.kubernetes.cluster import Cluster, SuppressStatus, annotations_of, is_ours, path
from toolkit.platforms.kubernetes.errors import causes_of
from toolkit.platforms.kubernetes.execute import Objects
from toolkit.platforms.kubernetes.rules.metadata import INSTANCE, OURS
from toolkit.platforms.lease import Entry, Holder, Rules, read_holder

# Admission plugin NamespaceLifecycle: the cause that it gives.
_TERMINATING = "NamespaceTerminating"
_HOLDER = "toolkit/holder"
_LONGEST_SECONDS = 300.0
_RULES = Rules(seconds=30.0, renewal_seconds=10.0, poll_seconds=2.0)


@dataclass(frozen=True)
class ClusterLease:
    """See platforms.lease.LeaseStore. A namespace that does not exist is made; in one that is being deleted it waits
    until that is gone.
    """

    cluster: Cluster
    endpoint: str
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    rules: Rules = _RULES
    errors: tuple[type[Exception], ...] = (ApiException, HTTPError)

    @property
    def key(self) -> str:
        return f"{self.cluster.url}{self._path}"

    def create(self, holder: Holder) -> str:
        """The new lease's version; empty when there is one already, or there was no namespace for it."""
        try:
            created = self.cluster.call("POST", path("Lease", self.cluster.namespace), self._document(holder))
        except ApiException as error:
            if error.status == 404:
                self._make_namespace()
            elif any(cause.get("reason") == _TERMINATING for cause in causes_of(error)):
                self._await_namespace()
            elif error.status != 409:
                raise
            return ""
        return str(created["metadata"]["resourceVersion"])

    def read(self) -> Entry | None:
        lease = self.cluster.find(self._path)
        if lease is None:
            return None
        metadata, spec = lease["metadata"], lease.get("spec") or {}
        if not is_ours(lease):
            hint = "Give the recipe another `name:`, or remove that Lease."
            raise PlatformError(f"Lease {metadata['name']} was not created by the toolkit", hint=hint)
        try:
            holder: Holder | str = read_holder(annotations_of(lease).get(_HOLDER, ""))
        except ValueError:
            holder = spec.get("holderIdentity", "somebody")
        # Whoever holds it may have said that it renews less often, but not that it keeps others out for years.
        seconds = min(spec.get("leaseDurationSeconds", self.rules.seconds), _LONGEST_SECONDS)
        return Entry(metadata["resourceVersion"], holder, seconds)

    def replace(self, holder: Holder, version: str) -> str:
        with SuppressStatus(404, 409):
            changed = self.cluster.call("PUT", self._path, self._document(holder, resourceVersion=version))
            return str(changed["metadata"]["resourceVersion"])
        return ""

    def delete(self, version: str) -> bool:
        with SuppressStatus(404, 409):
            self.cluster.call("DELETE", self._path, {"preconditions": {"resourceVersion": version}})
            return True
        return False

    @property
    def _path(self) -> str:
        return path("Lease", self.cluster.namespace, f"toolkit-{self.endpoint}")

    def _document(self, holder: Holder, **version: str) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": f"toolkit-{self.endpoint}",
                "labels": {**OURS, INSTANCE: self.endpoint},
                "annotations": {_HOLDER: json.dumps(asdict(holder))},
                **version,
            },
            "spec": {
                "holderIdentity": f"{holder.user}@{holder.host} {holder.pid}",
                "leaseDurationSeconds": int(self.rules.seconds),
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }

    def _make_namespace(self) -> None:
        metadata = {"name": self.cluster.namespace, "labels": OURS}
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.cluster.apply(path("Namespace", "", self.cluster.namespace), manifest)

    def _await_namespace(self) -> None:
        """Nothing is made in a namespace that is being deleted."""
        if namespace := self.cluster.find(path("Namespace", "", self.cluster.namespace)):
            Objects(self.cluster, self.clock, self.sleep, default_progress()).wait_gone("Namespace", namespace)
