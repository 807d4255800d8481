"""Stands for vLLM's server inside a test image: says what it was started as, and ends on SIGTERM with 0."""

import hashlib
import json
import os
import signal
import stat
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

OWN = Path("/opt/toolkit")
CHANGES_WITH_EVERY_CONTAINER = {"HOSTNAME", "container"}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        environment = {name: os.environ[name] for name in sorted(os.environ.keys() - CHANGES_WITH_EVERY_CONTAINER)}
        files = {str(path): described(path) for path in sorted((OWN, *OWN.rglob("*")))}
        self._answer({"arguments": sys.argv[1:], "environment": environment, "user": os.getuid(), "files": files})

    def _answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def described(path: Path) -> list[object]:
    status = path.stat()
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return [stat.filemode(status.st_mode), status.st_uid, status.st_gid, content]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()
