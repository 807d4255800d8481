"""For every test: nothing of the user's AWS account and clusters, a home of its own, and golden files."""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hypothesis_backend
import pytest
from folder_times import pytest_terminal_summary as pytest_terminal_summary
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

GOLDEN = Path(__file__).parent / "golden"
SERVING = "tests/serving/test_"
TOGETHER = {
    "the fixture `vllm`": (
        "argv_parses",
        "checks_on_vllm",
        "converted_heads",
        "draft_line",
        "forking_cpu",
        "lossless_on_vllm",
        "memory_model",
        "method_configs",
        "neuron_argv_parses",
        "other_drafters",
        "training_data_on_vllm",
    ),
    "a vLLM that is asked": ("agrees_with_vllm", "asked_vllm"),
    "the fixture `endpoint`": (
        "best_k",
        "clients",
        "failures",
        "highest_rate",
        "lossless_served",
        "ngram",
        "other_loads",
        "proof",
        "quickstart",
    ),
}
FOLDERS = {"tests/images/": "a Docker engine", "tests/kubernetes/": "a control plane"}
GROUPS = {f"{SERVING}{name}.py": group for group, names in TOGETHER.items() for name in names}

hypothesis_backend.set_up()

# Each of the many local platforms would import vLLM once more when its last endpoint is gone.
os.environ["TOOLKIT_LOCAL_SPARE_MINUTES"] = "0"

# A shell's background jobs ignore Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting the tests makes nearly a million objects that stay: at Python's usual rate, the search for garbage among
# them takes a fifth of a test's time on AWS's stand-in.
gc.set_threshold(50_000, 20, 20)


def pytest_configure(config: pytest.Config) -> None:
    """What is killed leaves its folders for temporary files: in one that goes with the run.

    Its path is short, as of sockets; pytest's own folders stay where they are, to be looked at.
    """
    if hasattr(config, "workerinput"):  # a worker has that of who started it
        return
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="t-")
    Path(folder).chmod(0o1777)  # as /tmp: some tests have other users
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew instead of comparing")


class Scheduler(LoadFileScheduling):  # type: ignore[misc]  # which has no types
    """Gives all tests of a file to one process, and those of several files that share something costly."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        shared = next((what for folder, what in FOLDERS.items() if file.startswith(folder)), file)
        return GROUPS.get(file, shared)

    def _assign_work_unit(self, node: WorkerController) -> None:
        with suppress(OSError):  # it has died, which is told next: what it was given then goes to another
            super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Of a process that died: the test that it died of is not given to another, and neither is what is done.

        xdist gives out both again, and can end by waiting for ever for tests of files that have none left.
        """
        tests = [(unit, test) for unit in self.assigned_work[node].values() for test, done in unit.items() if not done]
        for unit, died_of in tests[:1]:
            unit[died_of] = True
        given = self.assigned_work[node]
        self.assigned_work[node] = {name: unit for name, unit in given.items() if not all(unit.values())}
        super().remove_node(node)
        return tests[0][1] if tests else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduler:
    return Scheduler(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real vLLM takes its time on a slow day, and what starts it waits by itself no longer than it should."""
    for item in items:
        if item.get_closest_marker("serving") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """A training, as other programs, takes signals over for good. The process of the tests gives them back."""
    taken = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in taken}
    try:
        return (yield)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new folder each time. `mktemp` would read the names of all that are there already: 15 ms after 3,000 tests."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(scope="session", autouse=True)
def _no_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBECONFIG", str(tmp_path_factory.mktemp("no-cluster") / "kubeconfig"))
        yield


@pytest.fixture(autouse=True)
def _no_account_and_a_home_of_its_own(monkeypatch: pytest.MonkeyPatch, _homes: Iterator[Path]) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):  # not those of whoever runs the tests
        monkeypatch.setenv(name, os.devnull)
    home = next(_homes)
    home.mkdir()
    monkeypatch.setenv("TOOLKIT_HOME", str(home))
    # The catalogue's facts grow old; of these tests they are to be as old as on that day.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(datetime(2026, 11, 22, tzinfo=UTC).timestamp())))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Compare data with a JSON file in tests/golden."""

    def compare(name: str, data: object) -> None:
        path = GOLDEN / f"{name}.json"
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), (
            f"{path.name} differs; if that is meant: pytest --update-golden"
        )

    return compare
