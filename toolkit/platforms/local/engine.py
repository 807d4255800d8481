"""podman, else docker: builds an image into this machine's own store, without a registry, and runs it.

    image of the recipe ──> build ──> localhost/toolkit/<name>:<tag> ──> run, with /opt/ml and a port of loopback

Both programs understand all that is said here. What they read of the user's settings (DOCKER_HOST, CONTAINERS_CONF, …)
is left to them.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from toolkit.children import BUILDERS, is_proxy, own_variables
from toolkit.errors import PlatformError
from toolkit.images.command import Log, build_arguments, build_context, build_failure, last_words, run
from toolkit.images.reference import is_loopback, parse
from toolkit.images.spec import ImageSpec
from toolkit.platforms.local.aws import REGION
from toolkit.platforms.local.command import Command

_PORT = 8080  # SageMaker's
_ASKED = {"podman": "info", "docker": "version"}
_ROOM = "Free disk space where images are stored (podman image prune, docker image prune)."


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


def build(spec: ImageSpec, image: str, log: Log) -> None:
    """Build it under that name, unless it is there: its tag says its content. Raises PlatformError."""
    if holds(image):
        return
    program, base = engine(), parse(spec.base)
    plain = ["--tls-verify=false"] if program == "podman" and is_loopback(base.registry) else []
    with build_context(spec) as context:
        options = [*build_arguments(spec), "--tag", image, "--file", str(context / "Dockerfile")]
        ended = run([program, "build", *plain, *options, str(context)], log, {"DOCKER_BUILDKIT": "0"})
    if ended.code:
        raise build_failure(program, ended, spec.base, _ROOM)


def command(program: str, image: str, variables: Mapping[str, str], folder: Path, port: int) -> Command:
    """The command that runs the image as SageMaker does: with `serve`, and the model data mounted read-only."""
    name = f"toolkit-{uuid.uuid4().hex[:12]}"
    options = ["--name", name, "--publish", f"127.0.0.1:{port}:{_PORT}"]
    # vLLM's processes talk through shared memory. And --stop-timeout: who removes it has waited already.
    options += ["--pull", "never", "--shm-size", "1g", "--stop-timeout", "0", "--security-opt", "label=disable"]
    for source in sorted((folder / "opt" / "ml").iterdir()):
        options += ["--volume", f"{source}:/opt/ml/{source.name}:ro"]
    options += ["--env-file", str(_environment_file(folder, {**variables, "AWS_REGION": REGION}))]
    # podman would give the user's proxies to the container
    environment = {name: value for name, value in own_variables(*BUILDERS).items() if not is_proxy(name)}
    return Command([program, "run", "--rm", *options, image, "serve"], environment, [program, "rm", "--force", name])


def _environment_file(folder: Path, variables: Mapping[str, str]) -> Path:
    """The variables, in a file: a command's arguments are open to every user of the machine."""
    file = folder / "environment"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return file
