"""Logins in Docker's config file. Those in a credential helper are not found."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from toolkit import documents
from toolkit.errors import UsageError
from toolkit.home import user_home
from toolkit.images.reference import DOCKER_HUB


class _Login(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    auth: str | None = None


class _Config(BaseModel):
    """Docker's config.json, as far as logins stand in it."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    auths: dict[str, _Login] | None = None


def docker_credentials(registry: str) -> tuple[str, str] | None:
    """User and password of `docker login`, None without a login. Raises UsageError for a broken file."""
    folder = os.environ.get("DOCKER_CONFIG")
    return read_login((Path(folder) if folder else user_home() / ".docker") / "config.json", registry)


def read_login(path: Path, registry: str) -> tuple[str, str] | None:
    """User and password for a registry in a Docker config file, None without a login. Raises UsageError."""
    try:
        logins = documents.parse(_Config, documents.read_file(path)).auths or {}
        auth = next((logins[key].auth for key in _keys(registry) if key in logins), None)
        user, colon, password = base64.b64decode(auth or "").decode().partition(":")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        # the error's own text could quote a password
        message = f"cannot read {path}: {type(error).__name__}"
        raise UsageError(message, hint="Remove it, and run docker login again.") from None
    return (user, password) if colon else None


def _keys(registry: str) -> tuple[str, ...]:
    if registry == DOCKER_HUB:
        return "https://index.docker.io/v1/", "index.docker.io", "docker.io"
    return registry, f"https://{registry}", f"https://{registry}/v1/", f"https://{registry}/v2/"
