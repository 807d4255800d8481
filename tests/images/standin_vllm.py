"""Stands for vLLM's server inside a test image: says what it was started as, and ends on SIGTERM with 0.

A request that says `wait` is answered when the process gets SIGUSR1, one with `import` says where that module lies.
With DIES in its environment it dies at once, with PING its health check has that status.
"""

import hashlib
import importlib
import json
import os
import signal
import stat
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OWN = Path("/opt/toolkit")
CHANGES_WITH_EVERY_CONTAINER = {"HOSTNAME", "container"}
TOLD = threading.Event()


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({}, int(os.environ.get("PING", "200")))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("wait"):
            print("waits", flush=True)
            TOLD.wait()
        environment = {name: os.environ[name] for name in sorted(os.environ.keys() - CHANGES_WITH_EVERY_CONTAINER)}
        files = {str(path): described(path) for path in sorted((OWN, *OWN.rglob("*")))}
        mounted = {str(path): access(path) for path in sorted(Path("/opt/ml").rglob("*")) if path.is_file()}
        said = {"arguments": sys.argv[1:], "environment": environment, "user": os.getuid()}
        if "import" in asked:
            said["imported"] = importlib.import_module(asked["import"]).__file__
        self._answer({**said, "files": files, "mounted": mounted})

    def _answer(self, document: object, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def described(path: Path) -> list[object]:
    status = path.stat()
    is_text = path.is_file() and os.access(path, os.R_OK)
    content = hashlib.sha256(path.read_bytes()).hexdigest() if is_text else ""
    return [stat.filemode(status.st_mode), status.st_uid, status.st_gid, content]


def access(path: Path) -> str:
    return "writable" if os.access(path, os.W_OK) else "read-only"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGUSR1, lambda *_: TOLD.set())
    if "DIES" in os.environ:
        sys.exit("no such head")
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("0.0.0.0", port), Answers).serve_forever()
