"""`toolkit/engines/vllm/spare.py`, with the real program of vLLM's image and a stand-in for vLLM's server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import until

from toolkit.children import python_command
from toolkit.engines.vllm import spare

SERVE = Path(__file__).parents[3] / "containers" / "vllm" / "serve"
MODEL = {"SM_VLLM_MODEL": "target", "SM_VLLM_DTYPE": "float32"}
SERVER = ["-m", "vllm.entrypoints.openai.api_server"]
STAND_IN = """
import gc, json, os, sys
sys.path.append(os.path.dirname(__file__))
if __name__ != "__main__":
    print("imported", flush=True)
    with open(os.environ["HOME"] + "/imported", "w") as file:
        file.write(f"collecting: {gc.isenabled()}")
else:
    print(json.dumps(
        {"pid": os.getpid(), "argv": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(),
         "inherited": os.environ.get("FOUND") == "by an import", "orig": sys.orig_argv[1:3],
         "priority": os.getpriority(os.PRIO_PROCESS, 0), "frozen": gc.get_freeze_count(),
         "collecting": gc.isenabled()}
    ))
os.environ["FOUND"] = "by an import"
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """The stand-in."""
    server = tmp_path / "packages" / "vllm" / "entrypoints" / "openai" / "api_server.py"
    server.parent.mkdir(parents=True)
    server.write_text(STAND_IN)
    for package in server.parents[:3]:
        (package / "__init__.py").touch()
    return server


@pytest.fixture
def place(tmp_path: Path, server: Path) -> Path:
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    basics = {"HOME": str(place), "TMPDIR": str(place), "PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1"}
    return {**basics, "PYTHONPATH": str(place / "packages"), **more}


@contextmanager
def waiting(place: Path, **more: str) -> Iterator[subprocess.Popen[str]]:
    command = python_command(spare.__file__, str(SERVE), str(place / "socket"))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment(place, **more), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            until(lambda: (place / "socket").exists() or process.poll() is not None)
            yield process
        finally:
            process.kill()


def nothing() -> None:
    pass


def told(
    process: subprocess.Popen[str], place: Path, variables: Mapping[str, str], meanwhile: Callable[[], None] = nothing
) -> tuple[str, str]:
    """What it says, and its log, once it was told to serve. `meanwhile` is between its imports and that."""
    with socket.socket(socket.AF_UNIX) as connection:
        until(lambda: connection.connect_ex(str(place / "socket")) == 0)
        connection.sendall(b" " * 1024**2)  # more than is kept unread
        meanwhile()
        connection.sendall(json.dumps({"environment": variables, "folder": str(place / "packages")}).encode())
    return process.communicate(timeout=30)


def served(
    process: subprocess.Popen[str], place: Path, variables: Mapping[str, str], meanwhile: Callable[[], None] = nothing
) -> tuple[dict[str, Any], str]:
    """What the stand-in says of itself, and the log."""
    output, log = told(process, place, variables, meanwhile)
    said: dict[str, Any] = json.loads(output)
    return said, log


def test_a_server_runs_in_the_process_that_has_imported_it(place: Path) -> None:
    home = place / "packages"
    with waiting(place, SM_VLLM_API_KEY="of another") as process:
        variables = environment(place, **MODEL, HOME=str(home), SAGEMAKER_BASE_DIR=str(place / "ml"))
        said, _ = served(process, place, variables)
    assert (said["pid"], said["orig"]) == (process.pid, ["-P", spare.__file__])
    assert said["argv"][-4:] == ["--model", "target", "--dtype", "float32"]
    assert said["folder"] == said["environment"]["HOME"] == str(home)
    assert said["environment"].items() >= MODEL.items()
    assert "SM_VLLM_API_KEY" not in said["environment"]
    assert said["inherited"], "what an import has put into the environment stays"
    assert said["priority"] == os.getpriority(os.PRIO_PROCESS, 0)
    assert (place / "imported").read_text() == "collecting: False"
    assert said["frozen"], "what was imported is not collected"
    assert said["collecting"]


def test_what_is_said_at_an_import_stands_behind_the_first_word_of_the_image(place: Path) -> None:
    with waiting(place) as process:
        _, log = served(process, place, environment(place, **MODEL))
    first, *others = log.splitlines()
    assert first.startswith("serve: vLLM of unknown version, Python ")
    assert others == ["imported"]


def test_a_server_may_be_asked_for_while_it_is_imported(place: Path, server: Path) -> None:
    os.mkfifo(place / "import")
    server.write_text(f"import os\nif __name__ != '__main__': open({str(place / 'import')!r}).read()\n{STAND_IN}")
    with waiting(place) as process, socket.socket(socket.AF_UNIX) as connection:
        with (place / "import").open("w"):  # which waits until it imports, and lets it go on
            until(lambda: connection.connect_ex(str(place / "socket")) == 0)
            request = {"environment": environment(place, **MODEL), "folder": str(place)}
            connection.sendall(json.dumps(request).encode())
            connection.close()
        output, _ = process.communicate(timeout=30)
    assert json.loads(output)["pid"] == process.pid
    assert json.loads(output)["inherited"]


@pytest.mark.parametrize(
    "differing",
    [
        *({"OMP_NUM_THREADS": "2"}, {"VLLM_CPU_OMP_THREADS_BIND": "0"}, {"VLLM_LOGGING_LEVEL": "DEBUG"}),
        *({"TMPDIR": "/"}, {"LANG": "C"}, {"ANYTHING": "1"}),
    ],
)
def test_a_server_is_executed_where_its_imports_may_have_read_another_environment(
    place: Path, differing: dict[str, str]
) -> None:
    with waiting(place, OMP_NUM_THREADS="1", LANG="C.UTF-8") as process:
        variables = environment(place, **{"OMP_NUM_THREADS": "1", "LANG": "C.UTF-8", **MODEL, **differing})
        said, _ = served(process, place, variables)
    assert (said["pid"], said["orig"]) == (process.pid, SERVER)
    assert said["environment"].items() >= differing.items()
    assert not said["inherited"]


def test_a_server_is_executed_where_a_variable_of_its_imports_is_no_longer_there(place: Path) -> None:
    with waiting(place, VLLM_LOGGING_LEVEL="DEBUG") as process:
        said, _ = served(process, place, environment(place, **MODEL))
    assert said["orig"] == SERVER
    assert "VLLM_LOGGING_LEVEL" not in said["environment"]


def test_a_server_is_executed_where_packages_were_installed_meanwhile(place: Path) -> None:
    with waiting(place) as process:
        until((place / "imported").exists)
        (place / "packages" / "vllm-1.0.dist-info").mkdir()
        said, _ = served(process, place, environment(place, **MODEL))
    assert said["orig"] == SERVER


def test_a_server_is_executed_where_a_folder_of_its_imports_is_gone(place: Path) -> None:
    gone = place / "gone"
    gone.mkdir()
    path = {"PYTHONPATH": f"{place / 'packages'}:{gone}"}
    with waiting(place, **path) as process:
        until((place / "imported").exists)
        gone.rmdir()
        said, _ = served(process, place, environment(place, **MODEL, **path))
    assert said["orig"] == SERVER


@pytest.mark.parametrize("name", ["vllm/__init__.py", "vllm/entrypoints/openai/api_server.py"])
def test_a_server_is_executed_where_a_module_was_edited_meanwhile(place: Path, name: str) -> None:
    module = place / "packages" / name

    def edit() -> None:
        module.write_text(f"{module.read_text()}\n# another\n")
        os.utime(module, (0, 0))  # as of a package that is older than what was imported

    with waiting(place) as process:
        said, _ = served(process, place, environment(place, **MODEL), edit)
    assert said["orig"] == SERVER


def test_a_server_is_executed_where_a_module_was_edited_while_others_were_imported(place: Path, server: Path) -> None:
    os.mkfifo(place / "import")
    server.write_text(f"import os\nif __name__ != '__main__': open({str(place / 'import')!r}).read()\n{STAND_IN}")
    with waiting(place) as process:
        with (place / "import").open("w"):  # which waits until it imports, and lets it go on
            (place / "packages" / "vllm" / "__init__.py").write_text("# another\n")
        said, _ = served(process, place, environment(place, **MODEL))
    assert said["orig"] == SERVER


def test_settings_that_cannot_be_served_end_as_they_do_in_the_image(place: Path) -> None:
    with waiting(place) as process:
        _, log = told(process, place, environment(place, SM_VLLM_MODEL="--trust-remote-code"))
    assert process.returncode == 2
    assert log.startswith("serve: SM_VLLM_MODEL has a value that begins with a dash")


def test_why_an_import_failed_is_said(place: Path, server: Path) -> None:
    server.write_text("import nothing_of_that_name\n")
    with waiting(place) as process:
        _, log = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "No module named 'nothing_of_that_name'" in log


def test_one_that_waits_ends_at_sigterm(place: Path) -> None:
    with waiting(place) as process:
        until((place / "imported").exists)
        process.terminate()
        assert process.wait(30) == -signal.SIGTERM
