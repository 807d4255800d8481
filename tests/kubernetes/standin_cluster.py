"""A Kubernetes API server on the loopback, with its controllers and a scripted kubelet: what the toolkit asks of one.

It answers HTTP as kube-apiserver does for the kinds of standin_store.py, and knows no others. Controllers take a turn
before each answer; the kubelet goes on when somebody looks at a Deployment, a Job or a pod, as whoever waits does.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3
from standin_controllers import Controllers
from standin_store import APIS, Document, Key, Refusal, Store

TOKEN = "the-token"
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATH = re.compile(
    r"^/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>\w+)(?P<rest>/.*)?)?$"
)


@dataclass(frozen=True)
class Asked:
    """A request as the API server reads it."""

    method: str
    key: Key
    subresource: str
    rest: str
    query: Mapping[str, str]
    body: Any

    @property
    def verb(self) -> str:
        return "list" if self.method == "GET" and not self.key.name else _VERBS[self.method]


@dataclass
class StandInCluster:
    """Running while it is used as a context. `forbidden` are pairs of verb and resource; `backend` serves all
    pods but those of `backends`, by their names, and but for the `pages` that they show by themselves. `asked` and
    `bodies` are what was asked, by verb and resource.
    """

    forbidden: set[tuple[str, str]] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    backend: str = ""
    backends: dict[str, str] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[tuple[tuple[str, str], Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = Store()
        self.controllers = Controllers(self.store)
        self.lock = threading.RLock()

    def __enter__(self) -> StandInCluster:
        cluster = self

        class Handler(_Handler):
            standin = cluster

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stand-in", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": TOKEN}}],
            "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "me"}}],
            "current-context": "stand-in",
        }

    def answer(self, asked: Asked) -> Document:
        """The document, or Refusal."""
        with self.lock:
            self.asked.append((asked.verb, asked.key.plural))
            self.bodies.append(((asked.verb, asked.key.plural), asked.body))
            self._require_allowed(asked)
            looked_at = asked.verb == "get" and asked.key.plural in ("deployments", "jobs", "pods")
            self.controllers.turn(kubelet=looked_at)
            match asked.verb:
                case "list":
                    return self._list(asked)
                case "get":
                    return self.store.get(asked.key)
                case "create":
                    key = Key(asked.key.plural, asked.key.namespace, asked.body["metadata"]["name"])
                    return self.store.write(key, asked.body, asked.query.get("fieldManager", "unknown"), must="create")
                case "update":
                    manager = asked.query.get("fieldManager", "unknown")
                    return self.store.write(asked.key, asked.body, manager, must="update")
                case "patch":
                    manager, force = asked.query["fieldManager"], asked.query.get("force") == "true"
                    dry_run = asked.query.get("dryRun") == "All"
                    return self.store.apply(asked.key, asked.body, manager, force=force, dry_run=dry_run)
                case _:
                    return self._delete(asked)

    def log(self, asked: Asked) -> str:
        """A container's log: that of its present start, or of the one before."""
        with self.lock:
            self._require_allowed(asked)
            if asked.key not in self.controllers.pods:
                raise asked.key.not_found()
            statuses = self.store.objects[asked.key].get("status", {}).get("containerStatuses", [])
            wanted = next((item for item in statuses if item["name"] == asked.query["container"]), None)
            has_ended = wanted is not None and wanted["lastState"].get("terminated")
            if wanted is None or ("waiting" in wanted["state"] and not has_ended):
                message = f'container "{asked.query["container"]}" in pod "{asked.key.name}" is waiting to start'
                raise Refusal(400, "BadRequest", message)
            number = wanted["restartCount"]
            if asked.query.get("previous") == "true":
                number -= "waiting" not in wanted["state"]
            lines = self.controllers.pods[asked.key].logs.get(number, [])
            since = asked.query.get("sinceTime", "")
            return "".join(f"{time} {line}\n" for time, line in lines if time >= since)

    def target(self, asked: Asked) -> str:
        """The URL to which a request to a Service's or a pod's proxy goes."""
        with self.lock:
            self._require_allowed(asked)
            self.controllers.turn(kubelet=False)
            if asked.key.plural == "pods":
                pod = self.store.get(Key("pods", asked.key.namespace, asked.key.name.partition(":")[0]))
            else:
                pod = self.ready_pod(asked.key)
            return f"{self.backends.get(pod['metadata']['name'], self.backend)}{asked.rest}"

    def ready_pod(self, service: Key) -> Document:
        """The pod to which a Service leads, which may be named with its port. Refusal where none is ready."""
        name = service.name.partition(":")[0]
        selector = self.store.get(Key("services", service.namespace, name))["spec"]["selector"]
        for pod in self.store.select("pods", service.namespace, selector):
            conditions = pod.get("status", {}).get("conditions", [])
            if any({"type": "Ready", "status": "True"}.items() <= item.items() for item in conditions):
                return pod
        raise Refusal(503, "ServiceUnavailable", f'no endpoints available for service "{service.name}"')

    def _list(self, asked: Asked) -> Document:
        labels = dict(item.split("=", 1) for item in filter(None, asked.query.get("labelSelector", "").split(",")))
        fields = dict(item.split("=", 1) for item in filter(None, asked.query.get("fieldSelector", "").split(",")))
        found = self.store.select(asked.key.plural, asked.key.namespace, labels)
        for name, value in fields.items():
            about = name.removeprefix("involvedObject.")
            found = [item for item in found if item["involvedObject"].get(about) == value]
        first = int(asked.query.get("continue", 0))
        last = first + int(asked.query.get("limit", len(found)))
        more = {"continue": str(last)} if last < len(found) else {}
        return {"kind": "List", "apiVersion": "v1", "metadata": more, "items": found[first:last]}

    def _delete(self, asked: Asked) -> Document:
        there, options = self.store.get(asked.key), asked.body or {}
        for name, wanted in options.get("preconditions", {}).items():
            if there["metadata"][name] != wanted:
                raise Refusal(409, "Conflict", f"Precondition failed: {name}")
        is_owner = asked.key.plural in ("deployments", "jobs")
        foreground = options.get("propagationPolicy") == "Foreground" and is_owner
        self.store.mark_deleted(asked.key, ["foregroundDeletion"] if foreground else [])
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _require_allowed(self, asked: Asked) -> None:
        resource = f"{asked.key.plural}/{asked.subresource}" if asked.subresource else asked.key.plural
        if (asked.verb, resource) in self.forbidden:
            group = asked.key.api.group_version.rpartition("/")[0]
            full = f"{asked.key.plural}.{group}" if group else asked.key.plural
            name = f' "{asked.key.name}"' if asked.key.name else ""
            where = f'in the namespace "{asked.key.namespace}"' if asked.key.namespace else "at the cluster scope"
            raise Refusal(403, "Forbidden",
                f'{full}{name} is forbidden: User "me" cannot {asked.verb} resource "{resource}" in API group '
                f'"{group}" {where}',
            )  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    standin: StandInCluster

    def _respond(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise Refusal(401, "Unauthorized", "Unauthorized")
            asked = self._asked(raw)
            if asked is None:
                self._send(404, b"404 page not found\n", "text/plain")
            elif asked.subresource == "log":
                self._send(200, self.standin.log(asked).encode(), "text/plain")
            elif asked.subresource == "proxy":
                target = self.standin.target(asked)
                if asked.rest in self.standin.pages:
                    self._send(200, self.standin.pages[asked.rest].encode(errors="surrogateescape"), "text/plain")
                else:
                    self._pass_on(target, raw)
            else:
                self._send(200, json.dumps(self.standin.answer(asked)).encode())
        except Refusal as refusal:
            self._send(refusal.code, json.dumps(refusal.status).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _respond  # noqa: N815

    def _asked(self, raw: bytes) -> Asked | None:
        """None for what no resource is."""
        url = urlsplit(self.path)
        found = _PATH.match(url.path)
        if not found or found["plural"] not in APIS or found["plural"] in self.standin.missing:
            return None
        if (found["core"] or found["group"]) != APIS[found["plural"]].group_version:
            return None
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        key = Key(found["plural"], found["namespace"] or "", found["name"] or "")
        is_proxy = found["sub"] == "proxy"
        body = json.loads(raw) if raw and not is_proxy else None
        return Asked(self.command, key, found["sub"] or "", found["rest"] or "/", query, body)

    def _pass_on(self, url: str, raw: bytes) -> None:
        """As the API server's proxy: the answer's parts as they come, and none of the caller's credentials."""
        with urllib3.PoolManager() as pool:
            headers = {"Content-Type": "application/json"}
            try:
                answer = pool.request(
                    self.command, url, body=raw, headers=headers, preload_content=False, retries=False
                )
            except urllib3.exceptions.HTTPError as error:
                message = f"error trying to reach service: {error}"
                raise Refusal(503, "ServiceUnavailable", message) from error
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                while part := answer.read1():
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                    self.wfile.flush()
            except urllib3.exceptions.HTTPError:
                return  # it broke off, and so does this
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, code: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None: ...
