"""Addresses of this machine that lead elsewhere: those of pods that are none, and of Services. It takes root."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Target = Callable[[], tuple[str, int] | None]


@contextmanager
def forwarded(address: str, port: int, target: Target) -> Iterator[None]:
    """Connections to the address go on to the target of that moment; without one they end."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            if there := target():
                with suppress(OSError), socket.create_connection(there) as onwards:
                    back = threading.Thread(target=_copy, args=(onwards, self.request))
                    back.start()
                    _copy(self.request, onwards)
                    back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True  # an API server keeps its connections

    ours = [f"{address}/32", "dev", "lo"]
    # A run that was killed may have left it there.
    subprocess.run(["ip", "address", "replace", *ours], check=True)
    try:
        with Server((address, port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()
    finally:
        subprocess.run(["ip", "address", "delete", *ours], check=False)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):  # one of the two has hung up
        while part := source.recv(65536):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_WR)
