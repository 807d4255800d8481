"""What kube-proxy and the cluster's DNS do, in one namespace: Services have an address that leads to a ready pod."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from forwarder import Target, forwarded
from pod_volumes import Document

from toolkit.platforms.kubernetes.cluster import path
from toolkit.platforms.kubernetes.pods import is_ready

if TYPE_CHECKING:
    from node import Node


class Services:
    """Of the node's namespace; those of one port, which is a name in pods."""

    def __init__(self, node: Node) -> None:
        self._node, self._held = node, ExitStack()
        self._addresses: dict[str, str] = {}

    def look(self) -> None:
        """New ones get their address."""
        for service in self._node.cluster.items(path("Service", self._node.cluster.namespace), {}):
            name, spec = service["metadata"]["name"], service["spec"]
            if name not in self._addresses and spec["clusterIP"] != "None":
                self._addresses[name] = spec["clusterIP"]
                (port,) = spec["ports"]
                self._held.enter_context(forwarded(spec["clusterIP"], port["port"], self._target(spec)))

    def hosts(self) -> str:
        """Lines of /etc/hosts."""
        where = self._node.cluster.namespace
        return "".join(f"{address} {name}.{where}.svc\n" for name, address in [*self._addresses.items()])

    def close(self) -> None:
        self._held.close()

    def _target(self, spec: Document) -> Target:
        ((wanted, port),) = ((spec["selector"], item["targetPort"]) for item in spec["ports"])

        def target() -> tuple[str, int] | None:
            for name, pod in [*self._node.pods.items()]:
                if wanted.items() <= pod["metadata"]["labels"].items() and is_ready(pod):
                    return self._node.lives[name].address, _number(pod, port)
            return None

        return target


def _number(pod: Document, port: str | int) -> int:
    (container,) = pod["spec"]["containers"]
    named = {item.get("name"): item["containerPort"] for item in container["ports"]}
    return int(named.get(port, port))
