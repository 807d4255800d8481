"""What both containers for Trainium and Inferentia do before vLLM: look at the host, and at what was compiled.

A driver that is too old, or compiled code that was made for something else, costs an hour of compiling or ends in an
error of the runtime. Here both end the container at once, with what to do. Standard library only.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from artifacts import ARTIFACTS, KEY, PARTS, RECORD, copy_files, different, json_object, recorded, remove_files
from entrypoint import Launch, ServeError, become_vllm, exit_code, launch, log, shown_command

DRIVER = "TOOLKIT_NEURON_DRIVER"
DRIVER_BELOW = "TOOLKIT_NEURON_DRIVER_BELOW"
AMI = "TOOLKIT_NEURON_AMI"
COMPILED = "TOOLKIT_COMPILED"
MARK = "TOOLKIT_MARK_WHEN_HEALTHY"
COMPILE = (
    "compile for this recipe, then deploy again. Do one of these, for a baseline with --baseline:\n"
    "  SageMaker: toolkit compile RECIPE\n"
    "  Kubernetes: toolkit render RECIPE --part compile | kubectl apply --server-side --field-manager=toolkit -f -"
)


@dataclass(frozen=True)
class Engine:
    """What differs between the two engines.

    Fields:
        plugin: what the log calls the part of vLLM that is Neuron's.
        distribution: its Python distribution.
        folder: where its compiled code is, in the folder of artifacts.
        variable: tells the engine that place.
        local: whether the place has to be on a local disk that can be written to, so that a copy of it is used.
        never_compile: makes it an error when something is not compiled.
    """

    plugin: str
    distribution: str
    folder: str
    variable: str
    local: bool
    never_compile: Mapping[str, str] = field(default_factory=dict)


# It loads what is in that folder, and compiles into it where its files are not there; nothing forbids the latter.
NXD_INFERENCE = Engine(
    "NxD Inference", "neuronx-distributed-inference", "nxd", "NEURON_COMPILED_ARTIFACTS", local=False
)

# Its cache's files are locked and renamed, and it refuses NFS and Lustre. Not NEURON_LIBTORCH_REMOTE_CACHE, a second
# cache that is asked on a miss: nothing fills it without a program of one's own, and DISABLE_WARMUP_COMPILE makes a
# miss of the first an error before the second is asked (vLLM Neuron's compilation cache: documentation and source).
VLLM_NEURON = Engine(
    "vLLM Neuron",
    "vllm-neuron",
    "cache",
    "VLLM_CACHE_ROOT",
    local=True,
    never_compile={"VLLM_NEURON_DISABLE_WARMUP_COMPILE": "1", "NEURON_LIBTORCH_DISABLE_GRAPH_CAPTURE_BACKEND": "1"},
)


@dataclass(frozen=True)
class Places:
    """Where the host shows itself. Neuron's own runtime reads the driver's version there."""

    driver: Path = Path("/sys/module/neuron/version")
    devices: Path = Path("/dev")
    efa: Path = Path("/sys/class/infiniband")
    packages: Path = Path("/var/lib/dpkg/status")


HOST = Places()


def serve(engine: Engine, places: Places = HOST) -> int:
    """Becomes vLLM; 2, and why in the log, where that cannot work."""
    return exit_code(lambda: _serve(engine, places))


def prepare(engine: Engine, places: Places) -> Launch:
    """vLLM's start as the environment asks for it; one line of the log says all that was found.

    Raises ServeError for a host that cannot run it.
    """
    started = launch(os.environ)
    driver, devices = _driver(places.driver), len(list(places.devices.glob("neuron[0-9]*")))
    host = f"driver {driver or 'unknown'}, {devices} devices"
    log(f"{_versions(engine, places)}, {host}, for {shown_command(started.options)}")
    _check_devices(devices)
    _check_driver(driver, os.environ)
    if any(places.efa.glob("*")):
        return started
    # Without it the runtime does not start where the host has no EFA (awsdocs-neuron, quickstart of the DLC).
    return replace(started, env={"NEURON_SKIP_EFA_AFFINITY": "1", **started.env})


def local_cache(env: Mapping[str, str]) -> Path:
    """Where an engine's cache is while it runs: VLLM_CACHE_ROOT, else a temporary folder."""
    return Path(env.get("VLLM_CACHE_ROOT") or Path(tempfile.gettempdir(), "neuron-cache"))


def _serve(engine: Engine, places: Places) -> None:
    started = prepare(engine, places)
    become_vllm(replace(started, env={**started.env, **_compiled(engine, os.environ)}))


def _driver(file: Path) -> str:
    """The host's driver, such as 2.19.64.0; empty where the host does not say it."""
    try:
        found = re.match(r"\d+(\.\d+)+", file.read_text(encoding="utf-8"))
    except OSError:
        return ""
    return found[0] if found else ""


def _versions(engine: Engine, places: Places) -> str:
    distributions = {"vLLM": "vllm", engine.plugin: engine.distribution, "compiler": "neuronx-cc"}
    found = {name: _installed(distribution) for name, distribution in distributions.items()}
    found["runtime"] = _runtime(places.packages)
    return ", ".join(f"{name} {version or 'unknown'}" for name, version in found.items())


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _runtime(packages: Path) -> str:
    """The version of aws-neuronx-runtime-lib (libnrt.so) in Debian's list of packages."""
    try:
        listed = packages.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^Package: aws-neuronx-runtime-lib\n(?:.+\n)*?Version: (\S+)", listed, re.MULTILINE)
    return found[1] if found else ""


def _check_devices(devices: int) -> None:
    if not devices:
        raise ServeError(
            "no Neuron device here (/dev/neuron0 and so on). Do one of these:\n"
            "  SageMaker: take an instance type with Trainium or Inferentia, such as ml.trn2.48xlarge\n"
            "  Kubernetes: request aws.amazon.com/neuron, or claim devices of neuron.aws.com\n"
            "  docker: --device=/dev/neuron0"
        )


def _check_driver(driver: str, env: Mapping[str, str]) -> None:
    """A runtime has an oldest driver, and a driver an oldest runtime. Both are the recipe's engine version's."""
    lowest, below, ami = env.get(DRIVER), env.get(DRIVER_BELOW), env.get(AMI)
    if not driver:
        log("warning: the host does not say the version of its Neuron driver; whether it fits the runtime is unknown")
    elif lowest and _numbers(driver) < _numbers(lowest):
        raise ServeError(
            f"the host's Neuron driver is {driver}, and this image's runtime needs {lowest} or newer (the driver is"
            " the host's, no image can bring it). Do one of these:\n"
            "  SageMaker: its documented Neuron host image, al2-ami-sagemaker-inference-neuron-2, has driver 2.19;\n"
            "    deploy to Kubernetes (EKS, HyperPod), or take an engine version with an older Neuron SDK\n"
            f"  EKS, EC2: take a host image (AMI) with aws-neuronx-dkms {lowest} or newer"
        )
    elif below and _numbers(driver) >= _numbers(below):
        raise ServeError(
            f"the host's Neuron driver is {driver}, and this image's runtime works with drivers older than {below} (the"
            " driver is the host's, no image can bring it). Do one of these:\n"
            f"  EKS: take release {ami or 'of an older driver'} of the AMI for Neuron\n"
            f"  EC2: take a host image (AMI) with aws-neuronx-dkms older than {below}\n"
            "  SageMaker: take an engine version with a newer Neuron SDK, or deploy to Kubernetes (EKS, HyperPod)"
        )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _compiled(engine: Engine, env: Mapping[str, str]) -> dict[str, str]:
    """What makes the engine take what was compiled, and nothing else."""
    if not env.get(ARTIFACTS) and not env.get(KEY):
        return _compiling_at_start(engine, env)
    folder = Path(env.get(ARTIFACTS, ""))
    record, place = recorded(folder), folder / engine.folder
    if not record:
        raise ServeError(f"no compiled artifacts in {ARTIFACTS}={folder} ({RECORD} is missing or broken): {COMPILE}")
    if record.get("key") != env.get(KEY):
        differs = different(record.get("parts", {}), json_object(env, PARTS))
        raise ServeError(f"the artifacts in {folder} were compiled for something else{differs}: {COMPILE}")
    if not place.is_dir() or not any(place.iterdir()):
        raise ServeError(f"the artifacts in {folder} have no {engine.folder}/, so another engine's: {COMPILE}")
    if engine.local:
        source, place = place, local_cache(env)
        try:
            copy_files(source, place)
        except OSError as error:
            raise ServeError(f"{source} cannot be copied to {place} (VLLM_CACHE_ROOT, TMPDIR): {error}") from error
    return {engine.variable: str(place), **engine.never_compile}


def _compiling_at_start(engine: Engine, env: Mapping[str, str]) -> dict[str, str]:
    """A folder for what the engine compiles, so that a container that is started again in its pod need not compile.

    What an earlier start has not finished is removed: the mark is made after a first generation (serve_middleware.py).
    Engines with `local` keep whole entries in a cache, which needs no mark.
    """
    folder = env.get(COMPILED)
    if engine.local or not folder or engine.variable in env:
        log(f"warning: {ARTIFACTS} is not set; the engine compiles while it starts, which takes minutes to hours")
        return {}
    mark = Path(f"{folder}.complete")
    if mark.exists():
        log(f"the engine takes what it compiled into {folder} at an earlier start")
    else:
        log(f"warning: the engine compiles into {folder} while it starts, which takes minutes to hours")
        remove_files(Path(folder))
    return {engine.variable: folder, MARK: str(mark)}
