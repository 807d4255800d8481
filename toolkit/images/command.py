"""Build with an external tool: write the folder that it builds from, stream its output, explain its failure."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.children import BUILDERS, own_variables, start_process
from toolkit.errors import BuildError
from toolkit.images.docker_config import IDENTITY_TOKEN, Login
from toolkit.images.reference import Reference, parse
from toolkit.images.spec import ContextFile, ImageSpec, on_disk
from toolkit.images.wheels import fetch_wheels
from toolkit.text import without_colours

if TYPE_CHECKING:
    from toolkit.images.auth import Credentials  # imports httpx


Log = Callable[[str], None]

# podman 4.3 and buildah 1.28, pulling and building; where there is no range at all: containers/podman#1182
TOO_FEW_IDS = re.compile(
    r"insufficient UIDs or GIDs available in user namespace|no subuid ranges found|lchown .*: invalid argument", re.I
)
"""Messages of rootless podman or buildah if the user may not map the image's users."""

TOO_FEW_IDS_HINT = (
    "Give your user ranges of ids: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER (ranges "
    "that no other line of /etc/subuid and /etc/subgid has), then: podman system migrate"
)

_KEPT_LINES = 200
_GRACE_SECONDS = 10.0
_STEP = re.compile(r"step \d+(?:/\d+)? ?: (.+)", re.I)
_FULL_DISK = re.compile(r"no space left on device|disk quota exceeded", re.I)


@dataclass(frozen=True)
class Ended:
    code: int
    lines: tuple[str, ...]


def _discard(_line: str) -> None:
    """Log nothing."""


def run(command: Sequence[str], log: Log = _discard, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a command, each line of its output to `log` as it comes, with variables besides our own.

    Whatever ends us early, Ctrl-C too, ends the command and all that it started.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    with tempfile.TemporaryDirectory(prefix="toolkit-") as folder:
        # The umask is what images are built with: some builders give it to the folders that they make in the image.
        process = start_process(command, Path(folder), {**own_variables(*BUILDERS), **(environment or {})}, umask=0o022)
        try:
            assert process.stdout is not None
            with io.TextIOWrapper(process.stdout, "utf-8", errors="replace") as said:
                for line in said:
                    lines.append(without_colours(line).rstrip())
                    log(lines[-1])
            return Ended(process.wait(), tuple(lines))
        finally:
            _end(process)


def build_failure(tool: str, ended: Ended, base: str, room: str) -> BuildError:
    """Why a Dockerfile could not be built: the step, the last line, and a hint. `room`: how to free disk space."""
    step = next((match[1] for line in reversed(ended.lines) if (match := _STEP.fullmatch(line))), "")
    words = last_words(ended)
    if _FULL_DISK.search(words):
        return BuildError(f"{tool}: the disk is full: {words}", hint=room)
    if TOO_FEW_IDS.search(words):
        return BuildError(f"{tool}: the image's users cannot be mapped: {words}", hint=TOO_FEW_IDS_HINT)
    if step.upper().startswith("FROM "):
        image = step[5:].replace("${BASE_IMAGE}", base)
        hint = "Check the name, and that you may pull it: docker login; for ECR, the role's permissions."
        return BuildError(f"{tool}: cannot pull the base image {image}: {words}", hint=hint)
    what = f"step `{step}`" if step else "the build"
    hint = "Correct `container.dockerfile` of the recipe; the output of the step is above." if step else ""
    return BuildError(f"{tool}: {what} failed: {words}", hint=hint)


def push_failure(tool: str, ended: Ended, destination: str, room: str) -> BuildError:
    """Why an image could not be pushed. `room`: how to free disk space."""
    words = last_words(ended)
    hint = room if _FULL_DISK.search(words) else "Check that the repository exists, and that the login may push to it."
    return BuildError(f"{tool}: cannot push {destination}: {words}", hint=hint)


def last_words(ended: Ended) -> str:
    """The last line that is not empty."""
    return next(
        (line for line in reversed(ended.lines) if line.strip()), f"it ended with exit code {ended.code} and no output"
    )


def logins(credentials: Credentials, images: Iterable[Reference]) -> dict[str, Login]:
    """The available logins for the images' registries, in the format of Docker's and podman's files."""
    accounts = {registry: credentials(registry) for registry in {image.registry for image in images}}
    return {registry: _login(*account) for registry, account in accounts.items() if account is not None}


def _login(user: str, password: str) -> Login:
    """Podman reads a token only beside an `auth`, as Docker writes it."""
    if user == IDENTITY_TOKEN:
        return {**_login("token", ""), "identitytoken": password}
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@contextmanager
def secret_folder() -> Iterator[Path]:
    """A private temporary folder, in memory if the system supports that."""
    memory = "/dev/shm"  # noqa: S108
    with tempfile.TemporaryDirectory(
        prefix="toolkit-login-", dir=memory if os.access(memory, os.W_OK) else None
    ) as name:
        yield Path(name)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all its processes, if it has not ended by itself."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, sign)
                process.wait(_GRACE_SECONDS)
    assert process.stdout is not None
    process.stdout.close()


EPOCH = 0  # of every file and of the image itself, in seconds: the same image has the same digest tomorrow


@contextmanager
def build_context(spec: ImageSpec) -> Iterator[Path]:
    """The folder, until the block ends. Raises BuildError."""
    with ExitStack() as stack:
        with on_disk("write the build context"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolkit-build-")))
            context = folder / "context"
            context.mkdir()
            (context / "Dockerfile").write_text(spec.dockerfile, encoding="utf-8")
            _write({**spec.files, **fetch_wheels(spec.wheels, spec.python, folder)}, context / "rootfs")
        yield context


def build_arguments(spec: ImageSpec) -> list[str]:
    """The options that give the Dockerfile its ARGs: the base, and the time where it asks for one."""
    base = parse(spec.base)
    # buildah takes no reference that has both
    arguments = {"BASE_IMAGE": str(replace(base, tag=None) if base.digest else base)}
    if "ARG SOURCE_DATE_EPOCH" in spec.dockerfile:
        arguments["SOURCE_DATE_EPOCH"] = str(EPOCH)
    return [option for name, value in arguments.items() for option in ("--build-arg", f"{name}={value}")]


def _write(files: dict[str, ContextFile], root: Path) -> None:
    """Files below `root` with their modes; folders are open to all, as they are in images."""
    root.mkdir()
    for path, file in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.source is not None:
            shutil.copyfile(file.source, target)
        else:
            target.write_bytes(file.content or b"")
        target.chmod(file.mode)
    for entry in (root, *root.rglob("*")):
        if entry.is_dir():
            entry.chmod(0o755)
        os.utime(entry, (EPOCH, EPOCH))
