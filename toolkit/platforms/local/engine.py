"""podman, else docker: what is asked of it, and the command that runs an image as SageMaker does.

Both programs understand all that is said here. What they read of the user's settings (DOCKER_HOST, CONTAINERS_CONF, …)
is left to them.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.children import BUILDERS, is_proxy, own_variables
from toolkit.errors import PlatformError
from toolkit.images.command import last_words, run
from toolkit.platforms.local.aws import REGION
from toolkit.platforms.local.command import Command

_PORT = 8080  # SageMaker's
_ASKED = {"podman": "info", "docker": "version"}
_CDI_FOLDERS, _CDI_KIND = (Path("/etc/cdi"), Path("/var/run/cdi")), "nvidia.com/gpu"


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


def command(program: str, image: str, variables: Mapping[str, str], folder: Path, port: int) -> Command:
    """The command that runs the image as SageMaker does: with `serve`, and the model data mounted read-only.

    Values of several lines, which no file of variables can hold, are taken from the program's own environment.
    """
    name = f"toolkit-{uuid.uuid4().hex[:12]}"
    options = ["--name", name, "--publish", f"127.0.0.1:{port}:{_PORT}"]
    # vLLM's processes talk through shared memory. And --stop-timeout: who removes it has waited already.
    options += ["--pull", "never", "--shm-size", "1g", "--stop-timeout", "0", "--security-opt", "label=disable"]
    options += gpu_options()
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


def gpu_options(folders: Sequence[Path] = _CDI_FOLDERS) -> list[str]:
    """All GPUs of the machine, as SageMaker gives them, where its CDI files name them; none otherwise."""
    files = (file for folder in folders if folder.is_dir() for file in folder.iterdir() if file.is_file())
    return (
        ["--device", f"{_CDI_KIND}=all"]
        if any(_CDI_KIND in file.read_text("utf-8", "replace") for file in files)
        else []
    )


def _environment_file(folder: Path, variables: Mapping[str, str]) -> Path:
    """The variables, in a file: a command's arguments are open to every user of the machine."""
    file = folder / "environment"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return file
