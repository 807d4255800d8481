"""Heads and bodies of strangers: what has no end takes no memory, and the daemon forgets the connection."""

from __future__ import annotations

import re
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from local_account import Account
from other_user import as_nobody
from test_large_bodies import peak_memory
from test_other_users import forged

MiB = 1024**2
CONNECTIONS = 1000
BODIES = 300
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
    answers, during = as_nobody(send_unfinished, url, PATHS[port], pid, BODIES)
    assert len(answers) == BODIES
    assert set(answers) <= {b"HTTP/1.1 403", b""}
    assert b"HTTP/1.1 403" in answers
    assert peak_memory(pid) - memory < 50 * MiB
    assert during - running < 20
    assert account.sagemaker.list_endpoints()["Endpoints"], "the owner is answered"


def open_unfinished(url: str, connections: int) -> None:
    """So many connections at once, each with a head that never ends, until the daemon has taken what it takes."""
    address = (urlsplit(url).hostname, urlsplit(url).port)
    head = b"POST / HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(10))
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(connections)]
        for client in clients:
            client.sendall(head)
        with suppress(ConnectionError):  # one of them goes on, until it is cut
            clients[0].sendall(b"X: " + b"x" * (100 * MiB))
            raise AssertionError("a head of 100 MiB was taken")


@pytest.mark.parametrize("port", ["control", "runtime"])
def test_a_thousand_unfinished_heads_take_little_memory(account: Account, port: str) -> None:
    pid = account.daemon.pid
    url = account.daemon.control_url if port == "control" else account.daemon.runtime_url
    memory = peak_memory(pid)
    as_nobody(open_unfinished, url, CONNECTIONS)
    assert peak_memory(pid) - memory < 50 * MiB
    assert account.sagemaker.list_endpoints()["Endpoints"], "the owner is answered"


def test_a_connection_that_sends_a_letter_now_and_then_ends(account: Account) -> None:
    """It holds a thread."""
    url = urlsplit(account.daemon.control_url)
    began = time.monotonic()
    with socket.create_connection((url.hostname, url.port), timeout=1) as client, suppress(OSError):
        while time.monotonic() - began < 60:
            client.sendall(b"x")
            with suppress(TimeoutError):
                assert client.recv(1) == b""
                break
    assert time.monotonic() - began < 40
