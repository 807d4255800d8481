"""podman, else docker: what is asked of it, and the command that runs an image as SageMaker does.

Both programs understand all that is said here. What they read of the user's settings (DOCKER_HOST, CONTAINERS_CONF, …)
is left to them.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.catalog.lookup import Instance
from toolkit.children import BUILDERS, is_proxy, own_variables
from toolkit.errors import PlatformError
from toolkit.images.command import last_words, run
from toolkit.platforms.local.aws import REGION
from toolkit.platforms.local.command import Command

_PORT = 8080  # SageMaker's
_ASKED = {"podman": "info", "docker": "version"}
_CDI_FOLDERS, _CDI_KIND = (Path("/etc/cdi"), Path("/var/run/cdi")), "nvidia.com/gpu"
_DRIVER = Path("/proc/driver/nvidia/version")


def engine() -> str:
    """`podman`, else `docker`, whichever works. Raises PlatformError."""
    whys = []
    for program, question in _ASKED.items():
        if shutil.which(program) is None:
            whys.append(f"{program} is not installed")
            continue
        ended = run([program, question])
        if ended.code == 0:
            return program
        whys.append(f"{program} does not work here: {last_words(ended)}")
    hint = "Install podman, or start Docker, or write `run: process`, which needs neither."
    raise PlatformError(f"the recipe says `run: container`, and {'; '.join(whys)}", hint=hint)


def holds(image: str) -> bool:
    """Whether the image is in the store."""
    return run([engine(), "image", "inspect", image]).code == 0


def command(
    program: str, image: str, variables: Mapping[str, str], limits: Sequence[str], folder: Path, port: int
) -> Command:
    """The command that runs the image as SageMaker does: with `serve`, and the model data mounted read-only.

    As there it runs as the image's own user, who may write to the container's files. `limits` are further options.
    Values of several lines, which no file of variables can hold, are taken from the program's own environment.
    """
    name = f"toolkit-{uuid.uuid4().hex[:12]}"
    options = ["--name", name, "--publish", f"127.0.0.1:{port}:{_PORT}"]
    # vLLM's processes talk through shared memory. And --stop-timeout: who removes it has waited already.
    options += ["--pull", "never", "--shm-size", "1g", "--stop-timeout", "0", "--security-opt", "label=disable"]
    options += limits
    for source in sorted((folder / "opt" / "ml").iterdir()):
        options += ["--volume", f"{source}:/opt/ml/{source.name}:ro"]
    several = {name: value for name, value in variables.items() if "\n" in value}
    single = {name: value for name, value in variables.items() if name not in several}
    options += ["--env-file", str(_environment_file(folder, {**single, "AWS_REGION": REGION}))]
    options += [option for name in sorted(several) for option in ("--env", name)]
    # podman would give the user's proxies to the container
    environment = {name: value for name, value in own_variables(*BUILDERS).items() if not is_proxy(name)}
    environment |= several
    return Command([program, "run", "--rm", *options, image, "serve"], environment, [program, "rm", "--force", name])


def limits_of(program: str, instance: Instance | None) -> list[str]:
    """The options that give a container the memory and the cores of that type, or what there is of them here.

    None for a type of which nothing is known, such as the one that stands for any; and where the user's own podman may
    limit nothing. Raises PlatformError.
    """
    options = gpu_options(instance)
    if instance is None:
        return options
    can = _limitable(program)
    cpus = min(instance.vcpus, os.cpu_count() or 1)
    given = {"memory": f"{instance.host_memory_gib:g}g", "cpus": str(cpus)}
    return options + [word for name, value in given.items() if name in can for word in (f"--{name}", value)]


def _limitable(program: str) -> set[str]:
    """What of memory and cpus the program may limit: podman of a user without rights only what systemd left to him."""
    if program != "podman":
        return {"memory", "cpus"}
    said = " ".join(run([program, "info", "--format", "{{.Host.CgroupControllers}}"]).lines)
    words = re.findall(r"\w+", said)
    return {option for option, controller in (("memory", "memory"), ("cpus", "cpu")) if controller in words}


def gpu_options(instance: Instance | None, folders: Sequence[Path] = _CDI_FOLDERS, driver: Path = _DRIVER) -> list[str]:
    """All GPUs of the machine, as SageMaker gives them, where its CDI files name them; none to a type without any.

    Raises PlatformError where the machine has GPUs that a container cannot be given.
    """
    if instance and not instance.accelerator_count:
        return []
    files = (file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file())
    if any(_CDI_KIND in file.read_text("utf-8", "replace") for file in files):
        return ["--device", f"{_CDI_KIND}=all"]
    if instance and driver.exists():
        places = ", ".join(map(str, folders))
        message = f"{instance.name} has GPUs, and no CDI file in {places} names those of this machine for containers"
        hint = "With NVIDIA's container toolkit: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml. "
        raise PlatformError(message, hint=f"{hint}Or name an type without GPUs in `instance_types`.")
    return []


def _environment_file(folder: Path, variables: Mapping[str, str]) -> Path:
    """The variables, in a file: a command's arguments are open to every user of the machine."""
    file = folder / "environment"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return file
