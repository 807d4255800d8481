"""A platform that remembers what it asks a cluster to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from toolkit.platforms.kubernetes.cluster import Cluster
from toolkit.platforms.kubernetes.platform import KubernetesPlatform


class Sent(NamedTuple):
    method: str
    path: str
    body: Any


@dataclass(frozen=True)
class RecordingCluster(Cluster):
    """`sent` are the requests that change something, dry runs as well."""

    sent: list[Sent] = field(default_factory=list)

    def open(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        if method != "GET":
            self.sent.append(Sent(method, path, body))
        return super().open(method, path, body, **options)

    def created(self, kind: str) -> list[Mapping[str, Any]]:
        return [sent.body for sent in self.sent if sent.method == "POST" and sent.body.get("kind") == kind]


def recorded(platform: KubernetesPlatform) -> tuple[KubernetesPlatform, RecordingCluster]:
    here = platform.cluster
    cluster = RecordingCluster(here.client, here.context, here.namespace)
    return replace(platform, cluster=cluster), cluster
