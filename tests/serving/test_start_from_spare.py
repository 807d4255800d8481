"""A deployment after another, on a local platform that keeps a process in between which has imported vLLM."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import processes_in, until

import toolkit
from toolkit.apply.progress import Silent
from toolkit.children import python_command
from toolkit.engines.vllm import spare
from toolkit.platforms.local import daemon, keeper

pytestmark = pytest.mark.serving
RECIPE = "tiny/p-eagle"
SERVE = Path(__file__).parents[2] / "containers" / "vllm" / "serve"
OF_A_CONTAINER = ("SM_VLLM_", "SAGEMAKER_BASE_DIR", "SAGEMAKER_BIND_TO_PORT", "HOME", "TMPDIR")
BY_THE_ENTRYPOINT = {"USER", "LOGNAME", "PYTHONPATH", "PYTHONSAFEPATH", "SAGEMAKER_MODEL_PATH", "LC_CTYPE"}


@dataclass(frozen=True)
class Served:
    """What an endpoint answered and logged, and of its server the words and the variables."""

    answer: str
    log: list[str]
    words: list[str]
    variables: dict[str, str]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a local platform of its own."""
    home = tmp_path_factory.mktemp("home-with-spare")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TOOLKIT_HOME", str(home))
        environment.setenv("TOOLKIT_LOCAL_SPARE_MINUTES", "15")
        yield home / "local" / "endpoints"
    daemon.stop(home / "local")


@pytest.fixture(scope="module")
def both(endpoints: Path) -> tuple[Served, Served]:
    """One that was started afresh, and the next one. Something waits after both."""
    fresh = served(endpoints)
    ready(endpoints)
    after = served(endpoints)
    ready(endpoints)
    return fresh, after


def served(endpoints: Path) -> Served:
    """Deploy, ask, and destroy again."""
    endpoint = toolkit.deploy(RECIPE, progress=Silent())
    answer = endpoint.chat("Count from 274 to 338.", max_tokens=64).text
    (folder,) = endpoints.glob("*/*/AllTraffic")
    running = processes_in(folder)
    # Its engine has a title of vLLM's instead.
    (words,) = (said for said in map(words_of, running) if said[0] == sys.executable and keeper.__file__ not in said)
    (server,) = (Path(f"/proc/{pid}") for pid in running if words_of(pid) == words)
    variables = (server / "environ").read_text().rstrip("\0").split("\0")
    by_name = dict(variable.split("=", 1) for variable in variables)
    found = Served(answer, list(endpoint.logs()), words, by_name)
    toolkit.destroy(RECIPE, progress=Silent())
    assert not [pid for pid in running if Path(f"/proc/{pid}").exists()]
    return found


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def ready(endpoints: Path) -> None:
    until(lambda: list(endpoints.glob("spare/*/spare/tmp/spare.sock")), 300)


def test_the_second_server_is_the_process_that_waited(both: tuple[Served, Served]) -> None:
    assert [spare.__file__ in served.words for served in both] == [False, True]


def test_it_answers_as_a_fresh_one_does(both: tuple[Served, Served]) -> None:
    fresh, after = both
    assert fresh.answer
    assert after.answer == fresh.answer


def test_it_was_started_with_the_variables_of_a_fresh_one(both: tuple[Served, Served]) -> None:
    """But for its settings, its place, and what the entrypoint adds, which it gets with them."""
    fresh, after = (
        {name: value for name, value in served.variables.items() if not name.startswith(OF_A_CONTAINER)}
        for served in both
    )
    assert {name: value for name, value in fresh.items() if name not in BY_THE_ENTRYPOINT} == after


def test_its_log_says_what_that_of_a_fresh_one_does(both: tuple[Served, Served]) -> None:
    """Until there are several processes, whose lines have no order; but for numbers and paths."""
    fresh, after = ([re.sub(r"\d|/\S*", "", line) for line in served.log] for served in both)
    (end,) = (number for number, line in enumerate(fresh) if "Initializing a V" in line)
    assert after[:end] == fresh[:end]


def test_one_whose_imports_began_threads_serves_as_any(tmp_path: Path) -> None:
    """Of OpenMP and of linear algebra, where there are variables for more than one."""
    starts = tmp_path / "starts"
    (tmp_path / "packages").mkdir()
    counting = f"import os; open({str(starts)!r}, 'a').write(f'{{os.getpid()}} ')"
    (tmp_path / "packages" / "sitecustomize.py").write_text(counting)
    places = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path / "packages")}
    environment = {**places, "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    command = python_command(spare.__file__, str(SERVE), str(tmp_path / "socket"))
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
        socket.socket(socket.AF_UNIX) as connection,
    ):
        until(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 1, 300)
        connection.connect(str(tmp_path / "socket"))
        asked = {**environment, "SM_VLLM_MODEL": "none", "SM_VLLM_HELP": "true"}
        connection.sendall(json.dumps({"environment": asked, "folder": str(tmp_path)}).encode())
        connection.close()
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert output.startswith("usage: ")
    assert starts.read_text().split().count(str(process.pid)) == 1, "it was not executed anew"


def test_killed_the_daemon_takes_what_waits_along(both: tuple[Served, Served], endpoints: Path) -> None:
    running = daemon.running(endpoints.parent)
    assert running
    waiting = processes_in(endpoints / "spare")
    assert len(waiting) == 2, "a keeper and what it keeps"
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: not processes_in(endpoints))
