"""`serve` of both containers for Neuron devices, as a process on a machine whose host files are a test's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from neuron_machine import ARTIFACT_VARIABLES, CONTAINERS, KEY, NXD_INFERENCE, VLLM_NEURON, Engine, Machine, said

from toolkit.platforms.image import programs

STRICT = ("VLLM_NEURON_DISABLE_WARMUP_COMPILE", "NEURON_LIBTORCH_DISABLE_GRAPH_CAPTURE_BACKEND")


# The host.


def test_one_line_says_what_was_found_and_hides_secrets(machine: Machine) -> None:
    env = {"STAND_IN_EXIT_CODE": "0", "SM_VLLM_API_KEY": "hunter2"}
    first, *_ = machine.run("serve", NXD_INFERENCE, env).stderr.splitlines()

    found, _, command = first.partition(", for ")
    assert found == (
        "-c: vLLM 0.9.1, NxD Inference 0.6.10598, compiler 2.21.33363.0, runtime 2.28.23.0-dd5879008,"
        " driver 2.21.37.0, 16 devices"
    )
    assert command.startswith("python3 -m vllm.entrypoints.openai.api_server --middleware ")
    assert command.endswith("--model org/model --api-key '***'")


def test_what_cannot_be_found_is_unknown_and_no_reason_to_stop(machine: Machine) -> None:
    (machine.host / "status").unlink()

    done = machine.run("serve", VLLM_NEURON, {"STAND_IN_EXIT_CODE": "0"})

    assert done.returncode == 0
    assert "vLLM Neuron 0.24.0.1.1.0, compiler 2.21.33363.0, runtime unknown," in done.stderr


def test_an_older_driver_than_the_runtime_needs_ends_it_at_once(machine: Machine, engine: Engine) -> None:
    refusal = machine.refusal(engine, {"TOOLKIT_NEURON_DRIVER": "2.22"})

    assert "the host's Neuron driver is 2.21.37.0, and this image's runtime needs 2.22 or newer" in refusal
    assert "AMI" in refusal
    assert "vLLM 0.9.1, " in refusal


@pytest.mark.parametrize(
    ("driver", "lowest"), [("2.22.1.0", "2.22"), ("2.100.0.0", "2.22"), ("3.0", "2.22"), ("2.19.64.0", "")]
)
def test_a_driver_that_is_new_enough_or_of_which_nothing_is_asked_goes_on(
    machine: Machine, driver: str, lowest: str
) -> None:
    (machine.host / "version").write_text(f"{driver}\n")

    assert machine.serves(NXD_INFERENCE, {"TOOLKIT_NEURON_DRIVER": lowest})["argv"]


@pytest.mark.parametrize("driver", ["2.29", "2.29.0.0", "2.31.7.0"])
def test_a_newer_driver_than_the_runtime_works_with_ends_it_at_once(
    machine: Machine, engine: Engine, driver: str
) -> None:
    (machine.host / "version").write_text(f"{driver}\n")
    env = {"TOOLKIT_NEURON_DRIVER_BELOW": "2.29", "TOOLKIT_NEURON_AMI": "v20260625 (driver 2.28.0.0)"}

    refusal = machine.refusal(engine, env)

    assert (
        f"the host's Neuron driver is {driver}, and this image's runtime works with drivers older than 2.29" in refusal
    )
    assert "EKS: take release v20260625 (driver 2.28.0.0) of the AMI for Neuron" in refusal


@pytest.mark.parametrize("driver", ["2.28.0.0", "2.28.99.1"])
def test_a_driver_below_the_first_that_is_too_new_goes_on(machine: Machine, driver: str) -> None:
    (machine.host / "version").write_text(f"{driver}\n")

    assert machine.serves(NXD_INFERENCE, {"TOOLKIT_NEURON_DRIVER_BELOW": "2.29"})["argv"]


@pytest.mark.parametrize("text", [None, "", "?\n"])
def test_a_driver_that_the_host_does_not_tell_is_a_warning(machine: Machine, text: str | None) -> None:
    if text is None:
        (machine.host / "version").unlink()
    else:
        (machine.host / "version").write_text(text)

    done = machine.run("serve", NXD_INFERENCE, {"TOOLKIT_NEURON_DRIVER": "2.22", "STAND_IN_EXIT_CODE": "0"})

    assert done.returncode == 0
    assert "warning: the host does not say the version of its Neuron driver" in done.stderr


def test_without_devices_it_ends_at_once(machine: Machine, engine: Engine) -> None:
    shutil.rmtree(machine.host / "dev")

    assert "no Neuron device here" in machine.refusal(engine, {})


@pytest.mark.parametrize("given", [None, "0"])
def test_without_efa_on_the_host_its_affinity_is_left_out_unless_told_otherwise(
    machine: Machine, given: str | None
) -> None:
    env = {"NEURON_SKIP_EFA_AFFINITY": given} if given else {}

    assert machine.serves(NXD_INFERENCE, env)["env"]["NEURON_SKIP_EFA_AFFINITY"] == (given or "1")


def test_with_efa_on_the_host_its_affinity_stays(machine: Machine) -> None:
    (machine.host / "infiniband" / "rdmap16s27").mkdir()

    assert "NEURON_SKIP_EFA_AFFINITY" not in machine.serves(NXD_INFERENCE, {})["env"]


# What was compiled.


def test_without_artifacts_the_engine_compiles_and_the_log_warns(machine: Machine, engine: Engine) -> None:
    done = machine.run("serve", engine, {"STAND_IN_EXIT_CODE": "0"})

    assert "warning: TOOLKIT_ARTIFACTS is not set" in done.stderr
    environment = json.loads(done.stdout.splitlines()[0])["env"]
    assert environment.keys().isdisjoint({engine.variable, *STRICT})


def test_a_container_that_is_started_again_takes_what_it_compiled_before(machine: Machine, tmp_path: Path) -> None:
    env = {"TOOLKIT_COMPILED": str(tmp_path / "compiled"), "STAND_IN_EXIT_CODE": "0"}
    first = said(machine.run("serve", NXD_INFERENCE, env).stdout)
    assert first["env"]["NEURON_COMPILED_ARTIFACTS"] == str(tmp_path / "compiled")
    Path(first["env"]["TOOLKIT_MARK_WHEN_HEALTHY"]).touch()  # as the middleware does after a first generation

    again = machine.run("serve", NXD_INFERENCE, env)

    assert said(again.stdout)["found"] == ["graph", "graph/model.neff"]
    assert "the engine takes what it compiled into" in again.stderr


def test_what_an_earlier_start_did_not_finish_is_compiled_again(machine: Machine, tmp_path: Path) -> None:
    env = {"TOOLKIT_COMPILED": str(tmp_path / "compiled"), "STAND_IN_EXIT_CODE": "0"}
    machine.run("serve", NXD_INFERENCE, env)

    assert said(machine.run("serve", NXD_INFERENCE, env).stdout)["found"] == []


def test_a_folder_of_the_user_s_is_not_cleared(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.pt").touch()
    env = {"TOOLKIT_COMPILED": str(tmp_path / "compiled"), "NEURON_COMPILED_ARTIFACTS": str(tmp_path / "mine")}

    assert machine.serves(NXD_INFERENCE, env)["found"] == ["model.pt"]


def test_nxd_inference_loads_the_artifacts_where_they_are(machine: Machine) -> None:
    machine.record("nxd")

    said = machine.serves(NXD_INFERENCE, ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)})

    assert said["env"]["NEURON_COMPILED_ARTIFACTS"] == str(machine.artifacts / "nxd")
    assert said["found"] == ["graph", "graph/model.neff"]


def test_vllm_neuron_gets_a_copy_that_it_can_write_to_and_must_not_compile(machine: Machine) -> None:
    machine.record("cache")

    said = machine.serves(VLLM_NEURON, ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)})

    assert said["env"]["VLLM_CACHE_ROOT"] == str(machine.temporary / "neuron-cache")
    assert said["found"] == ["graph", "graph/model.neff"]
    assert [said["env"][name] for name in STRICT] == ["1", "1"]


def test_vllm_neurons_copy_goes_where_the_environment_says(machine: Machine, tmp_path: Path) -> None:
    machine.record("cache")
    env = {"TOOLKIT_ARTIFACTS": str(machine.artifacts), "VLLM_CACHE_ROOT": str(tmp_path / "large")}

    assert machine.serves(VLLM_NEURON, ARTIFACT_VARIABLES | env)["env"]["VLLM_CACHE_ROOT"] == str(tmp_path / "large")


def test_a_copy_that_cannot_be_made_is_an_error(machine: Machine) -> None:
    machine.record("cache")
    env = {"TOOLKIT_ARTIFACTS": str(machine.artifacts), "VLLM_CACHE_ROOT": "/dev/null/cache"}

    assert "cannot be copied to /dev/null/cache" in machine.refusal(VLLM_NEURON, ARTIFACT_VARIABLES | env)


@pytest.mark.parametrize("record", [None, "", "[]", '{"key": '], ids=["none", "empty", "no object", "half"])
def test_artifacts_that_were_never_finished_are_refused(machine: Machine, engine: Engine, record: str | None) -> None:
    machine.record(engine.folder)
    if record is None:
        (machine.artifacts / "artifacts.json").unlink()
    else:
        (machine.artifacts / "artifacts.json").write_text(record)

    refusal = machine.refusal(engine, ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)})

    assert f"no compiled artifacts in TOOLKIT_ARTIFACTS={machine.artifacts}" in refusal
    assert "SageMaker: toolkit compile RECIPE\n" in refusal
    assert (
        "Kubernetes: toolkit render RECIPE --part compile | kubectl apply --server-side --field-manager=toolkit -f -\n"
        in refusal
    )


def test_a_folder_that_is_not_there_is_refused(machine: Machine, engine: Engine) -> None:
    env = ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": "/nowhere"}

    assert "no compiled artifacts in TOOLKIT_ARTIFACTS=/nowhere" in machine.refusal(engine, env)


def test_a_key_without_a_folder_is_refused(machine: Machine) -> None:
    assert "no compiled artifacts" in machine.refusal(NXD_INFERENCE, {"TOOLKIT_ARTIFACTS_KEY": KEY})


def test_artifacts_of_something_else_are_refused_with_what_differs(machine: Machine, engine: Engine) -> None:
    machine.record(engine.folder, key="k0", parts={"compiler": "2.20", "tensor_parallel": 32})

    refusal = machine.refusal(engine, ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)})

    assert "compiled for something else" in refusal
    assert "compiler: '2.20', and '2.21.33363' is wanted" in refusal
    assert "tensor_parallel" not in refusal


def test_artifacts_of_something_else_are_refused_where_the_parts_are_unknown(machine: Machine) -> None:
    machine.record("nxd", key="k0")
    env = {"TOOLKIT_ARTIFACTS": str(machine.artifacts), "TOOLKIT_ARTIFACTS_KEY": KEY}

    assert "were compiled for something else: compile for this recipe" in machine.refusal(NXD_INFERENCE, env)


def test_parts_that_are_no_object_are_an_error(machine: Machine) -> None:
    machine.record("nxd", key="k0")
    env = {"TOOLKIT_ARTIFACTS": str(machine.artifacts), "TOOLKIT_ARTIFACTS_KEY": KEY, "TOOLKIT_ARTIFACTS_PARTS": "[1]"}

    assert "TOOLKIT_ARTIFACTS_PARTS is not a JSON object: '[1]'" in machine.refusal(NXD_INFERENCE, env)


def test_artifacts_of_the_other_engine_are_refused(machine: Machine) -> None:
    machine.record("cache")

    refusal = machine.refusal(NXD_INFERENCE, ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(machine.artifacts)})

    assert "have no nxd/" in refusal


# The process.


def test_vllm_becomes_the_process_and_gets_its_environment(machine: Machine, engine: Engine) -> None:
    with machine.start("serve", engine, {"VLLM_USE_V1": "0", "SM_VLLM_TENSOR_PARALLEL_SIZE": "32"}) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        process.terminate()
        assert process.wait(timeout=30) == 0

    assert said["pid"] == process.pid
    assert said["env"]["VLLM_USE_V1"] == "0"
    assert said["argv"][-4:] == ["--model", "org/model", "--tensor-parallel-size", "32"]


def test_vllms_exit_code_is_the_containers(machine: Machine, engine: Engine) -> None:
    assert machine.run("serve", engine, {"STAND_IN_EXIT_CODE": "17"}).returncode == 17


@pytest.mark.parametrize("name", ["nxd-inference", "vllm-neuron"])
@pytest.mark.parametrize("program", ["serve", "compile"])
@pytest.mark.parametrize("mounted", [False, True], ids=["checkout", "mounted"])
def test_the_programs_run_from_a_checkout_and_side_by_side(
    name: str, program: str, mounted: bool, tmp_path: Path
) -> None:
    folder = CONTAINERS / name
    if mounted:  # as Kubernetes mounts a ConfigMap: links to files that nobody may execute
        (tmp_path / "data").mkdir()
        for file, content in programs(name).items():
            (tmp_path / "data" / file).write_bytes(content.content or b"")
            (tmp_path / file).symlink_to(tmp_path / "data" / file)
        folder = tmp_path

    env = {"PATH": "/usr/bin:/bin", "SM_VLLM_MODEL": "org/model", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= ARTIFACT_VARIABLES | {"TOOLKIT_ARTIFACTS": str(tmp_path / "artifacts")}
    done = subprocess.run([sys.executable, folder / program], env=env, capture_output=True, text=True, timeout=30)

    assert done.returncode == 2, done.stderr
    assert f"\n{program}: no Neuron device here" in done.stderr
