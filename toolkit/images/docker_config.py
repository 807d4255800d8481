"""Logins of `docker login`: in Docker's config file, or in the credential helper that it names."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from toolkit import documents
from toolkit.children import BUILDERS, own_variables, start_process
from toolkit.errors import UsageError
from toolkit.home import user_home
from toolkit.images.reference import DOCKER_HUB
from toolkit.open_object import OpenObject

HUB_LOGIN = "https://index.docker.io/v1/"
"""The key of Docker Hub's login."""

IDENTITY_TOKEN = "<token>"  # noqa: S105
"""The user of a login whose password is an identity token, as Docker's credential helpers write it."""

_HELPER_NAME = re.compile(r"[\w.-]+", re.ASCII)
_HELPER_SECONDS = 60.0  # it may ask a keychain that its user has to unlock
_NOT_THERE = b"credentials not found"  # of docker-credential-helpers, and of all that are like them


class Login(OpenObject, total=False):
    """The login for one registry. `auth` is user and password in base64; with a token it goes for nothing."""

    auth: str | None
    username: str | None
    password: str | None
    identitytoken: str | None


class DockerConfig(OpenObject, total=False):
    """Docker's config.json: what else stands there is kept."""

    auths: dict[str, Login] | None
    credHelpers: dict[str, str] | None  # noqa: N815 - Docker's name
    credsStore: str | None  # noqa: N815


class _Stored(OpenObject):
    """What a credential helper answers."""

    Username: str
    Secret: str


def docker_folder() -> Path:
    """The folder of Docker's settings: $DOCKER_CONFIG, else `~/.docker`."""
    return Path(os.environ.get("DOCKER_CONFIG") or user_home() / ".docker")


def docker_credentials(registry: str, *, seconds: float = _HELPER_SECONDS) -> tuple[str, str] | None:
    """User and password of `docker login`, None without a login. Raises UsageError for a broken file or helper.

    As for Docker a helper that is named for the registry goes before the one for all, and both before the file. A
    helper has so many seconds to answer.
    """
    path = docker_folder() / "config.json"
    config, server = read_config(path), _keys(registry)[0]
    helper = (config.get("credHelpers") or {}).get(server, config.get("credsStore"))
    return _ask_helper(helper, server, path, seconds) if helper else read_login(path, registry)


def engine_credentials(registry: str) -> tuple[str, str] | None:
    """User and password of `podman login`, else of `docker login`. Raises UsageError for a broken file or helper."""
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        files = [Path(named)]
    else:
        folders = [os.environ.get("XDG_RUNTIME_DIR"), os.environ.get("XDG_CONFIG_HOME") or user_home() / ".config"]
        files = [Path(folder) / "containers" / "auth.json" for folder in folders if folder]
    found = filter(None, (read_login(file, registry) for file in files))
    return next(found, None) or docker_credentials(registry)


def _ask_helper(helper: str, server: str, path: Path, seconds: float) -> tuple[str, str] | None:
    """What the helper has for the server. Nothing of what it writes is shown: it may be the secret."""
    program, hint = f"docker-credential-{helper}", f"Correct the helper in {path}, or run docker login {server} again."
    if not _HELPER_NAME.fullmatch(helper) or shutil.which(program) is None:
        raise UsageError(f"{path} names the credential helper {helper!r}, and there is no program {program}", hint=hint)
    with tempfile.TemporaryDirectory(prefix="toolkit-") as folder:
        variables = own_variables(*BUILDERS)
        process = start_process(
            [program, "get"], Path(folder), variables, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            said = process.communicate(server.encode(), seconds)[0]
        except subprocess.TimeoutExpired:
            raise UsageError(f"{program} did not answer in {seconds:.0f} seconds", hint=hint) from None
        finally:
            _end(process)
    if process.returncode:
        if _NOT_THERE in said.lower():
            return None
        raise UsageError(f"{program} ended with exit code {process.returncode}", hint=hint)
    try:
        stored = documents.parse(_Stored, said)
    except documents.Unfit:  # whose text could quote the secret
        raise UsageError(f"{program} answered what is no login", hint=hint) from None
    return stored["Username"], stored["Secret"]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the helper and what it started, and close its ends."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def read_config(path: Path) -> DockerConfig:
    """The file's settings, none where it does not exist. Raises UsageError for a broken file."""
    try:
        return documents.parse(DockerConfig, documents.read_file(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def read_login(path: Path, registry: str) -> tuple[str, str] | None:
    """User and password for a registry in a Docker config file, None without a login. Raises UsageError.

    For an identity token, IDENTITY_TOKEN and the token. As for Docker, of a key that is an address its host counts.
    """
    logins = read_config(path).get("auths") or {}
    wanted = _keys(registry)
    ours = [logins[key] for key in wanted if key in logins]
    ours += [login for key, login in logins.items() if _host(key) in wanted]
    login = next((login for login in ours if any(login.values())), Login())
    if token := login.get("identitytoken"):
        return IDENTITY_TOKEN, token
    if not login.get("auth") and (user := login.get("username")):
        return user, login.get("password") or ""
    try:
        user, colon, password = base64.b64decode(login.get("auth") or "").decode().partition(":")
    except ValueError as error:
        raise _unreadable(path, error) from None
    return (user, password) if colon else None


def _unreadable(path: Path, error: Exception) -> UsageError:
    # the error's own text could quote a password
    return UsageError(f"cannot read {path}: {type(error).__name__}", hint="Remove it, and run docker login again.")


def _host(key: str) -> str:
    """The host of a key that is an address, such as https://ghcr.io/v2/; else the key, which may name a repository."""
    scheme, separator, rest = key.partition("://")
    return rest.partition("/")[0] if separator else scheme


def _keys(registry: str) -> tuple[str, ...]:
    return (HUB_LOGIN, f"index.{DOCKER_HUB}", DOCKER_HUB) if registry == DOCKER_HUB else (registry,)
