"""Bodies of strangers: the daemon says no before it reads them, and forgets the connection."""

from __future__ import annotations

import re
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from local_account import Account
from other_user import as_nobody
from test_large_bodies import peak_memory
from test_other_users import forged

MiB = 1024**2
CONNECTIONS = 300
PATHS = {"control": "/", "runtime": "/endpoints/chat/invocations"}


def threads(pid: int) -> int:
    found = re.search(r"Threads:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1])


def send_unfinished(url: str, path: str, pid: int, connections: int) -> tuple[list[bytes], int]:
    """The first lines of the answers to so many bodies that lack their last byte, and the threads once they are in."""
    target = {"X-Amz-Target": "SageMaker.CreateModel"}
    headers = {**forged(url, "POST", path, b"", target), "Host": urlsplit(url).netloc, "Content-Length": str(6 * MiB)}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    sent = f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + b"x" * (6 * MiB - 1)
    address = (urlsplit(url).hostname, urlsplit(url).port)
    answers = []
    with ExitStack() as stack:
        for _ in range(connections):
            client = stack.enter_context(socket.create_connection(address, timeout=10))
            with suppress(OSError):  # the daemon hung up, or reads no more of it
                client.sendall(sent)
            try:
                answers.append(client.recv(12))
            except ConnectionResetError:
                answers.append(b"")
        return answers, threads(pid)


@pytest.mark.parametrize("port", ["control", "runtime"])
def test_a_strangers_unfinished_bodies_take_no_memory(account: Account, port: str) -> None:
    """150 of them took 0.9 GB of the gateway, and as many threads of the control plane."""
    pid = account.daemon.pid
    url = account.daemon.control_url if port == "control" else account.daemon.runtime_url
    account.sagemaker.list_endpoints()
    memory, running = peak_memory(pid), threads(pid)
    answers, during = as_nobody(send_unfinished, url, PATHS[port], pid, CONNECTIONS)
    assert len(answers) == CONNECTIONS
    assert set(answers) <= {b"HTTP/1.1 403", b""}
    assert b"HTTP/1.1 403" in answers
    assert peak_memory(pid) - memory < 50 * MiB
    assert during - running < 20
    assert account.sagemaker.list_endpoints()["Endpoints"], "the owner is answered"


def test_a_silent_connection_to_the_control_port_ends(account: Account) -> None:
    url = urlsplit(account.daemon.control_url)
    with socket.create_connection((url.hostname, url.port), timeout=40) as client:
        client.sendall(b"POST / HTTP/1.1\r\n")
        assert client.recv(1) == b""
