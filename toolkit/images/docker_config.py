"""Logins in Docker's config file. Those in a credential helper are not found."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.home import user_home
from toolkit.images.reference import DOCKER_HUB
from toolkit.open_object import OpenObject

HUB_LOGIN = "https://index.docker.io/v1/"
"""The key of Docker Hub's login."""


class Login(OpenObject, total=False):
    """The login for one registry. `auth` is user and password in base64."""

    auth: str | None


class DockerConfig(OpenObject, total=False):
    """Docker's config.json: what else stands there is kept."""

    auths: dict[str, Login] | None
    credHelpers: dict[str, str] | None  # noqa: N815 - Docker's name


def docker_folder() -> Path:
    """The folder of Docker's settings: $DOCKER_CONFIG, else `~/.docker`."""
    return Path(os.environ.get("DOCKER_CONFIG") or user_home() / ".docker")


def docker_credentials(registry: str) -> tuple[str, str] | None:
    """User and password of `docker login`, None without a login. Raises UsageError for a broken file."""
    return read_login(docker_folder() / "config.json", registry)


def read_config(path: Path) -> DockerConfig:
    """The file's settings, none where it does not exist. Raises UsageError for a broken file."""
    try:
        return documents.parse(DockerConfig, documents.read_file(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def read_login(path: Path, registry: str) -> tuple[str, str] | None:
    """User and password for a registry in a Docker config file, None without a login. Raises UsageError."""
    logins = read_config(path).get("auths") or {}
    auth = next((logins[key].get("auth") for key in _keys(registry) if key in logins), None)
    try:
        user, colon, password = base64.b64decode(auth or "").decode().partition(":")
    except ValueError as error:
        raise _unreadable(path, error) from None
    return (user, password) if colon else None


def _unreadable(path: Path, error: Exception) -> UsageError:
    # the error's own text could quote a password
    return UsageError(f"cannot read {path}: {type(error).__name__}", hint="Remove it, and run docker login again.")


def _keys(registry: str) -> tuple[str, ...]:
    if registry == DOCKER_HUB:
        return HUB_LOGIN, "index.docker.io", "docker.io"
    return registry, f"https://{registry}", f"https://{registry}/v1/", f"https://{registry}/v2/"
