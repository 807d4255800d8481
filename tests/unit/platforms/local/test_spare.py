"""The process that waits to become the next container, with a program in vLLM's stead."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import processes_in, until

from toolkit.children import python_command
from toolkit.home import containers_dir
from toolkit.loading import load
from toolkit.platforms.local import folders
from toolkit.platforms.local.command import Command, process
from toolkit.platforms.local.container import Container, LogStream
from toolkit.platforms.local.spare import Pattern, Spare, Spares, waiting

SERVER = """
import http.server, json, os, socket, socketserver, sys
class Ping(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
home, place = os.environ["HOME"], os.path.dirname(__file__)
if "waits" in sys.argv:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[-1] + ".new")
    listener.listen()
    os.rename(sys.argv[-1] + ".new", sys.argv[-1])
    if os.path.exists(place + "/imports"):
        open(place + "/imports").read()
    request = json.load(listener.accept()[0].makefile())
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
same_home = os.path.samefile(home, os.environ["HOME"])
print(json.dumps([sys.argv[1], os.environ["TMPDIR"], os.getcwd(), same_home]), flush=True)
socketserver.ThreadingUnixStreamServer(os.environ["SM_VLLM_UDS"], Ping).serve_forever()
"""
GIGABYTES = 1024**3


class Log(LogStream):
    def __init__(self, folder: Path) -> None:
        super().__init__("endpoint", "stream", folder)
        self.text = b""

    def write(self, text: bytes) -> None:
        self.text += text


class Local:
    """Containers one after the other, and what waits between them."""

    def __init__(self, home: Path) -> None:
        self.endpoints = home / "endpoints"
        self.folder = self.endpoints / "spare" / "0" / "spare"
        self.free = 16 * GIGABYTES
        self.spares = Spares(self.endpoints, 900, self.free_bytes)
        self.program = home / "server"
        self.program.write_text(SERVER)
        self.variables: dict[str, str] = {}

    def free_bytes(self) -> int:
        """Of memory; an error below zero."""
        if self.free < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.free

    def command(self, folder: Path, port: int) -> Command:
        temporary = folders.temporary_folder(folder)
        uds = temporary / "serve.sock"
        places = {"TMPDIR": str(temporary), "HOME": str(folder / "root"), "SM_VLLM_UDS": str(uds)}
        environment = {**places, "PATH": os.environ["PATH"], **self.variables}
        fresh, waits = (python_command(str(self.program), name) for name in ("fresh", "waits"))
        return Command(fresh, environment, (), uds, waits)

    def new(self, name: str) -> Path:
        """The folder of a container that is to be started."""
        folder = self.endpoints / name / "1" / "v"
        (folder / "root").mkdir(parents=True)
        return folder

    def started(self, name: str, grace_s: float = 0.5) -> tuple[Container, str]:
        """A container in service, and whether it is `fresh` or one that `waits`, by what it says of itself."""
        folder = self.new(name)
        log = Log(folder)
        container = Container(self.command, folder, log, grace_s, self.spares)
        until(container.answers_ping)
        self.spares.pattern = container.pattern
        until(lambda: log.text.endswith(b"\n"))
        who, temporary, cwd, same_home = json.loads(log.text)
        assert (temporary, cwd, same_home) == (str(folders.temporary_folder(folder)), str(folder), True)
        return container, who

    def start(self, name: str, grace_s: float = 0.5) -> str:
        """Start a container and end it again; it was `fresh`, or one that `waits`."""
        container, who = self.started(name, grace_s)
        container.stop()
        return who

    def wait(self) -> list[int]:
        """After a container there is a spare that listens: its keeper, and itself."""
        self.start("before")
        self.spares.look(is_idle=True)
        until((self.folder / "tmp" / "spare.sock").exists)
        return sorted(processes_in(self.folder))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    local = Local(tmp_path)
    yield local
    local.spares.close()
    assert not processes_in(local.endpoints)
    folders.clear_leftovers(tmp_path)


def test_the_next_container_is_the_process_that_waited(local: Local) -> None:
    waiting = local.wait()
    container, who = local.started("next")
    assert who == "waits"
    assert sorted(processes_in(local.endpoints / "next")) == waiting
    container.stop()


def test_how_a_container_that_was_one_ends_is_the_containers_to_know(local: Local) -> None:
    waiting = local.wait()
    container, _ = local.started("next")
    os.kill(waiting[1], signal.SIGKILL)

    def ended() -> bool:
        local.spares.look(is_idle=False)
        return container.ended(0)

    until(ended)
    assert container.exit_code == 128 + signal.SIGKILL
    container.stop()


def test_a_container_that_was_one_leaves_as_little_as_any(local: Local) -> None:
    local.wait()
    temporary = folders.temporary_folder(local.folder)
    local.start("next")
    folders.remove(local.endpoints / "next" / "1" / "v")
    assert not temporary.exists()
    assert not local.folder.exists()


def test_the_next_container_is_one_that_still_imports(local: Local, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "imports")
    waiting = local.wait()
    with (tmp_path / "imports").open("w"):  # which waits until it imports
        folder = local.new("next")
        container = Container(local.command, folder, Log(folder), 0.5, local.spares)
        assert not container.answers_ping()
    until(container.answers_ping)
    assert sorted(processes_in(folder)) == waiting
    container.stop()


def test_there_is_none_while_there_is_an_endpoint(local: Local) -> None:
    local.start("a")
    local.spares.look(is_idle=False)
    assert not local.folder.exists()


def test_there_is_one_for_each_time_that_an_endpoint_was_there(local: Local) -> None:
    local.wait()
    local.free = 0
    local.spares.look(is_idle=True)
    local.free = 16 * GIGABYTES
    local.spares.look(is_idle=True)
    assert not local.folder.exists()


def test_two_that_start_at_once_do_not_share_it(local: Local) -> None:
    local.wait()
    first, second = local.started("a"), local.started("b")
    assert [first[1], second[1]] == ["waits", "fresh"]
    for container, _ in (first, second):
        container.stop()


@pytest.mark.parametrize("number", [0, 1], ids=["keeper", "server"])
def test_one_that_was_killed_is_not_taken_and_nothing_is_left(local: Local, number: int) -> None:
    killed = local.wait()[number]
    os.kill(killed, signal.SIGKILL)
    until(lambda: killed not in processes_in(local.folder))
    assert local.start("next") == "fresh"
    assert not processes_in(local.folder)
    assert not processes_in(local.endpoints / "next")


@pytest.mark.parametrize("number", [0, 1], ids=["keeper", "server"])
def test_nothing_is_left_of_one_that_was_killed(local: Local, number: int) -> None:
    os.kill(local.wait()[number], signal.SIGKILL)

    def looked() -> bool:
        local.spares.look(is_idle=True)
        return not local.folder.exists()

    until(looked)
    assert not processes_in(local.endpoints)


def test_the_number_of_one_that_was_killed_is_nobody_elses_until_it_is_cleared_away(local: Local) -> None:
    local.start("a")
    assert local.spares.pattern
    spare = Spare(local.spares.pattern, local.folder, time.monotonic() + 900)
    number = int((local.folder / "session").read_text())
    os.kill(number, signal.SIGKILL)
    until(lambda: not spare.is_kept())
    assert Path(f"/proc/{number}").exists()
    spare.end()


def test_one_that_is_not_like_the_container_ends(local: Local) -> None:
    local.wait()
    assert local.start("next", grace_s=0.25) == "fresh"
    assert not processes_in(local.endpoints)


def test_one_ends_where_the_container_cannot_be_started(local: Local) -> None:
    local.wait()

    def no_command(folder: Path, port: int) -> Command:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        Container(no_command, local.new("next"), Log(local.endpoints), 0.5, local.spares)
    assert not processes_in(local.endpoints)


def test_one_that_cannot_be_noted_down_ends(local: Local) -> None:
    local.start("a")
    (local.folder / "session").mkdir(parents=True)  # nothing can be written to it
    local.spares.look(is_idle=True)
    assert not processes_in(local.folder)
    assert not local.folder.exists()


def test_one_ends_when_its_time_is_over(local: Local) -> None:
    local.start("a")
    brief = Spares(local.endpoints, 1e-9, lambda: local.free)
    brief.pattern = local.spares.pattern
    brief.look(is_idle=True)
    assert local.folder.exists()
    brief.look(is_idle=True)
    assert not processes_in(local.endpoints)
    assert not local.folder.exists()


def test_one_ends_when_its_memory_is_needed(local: Local) -> None:
    local.wait()
    local.free = 2 * GIGABYTES
    local.spares.look(is_idle=True)
    assert local.folder.exists()
    local.free -= 1
    local.spares.look(is_idle=True)
    assert not processes_in(local.endpoints)
    assert not local.folder.exists()


def test_none_is_made_where_it_would_not_have_the_memory(local: Local) -> None:
    local.start("a")
    local.free = 5 * GIGABYTES // 2
    local.spares.look(is_idle=True)
    assert not local.folder.exists()


def test_none_is_made_where_it_may_not_wait(local: Local) -> None:
    local.start("a")
    never = Spares(local.endpoints, 0, lambda: local.free)
    never.pattern = local.spares.pattern
    never.look(is_idle=True)
    assert not local.folder.exists()


def test_nothing_is_left_of_one_after_the_end(local: Local) -> None:
    local.wait()
    local.spares.close()
    assert not processes_in(local.endpoints)
    assert not (local.endpoints / "spare").exists()


def test_none_is_made_after_the_end(local: Local) -> None:
    local.start("a")
    local.spares.close()
    local.spares.look(is_idle=True)
    assert not local.folder.exists()


@pytest.mark.parametrize(
    "variable",
    [
        *("HF_TOKEN", "VLLM_API_KEY", "HF_HUB_TOKEN", "OPENAI_KEY", "MY_KEY", "GH_PAT", "WANDB_KEY"),
        *("S3_ACCESS_KEY_ID", "TORCH_LOGS"),
    ],
)
def test_there_is_none_for_variables_that_may_be_secrets(local: Local, variable: str) -> None:
    recipe = load("tiny/p-eagle", "local")
    variables = {**recipe.engine_rules.variables(recipe, recipe.flags), "SM_VLLM_API_KEY": "of a container"}
    folder, program = local.new("a"), containers_dir() / "vllm" / "serve"
    assert process(program, variables, folder, 1).spare
    assert not process(program, {**variables, variable: "of a container"}, folder, 1).spare


def test_one_with_other_variables_ends(local: Local) -> None:
    local.variables = {"OMP_NUM_THREADS": "2"}
    local.wait()
    local.variables = {}
    assert local.start("next") == "fresh"
    assert not processes_in(local.endpoints)


def test_the_settings_of_the_next_container_may_differ(local: Local) -> None:
    local.wait()
    local.variables = {"SM_VLLM_DTYPE": "float32"}
    assert local.start("next") == "waits"


def test_a_container_starts_where_the_folder_for_temporary_files_of_what_waited_is_gone(local: Local) -> None:
    local.wait()
    shutil.rmtree(folders.temporary_folder(local.folder))
    assert local.start("next") == "fresh"
    assert not processes_in(local.endpoints)


def test_one_ends_and_none_is_made_where_it_cannot_be_known_how_much_is_free(local: Local) -> None:
    local.wait()
    local.spares.pattern = Pattern(local.command(local.new("b"), 1), 0.5)
    local.free = -1
    local.spares.look(is_idle=True)
    assert not processes_in(local.endpoints)
    local.spares.look(is_idle=True)
    assert not local.folder.exists()


def test_one_ends_where_no_file_can_be_opened(local: Local) -> None:
    local.wait()
    local.free = 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # not 0: servers of other tests, in threads, poll one
    try:
        local.spares.look(is_idle=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not processes_in(local.endpoints)


def test_who_asks_learns_how_much_it_holds_and_until_when(local: Local) -> None:
    assert waiting(local.endpoints) is None
    local.wait()
    found = waiting(local.endpoints)
    assert found
    assert 899 - 60 < found.until - time.time() < 901
    assert 10e6 < found.bytes < 1e9, "of two processes of Python"
    local.start("next")
    assert waiting(local.endpoints) is None


def test_one_knows_nothing_of_the_settings_of_the_container_before_it(local: Local) -> None:
    local.variables = {"SM_VLLM_API_KEY": "of a container", "OMP_NUM_THREADS": "2"}
    for pid in local.wait():
        variables = Path(f"/proc/{pid}/environ").read_text()
        assert "OMP_NUM_THREADS=2" in variables
        assert "SM_VLLM" not in variables
