"""Logins in Docker's config file. Those in a credential helper are not found."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

from toolkit.errors import UsageError
from toolkit.images.reference import DOCKER_HUB


def docker_credentials(registry: str) -> tuple[str, str] | None:
    """User and password of `docker login`, None without a login. Raises UsageError for a broken file."""
    folder = os.environ.get("DOCKER_CONFIG")
    return read_login((Path(folder) if folder else Path.home() / ".docker") / "config.json", registry)


def read_login(path: Path, registry: str) -> tuple[str, str] | None:
    """User and password for a registry in a Docker config file, None without a login. Raises UsageError."""
    try:
        logins = json.loads(path.read_text(encoding="utf-8")).get("auths", {})
        auth = next((logins[key].get("auth", "") for key in _keys(registry) if key in logins), "")
        user, colon, password = base64.b64decode(auth).decode().partition(":")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        # the error's own text could quote a password
        message = f"cannot read {path}: {type(error).__name__}"
        raise UsageError(message, hint="Remove it, and run docker login again.") from None
    return (user, password) if colon else None


def _keys(registry: str) -> tuple[str, ...]:
    if registry == DOCKER_HUB:
        return "https://index.docker.io/v1/", "index.docker.io", "docker.io"
    return registry, f"https://{registry}", f"https://{registry}/v1/", f"https://{registry}/v2/"
