"""A node that a genuine control plane knows: it stands for the scheduler, and for what of a kubelet is seen from there.

What its pods do is for those who build on it to say.
"""

from __future__ import annotations

import ssl
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from toolkit.platforms.kubernetes.cluster import Cluster, SuppressStatus, path
from toolkit.platforms.kubernetes.pods import containers

Document = dict[str, Any]
_HEARTBEAT_SECONDS = 10.0
_NODES = "/api/v1/nodes"
_MERGE = "application/merge-patch+json"


class RegisteredNode:
    """Of the cluster's namespace, while it is used as a context. `logs` has each pod's lines with their times, by
    start.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.name = cluster, f"node-of-{cluster.namespace}"
        self.logs: dict[str, list[list[tuple[str, str]]]] = {}

    def __enter__(self) -> Self:
        self._server = _log_server(self)
        self.cluster.call("POST", _NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        self._heartbeat()
        self._serving = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._serving.join()
        self.cluster.call("DELETE", f"{_NODES}/{self.name}")

    def keep_alive(self) -> None:
        """To be called now and then: pods of a node that is silent for 50 s are no longer ready."""
        if time.monotonic() > self._beat + _HEARTBEAT_SECONDS:
            self._heartbeat()

    def _heartbeat(self) -> None:
        self._beat = time.monotonic()
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
        endpoint = {"kubeletEndpoint": {"Port": self._server.server_port}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"conditions": [ready], "addresses": addresses, "daemonEndpoints": endpoint}
        self.cluster.call("PATCH", f"{_NODES}/{self.name}/status", {"status": status}, content_type=_MERGE)

    def bind(self, pod: Document) -> None:
        """It is this node's, as the scheduler says it."""
        name = pod["metadata"]["name"]
        target = {"apiVersion": "v1", "kind": "Node", "name": self.name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        with SuppressStatus(404, 409):  # it is gone, or going
            self.cluster.call("POST", f"{path('Pod', self.cluster.namespace, name)}/binding", binding)

    def write_status(self, pod: Document, status: Document) -> None:
        """If the pod is still there."""
        place = f"{path('Pod', self.cluster.namespace, pod['metadata']['name'])}/status"
        with SuppressStatus(404):
            self.cluster.call("PATCH", place, {"status": status}, content_type=_MERGE)

    def tell(self, pod: Document, reason: str, message: str) -> None:
        """An event."""
        namespace, metadata = self.cluster.namespace, pod["metadata"]
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": namespace},
            "involvedObject": {**about, "name": metadata["name"], "uid": metadata["uid"]},
            "reason": reason,
            "message": message,
            "lastTimestamp": now(),
        }
        self.cluster.call("POST", path("Event", namespace), event)

    def let_go(self, pod: Document) -> None:
        """It has ended, and is no more."""
        with SuppressStatus(404):
            place = path("Pod", self.cluster.namespace, pod["metadata"]["name"])
            self.cluster.call("DELETE", place, query={"gracePeriodSeconds": "0"})


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _log_server(node: RegisteredNode) -> ThreadingHTTPServer:
    """Where the API server asks for a container's log. Its certificate is the API server's own: nobody looks at it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            _, _, _, name, container = asked.path.split("/")
            query = {key: values[-1] for key, values in parse_qs(asked.query).items()}
            pod, starts = node.cluster.find(path("Pod", node.cluster.namespace, name)), node.logs.get(name, [])
            number = _start_to_read(pod or {}, container, query.get("previous") == "true")
            code = 200 if 0 <= number < len(starts) else 400
            since = query.get("sinceTime", "").rstrip("Z")
            lines = (f"{at} {line}\n" for at, line in list(starts[number]) if at >= since) if code == 200 else ()
            body = "".join(lines).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    certificate = Path(node.cluster.client.configuration.ssl_ca_cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _start_to_read(pod: Document, container: str, previous: bool) -> int:
    """The number of the start whose log it gives: validateContainerLogStatus in pkg/kubelet/kubelet_pods.go."""
    for status in containers(pod):
        if status["name"] == container:
            waits = "waiting" in status["state"]
            return int(status["restartCount"]) - (previous and not waits)
    return -1
