"""`compile` of both containers for Neuron devices, as a process with a stand-in for the engine as its child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compiling import failure_text, wait_until_healthy
from entrypoint import ServeError
from neuron_machine import ARTIFACT_VARIABLES, KEY, NXD_INFERENCE, PARTS, VLLM_NEURON, Engine, Machine, said


def compiled(machine: Machine, engine: Engine, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    variables = ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)}
    return machine.run("compile_for", engine, variables | (env or {}))


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_the_engine_compiles_is_kept_and_recorded(machine: Machine, engine: Engine) -> None:
    done = compiled(machine, engine)

    assert done.returncode == 0, done.stderr
    found = contents(machine.artifacts)
    found.pop("times.json", None)  # of copies only, for vLLM on GPUs: test_warm.py
    assert found == {
        f"{engine.folder}/graph/model.neff": "compiled",
        "artifacts.json": json.dumps({"key": KEY, "parts": PARTS}),
    }


def test_serve_takes_what_compile_made(machine: Machine, engine: Engine) -> None:
    compiled(machine, engine)

    found = machine.serves(engine, ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)})

    assert found["found"] == ["graph", "graph/model.neff"]


def test_the_engine_is_asked_for_what_serve_will_ask_for_and_may_compile(machine: Machine) -> None:
    env = {"SM_VLLM_TENSOR_PARALLEL_SIZE": "32", "VLLM_NEURON_DISABLE_WARMUP_COMPILE": "1"}

    engine = said(compiled(machine, VLLM_NEURON, env).stdout)
    served = machine.serves(VLLM_NEURON, env)

    assert engine["argv"] == served["argv"]
    assert "VLLM_NEURON_DISABLE_WARMUP_COMPILE" not in engine["env"]


def test_a_slow_engine_is_waited_for_and_then_ended(machine: Machine) -> None:
    env = {"STAND_IN_REASONS": json.dumps(["the first generation has not finished"] * 2)}

    done = compiled(machine, NXD_INFERENCE, env)

    assert done.returncode == 0, done.stderr
    assert ": the engine is healthy\n" in done.stderr
    assert done.stdout.endswith("stopped\n")


def test_the_time_that_passes_is_in_the_log(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    ends = [sys.executable, "-c", "import time; time.sleep(0.5)"]
    with (
        subprocess.Popen(ends, text=True) as process,
        pytest.raises(ServeError, match="the engine ended with exit code 0"),
    ):
        wait_until_healthy(process, machine.port, progress_seconds=0)

    assert ": 0 min 00 s: the engine compiles and loads\n" in capsys.readouterr().err


def test_what_is_there_already_is_not_compiled_again(machine: Machine, engine: Engine) -> None:
    machine.record(engine.folder)

    done = compiled(machine, engine)

    assert (done.returncode, done.stdout) == (0, "")
    assert f"holds the artifacts with key {KEY} already" in done.stderr


def test_what_was_left_half_made_is_not_built_on(machine: Machine) -> None:
    machine.record("nxd", key="another")
    (machine.artifacts / "nxd" / "half").touch()

    assert said(compiled(machine, NXD_INFERENCE).stdout)["found"] == []
    assert "nxd/half" not in contents(machine.artifacts)


@pytest.mark.parametrize(
    "operation", ["Path(f).rename(f + '2')", "Path(f).parent.rmdir()", "open(f, 'a')", "open(f, 'r+')"]
)
def test_the_stand_in_for_mountpoint_refuses_what_that_refuses(machine: Machine, operation: str) -> None:
    machine.record("nxd")
    file = machine.artifacts / "nxd" / "graph" / "model.neff"
    program = f"from pathlib import Path; f = {str(file)!r}; Path(f).write_text('new'); {operation}"

    done = subprocess.run([sys.executable, "-c", program], env=machine.mount(), capture_output=True, text=True)

    assert "OSError" in done.stderr or "PermissionError" in done.stderr
    assert file.read_text() == "new"


def test_a_bucket_that_is_mounted_is_filled(machine: Machine, engine: Engine) -> None:
    done = compiled(machine, engine, machine.mount())

    assert done.returncode == 0, done.stderr
    assert f"{engine.folder}/graph/model.neff" in contents(machine.artifacts)


def test_a_retry_on_a_bucket_that_is_mounted_begins_anew(machine: Machine, engine: Engine) -> None:
    machine.record(engine.folder, key="another")
    (machine.artifacts / engine.folder / "graph" / "half").touch()

    done = compiled(machine, engine, machine.mount())

    assert done.returncode == 0, done.stderr
    assert json.loads(contents(machine.artifacts)["artifacts.json"])["key"] == KEY
    assert ("nxd/graph/half" in contents(machine.artifacts)) is False


def test_an_engine_that_dies_gives_its_code_and_last_words(machine: Machine, engine: Engine) -> None:
    (machine.base_dir / "output").mkdir()

    done = compiled(machine, engine, {"STAND_IN_EXIT_CODE": "17"})

    assert done.returncode == 17
    assert "the engine ended with exit code 17. The engine's last lines:" in done.stderr
    failure = (machine.base_dir / "output" / "failure").read_text()
    assert failure.startswith("the engine ended with exit code 17")
    assert failure.endswith("no such head")
    assert not (machine.artifacts / "artifacts.json").exists()


@pytest.mark.parametrize(("ending", "code"), [("0", 1), ("SIGKILL", 137)])
def test_an_engine_that_ends_early_has_failed_however_it_ends(machine: Machine, ending: str, code: int) -> None:
    assert compiled(machine, NXD_INFERENCE, {"STAND_IN_EXIT_CODE": ending}).returncode == code


def test_a_first_generation_that_fails_is_the_end(machine: Machine) -> None:
    done = compiled(machine, NXD_INFERENCE, {"STAND_IN_REASONS": '["the first generation failed (500)"]'})

    assert done.returncode == 1
    assert "the first generation failed (500)" in done.stderr
    assert not (machine.artifacts / "artifacts.json").exists()


def test_an_engine_that_saves_nothing_has_failed(machine: Machine, engine: Engine) -> None:
    done = compiled(machine, engine, {"STAND_IN_SAVES_NOTHING": "1"})

    assert done.returncode == 1
    assert "the engine was healthy and left nothing in" in done.stderr


def test_sigterm_ends_the_engine_and_records_nothing(machine: Machine, engine: Engine) -> None:
    env = ARTIFACT_VARIABLES | {
        "TOOLKIT_ARTIFACTS": str(machine.artifacts),
        "STAND_IN_REASONS": json.dumps(["the first generation has not finished"] * 1000),
    }
    with machine.start("compile_for", engine, env) as process:
        assert process.stdout is not None
        child = json.loads(process.stdout.readline())["pid"]
        process.terminate()
        rest = process.stdout.read()
        assert process.wait(timeout=30) == 143

    assert rest == "stopped\n"
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not (machine.artifacts / "artifacts.json").exists()


def test_an_old_driver_is_told_to_sagemaker_too(machine: Machine) -> None:
    (machine.base_dir / "output").mkdir()

    done = compiled(machine, NXD_INFERENCE, {"TOOLKIT_NEURON_DRIVER": "2.22"})

    assert (done.returncode, done.stdout) == (2, "")
    assert (machine.base_dir / "output" / "failure").read_text().startswith("the host's Neuron driver is 2.21.37.0")


@pytest.mark.parametrize("name", ["TOOLKIT_ARTIFACTS", "TOOLKIT_ARTIFACTS_KEY"])
def test_what_it_has_to_be_told(machine: Machine, name: str) -> None:
    done = compiled(machine, NXD_INFERENCE, {name: ""})

    assert done.returncode == 2
    assert f"{name} is not set" in done.stderr


def test_a_folder_that_cannot_be_made_is_an_error(machine: Machine) -> None:
    done = compiled(machine, NXD_INFERENCE, {"TOOLKIT_ARTIFACTS": "/dev/null/artifacts"})

    assert done.returncode == 2
    assert "the artifacts cannot be made: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("message", ["short", "first\nsecond", "x" * 5000, "y" * 1023 + "\nz", "first\n" + "z" * 5000])
def test_sagemaker_gets_no_more_than_it_shows(message: str) -> None:
    text = failure_text(message)

    assert len(text) <= 1024
    assert text[0] == message[0]
    assert len(message) > 1024 or text == message


def test_of_a_long_log_the_end_is_kept() -> None:
    text = failure_text("died\n" + "noise\n" * 1000 + "the cause")

    assert text.startswith("died\n")
    assert text.endswith("the cause")
