"""Starts the engine once, and keeps what it compiles: for Neuron devices, or for warm starts of vLLM on GPUs.

The engine is a child: what it is asked and what it compiles is what `serve` will ask. It is done when its /ping is 200,
which is after a real generation (serve_middleware.py). artifacts.json comes last, so what is half made is never used.
Standard library only.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO

from artifacts import ARTIFACTS, KEY, PARTS, RECORD, copy_files, files_of, json_object, record_times, recorded
from entrypoint import Launch, ServeError, arguments, base_dir, exit_code, listen_port, log
from init import stay_as_init
from serve_middleware import FAILED

LAST_LINES = 30
FAILURE_CHARACTERS = 1024  # SageMaker shows no more of a training job's /opt/ml/output/failure
PING_SECONDS = 0.2
PING_TIMEOUT_SECONDS = 10
PROGRESS_SECONDS = 60
END_SECONDS = 60  # serve_middleware.py takes up to 25; the rest is the runtime's


@dataclass(frozen=True)
class Compiling:
    """An engine that may compile: its start, where it puts what it compiles, and where in the artifacts that is kept.

    `largest` is how many bytes may be kept.
    """

    start: Launch
    place: Path
    kept: Path
    largest: float = float("inf")


Prepare = Callable[[Path], Compiling]
"""Of the folder of artifacts; what an earlier run left half made there is removed. Raises ServeError."""


def compile_artifacts(prepare: Prepare) -> int:
    """Fills TOOLKIT_ARTIFACTS, unless it holds what TOOLKIT_ARTIFACTS_KEY says; the exit code.

    2 for an environment or a host that cannot do it, the engine's own where it dies, 143 after SIGTERM.
    """
    stay_as_init()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return exit_code(lambda: _told_to_sagemaker(prepare))


def failure_text(message: str) -> str:
    """The message as SageMaker takes it: its first line, and of the rest the end."""
    first, _, rest = message.partition("\n")
    room = FAILURE_CHARACTERS - len(first) - 1
    return f"{first}\n{rest[-room:]}" if rest and room > 0 else first[:FAILURE_CHARACTERS]


def wait_until_healthy(process: subprocess.Popen[str], port: int, progress_seconds: float = PROGRESS_SECONDS) -> None:
    """Until a generation has worked. Raises ServeError when that failed, or the engine is dead."""
    started = said = time.monotonic()
    while True:
        status, answer = _ping(port)
        seconds = time.monotonic() - started
        if status == HTTPStatus.OK:
            log(f"{_elapsed(seconds)}: the engine is healthy")
            return
        if FAILED in answer:
            raise ServeError(answer, 1)
        if (code := process.poll()) is not None:
            # As a shell has it: 137 after SIGKILL. An engine that ends without having served has failed, too.
            raise ServeError(f"the engine ended with exit code {code}", 128 - code if code < 0 else code or 1)
        if time.monotonic() - said >= progress_seconds:
            said = time.monotonic()
            log(f"{_elapsed(seconds)}: the engine compiles and loads")
        time.sleep(PING_SECONDS)


def _told_to_sagemaker(prepare: Prepare) -> None:
    try:
        _compile(prepare)
    except (OSError, ServeError) as error:
        output = base_dir(os.environ) / "output"
        if output.is_dir():
            (output / "failure").write_text(failure_text(str(error)), encoding="utf-8")
        if isinstance(error, ServeError):
            raise
        raise ServeError(f"the artifacts cannot be made: {error}") from error


def _compile(prepare: Prepare) -> None:
    folder, key, parts = _wanted(os.environ)
    if recorded(folder).get("key") == key:
        log(f"{folder} holds the artifacts with key {key} already: nothing to do")
        return
    compiling = prepare(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)
    _run(compiling.start)
    found = list(files_of(compiling.place))
    if not found:
        raise ServeError(f"the engine was healthy and left nothing in {compiling.place}", 1)
    if (size := sum(file.stat().st_size for file in found)) > compiling.largest:
        raise ServeError(f"the engine left {size} bytes in {compiling.place}; {compiling.largest:.0f} are allowed", 1)
    if compiling.place != compiling.kept:
        copy_files(compiling.place, compiling.kept)
        record_times(compiling.place, folder)
    (folder / RECORD).write_text(json.dumps({"key": key, "parts": parts}), encoding="utf-8")
    log(f"{len(found)} files with key {key} are in {folder}")


def _wanted(env: Mapping[str, str]) -> tuple[Path, str, dict[str, object]]:
    for name, example in ((ARTIFACTS, "/opt/ml/checkpoints"), (KEY, "the plan's key")):
        if not env.get(name):
            raise ServeError(f"{name} is not set; give it the value {example}")
    return Path(env[ARTIFACTS]), env[KEY], json_object(env, PARTS)


def _run(started: Launch) -> None:
    last: deque[str] = deque(maxlen=LAST_LINES)
    try:
        with _running(started, last) as process:
            wait_until_healthy(process, int(listen_port(started.env)))
    except ServeError as error:
        raise ServeError("\n".join([f"{error}. The engine's last lines:", *last]), error.code) from error


@contextmanager
def _running(started: Launch, last: deque[str]) -> Iterator[subprocess.Popen[str]]:
    """The engine, whose lines go to the log and to `last`, until the block ends."""
    command = [sys.executable, *arguments(started.options)]
    process = subprocess.Popen(
        command, env=started.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    reader = threading.Thread(target=_echo, args=(process.stdout, last), daemon=True)
    reader.start()
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        reader.join(1)  # no longer: a process that the engine left behind may hold the pipe


def _echo(lines: IO[str], last: deque[str]) -> None:
    for line in lines:
        sys.stdout.write(line)
        sys.stdout.flush()
        last.append(line.rstrip("\n"))


def _ping(port: int) -> tuple[int, str]:
    """Status and body; 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PING_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/ping")
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


def _elapsed(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"
