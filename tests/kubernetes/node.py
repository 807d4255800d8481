"""A node of a genuine control plane: its pods are containers of this machine, as their manifests have them.

It stands for the scheduler and the kubelet, in one namespace. What each pod goes through is in pod_life.py.
"""

from __future__ import annotations

import re
import ssl
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from container import Mount
from pod_life import PodLife, now
from pod_volumes import Document

from toolkit.platforms.kubernetes.cluster import Cluster, path

_LOOK_SECONDS = 0.1
_HEARTBEAT_SECONDS = 10.0
_NODES = "/api/v1/nodes"
PYTHON_PATH = "/opt/of-the-test"


class Node:
    """Runs pods of the cluster's namespace while it is used as a context.

    `buckets` has a folder for each. `pace` is how many times faster than declared probes come, preStop's pause and the
    one before the next start pass; what a container gets to answer or to end is as declared. `python_path` is a folder
    that Python looks into first in every container. While `may_be_ready` is not set, no pod becomes ready.
    """

    def __init__(self, cluster: Cluster, buckets: Path, pace: float, python_path: Path) -> None:
        self.cluster, self.buckets, self.pace = cluster, buckets, pace
        self.image, self.image_mounts = {"PYTHONPATH": PYTHON_PATH}, [Mount(python_path, PYTHON_PATH, read_only=True)]
        self.name = f"node-of-{cluster.namespace}"
        self.may_be_ready, self.over = threading.Event(), threading.Event()
        self.may_be_ready.set()
        self.pods: dict[str, Document] = {}
        self.lives: dict[str, PodLife] = {}
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Node:
        # A short path: vLLM's sockets are in there, and theirs has 107 characters at most.
        self._folder = tempfile.TemporaryDirectory()
        Path(self._folder.name).chmod(0o755)
        self._server = _log_server(self)
        self._serving = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._serving.start()
        self.cluster.call("POST", _NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}})
        self._heartbeat()
        self._threads = ThreadPoolExecutor()
        self._lived: list[Future[None]] = []
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Kills what still runs. Raises what went wrong with a pod."""
        self.over.set()
        self._thread.join()
        self._threads.shutdown()
        self._server.shutdown()
        self._server.server_close()
        self._serving.join()
        self.cluster.call("DELETE", f"{_NODES}/{self.name}")
        self._folder.cleanup()
        for lived in self._lived:
            lived.result()

    def lines(self, pod: str) -> list[str]:
        """What the pod's containers have written, also of one that is no more."""
        return [line for start in self.lives[pod].logs for _, line in start]

    def _work(self) -> None:
        beats = time.monotonic()
        while not self.over.wait(_LOOK_SECONDS):
            if time.monotonic() > beats + _HEARTBEAT_SECONDS:
                beats = time.monotonic()
                self._heartbeat()
            listed = self.cluster.items(path("Pod", self.cluster.namespace), {})
            self.pods = {item["metadata"]["name"]: item for item in listed}
            for name in self.pods.keys() - self.lives.keys():
                self.lives[name] = PodLife(self, self.pods[name], Path(self._folder.name, name))
                self._lived.append(self._threads.submit(self.lives[name].live))

    def _heartbeat(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()}
        endpoint = {"kubeletEndpoint": {"Port": self._server.server_port}}
        addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
        status = {"conditions": [ready], "addresses": addresses, "daemonEndpoints": endpoint}
        place, kind = f"{_NODES}/{self.name}/status", "application/merge-patch+json"
        self.cluster.call("PATCH", place, {"status": status}, content_type=kind)


def _log_server(node: Node) -> ThreadingHTTPServer:
    """Where the API server asks for a container's log. Its certificate is the API server's own: nobody looks at it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            found = re.fullmatch(r"/containerLogs/[^/]+/([^/]+)/[^/]+", asked.path)
            query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
            starts = node.lives[found[1]].logs if found and found[1] in node.lives else []
            number = -2 if query.get("previous") == "true" else -1
            code = 200 if len(starts) >= -number else 400
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
