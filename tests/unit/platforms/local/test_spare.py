"""The process that waits to become the next container, with a program in vLLM's stead."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from processes import processes_in, until

from toolkit.children import python_command
from toolkit.platforms.local import folders
from toolkit.platforms.local.command import Command
from toolkit.platforms.local.container import Container, LogStream
from toolkit.platforms.local.spare import Spares

SERVER = """
import http.server, json, os, socket, socketserver, sys, time
class Ping(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
if "--never-ready" in sys.argv:
    time.sleep(600)
if "--waits" in sys.argv:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[-1])
        listener.listen()
        connection = listener.accept()[0]
    request = json.loads(connection.makefile().readline())
    if "--lost" in sys.argv:
        sys.exit(1)
    connection.sendall(b"taken\\n")
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
print(json.dumps([sys.argv[1], os.environ["TMPDIR"], os.getcwd()]), flush=True)
socketserver.ThreadingUnixStreamServer(os.environ["SM_VLLM_UDS"], Ping).serve_forever()
"""


@pytest.fixture
def spares(tmp_path: Path) -> Iterator[Spares]:
    spares = Spares(tmp_path / "endpoints", 900)
    yield spares
    spares.close()


class Log(LogStream):
    def __init__(self, folder: Path) -> None:
        super().__init__("endpoint", "stream", folder)
        self.text = b""

    def write(self, text: bytes) -> None:
        self.text += text


@pytest.fixture
def start(tmp_path: Path, spares: Spares) -> Iterator[Callable[..., tuple[Container, str]]]:
    """A container in service, and `fresh` or `spare`, by what it says of itself."""
    program = tmp_path / "server"
    program.write_text(SERVER)
    started = []

    def command(words: tuple[str, ...], folder: Path, port: int) -> Command:
        temporary = folders.temporary_folder(folder)
        uds = temporary / "serve.sock"
        environment = {"TMPDIR": str(temporary), "SM_VLLM_UDS": str(uds), "PATH": os.environ["PATH"]}
        waits = python_command(str(program), "spare", "--waits", *words)
        return Command(python_command(str(program), "fresh"), environment, (), uds, waits)

    def start(name: str, *words: str) -> tuple[Container, str]:
        folder = tmp_path / "endpoints" / name / "1" / "v"
        (folder / "root").mkdir(parents=True)
        log = Log(tmp_path)
        container = Container(partial(command, words), folder, log, 0.5, spares)
        started.append(container)
        until(container.answers_ping)
        until(lambda: log.text.endswith(b"\n"))
        who, temporary, cwd = json.loads(log.text)
        assert (temporary, cwd) == (str(folders.temporary_folder(folder)), str(folder))
        return container, who

    yield start
    for container in started:
        container.stop()


def ready(tmp_path: Path) -> Path:
    """The folder of the spare that waits."""
    (socket,) = until(lambda: list((tmp_path / "endpoints" / "spare").glob("*/spare/tmp/spare.sock")))
    return Path(socket).parents[1]


def test_the_next_container_is_the_process_that_waited(
    tmp_path: Path, spares: Spares, start: Callable[..., tuple[Container, str]]
) -> None:
    first, who = start("a")
    assert who == "fresh"
    first.stop()
    spares.start()
    waits = ready(tmp_path)
    second, who = start("b")
    assert who == "spare"
    second.stop()
    until(lambda: not waits.exists())
    assert not processes_in(tmp_path)


def test_two_that_start_at_once_do_not_share_it(
    tmp_path: Path, spares: Spares, start: Callable[..., tuple[Container, str]]
) -> None:
    start("a")
    spares.start()
    ready(tmp_path)
    assert [start("b")[1], start("c")[1]] == ["spare", "fresh"]


def test_one_that_died_is_not_taken(
    tmp_path: Path, spares: Spares, start: Callable[..., tuple[Container, str]]
) -> None:
    start("a")
    spares.start()
    for pid in processes_in(ready(tmp_path)):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not processes_in(tmp_path / "endpoints" / "spare"))
    assert start("b")[1] == "fresh"


@pytest.mark.parametrize("words", [("--lost",), ("--another",)])
def test_a_start_goes_on_without_one_that_does_not_become_its_container(
    tmp_path: Path, spares: Spares, start: Callable[..., tuple[Container, str]], words: tuple[str, ...]
) -> None:
    start("a", *(word for word in words if word == "--lost"))
    spares.start()
    waits = ready(tmp_path)
    assert start("b", *words)[1] == "fresh"
    until(lambda: not waits.exists())


def test_one_that_is_not_ready_ends_when_a_container_starts(
    tmp_path: Path, spares: Spares, start: Callable[..., tuple[Container, str]]
) -> None:
    start("a", "--never-ready")
    spares.start()
    assert start("b")[1] == "fresh"
    until(lambda: not list((tmp_path / "endpoints" / "spare").glob("*/spare")))


def test_it_ends_when_its_time_is_over(
    tmp_path: Path, spares: Spares, start: Callable[..., tuple[Container, str]]
) -> None:
    start("a")
    brief = Spares(tmp_path / "endpoints", 0.001)
    brief.pattern = spares.pattern
    brief.start()
    until(lambda: not list((tmp_path / "endpoints" / "spare").glob("*/spare")))


def test_none_is_made_where_it_may_not_wait(
    tmp_path: Path, spares: Spares, start: Callable[..., tuple[Container, str]]
) -> None:
    start("a")
    never = Spares(tmp_path / "endpoints", 0)
    never.pattern = spares.pattern
    never.start()
    assert not (tmp_path / "endpoints" / "spare").exists()
