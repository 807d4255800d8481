"""How processes are started: in a private folder, with few of our variables, their files for their owner alone.

The current folder may be anybody's, such as that of a recipe from elsewhere, and our environment may hold any secret.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from toolkit.home import HOME_VARIABLE, home

PIP = ("AWS_", "DBUS_", "KEYRING_", "NETRC", "PIP_")
"""The beginnings of variables that pip reads, or a keyring that has its passwords."""

BUILDERS = (
    *("AWS_", "AZURE_", "CLOUDSDK_", "DBUS_", "GNUPGHOME", "GOOGLE_", "PASSWORD_STORE_", "SSH_AUTH_SOCK"),  # logins
    *("BUILD", "CONTAINER", "_CONTAINERS_", "DOCKER_", "REGISTRY_", "REGISTRIES_", "STORAGE_"),
)
"""Of docker, podman, buildah and the programs that have their logins."""

TRAINING = (
    *("CUBLAS_", "CUDA_", "CUDNN_", "GLOO_", "KMP_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "PYTORCH_", "TORCH"),
    *("HF_", "HUGGING", "OPENAI_API_KEY", "SAGEMAKER_", "TOOLKIT_", "TRANSFORMERS_", "TRITON_"),
)
"""Of PyTorch, the hub, and the server that answers in the target's place."""

OWN = ("TOOLKIT_",)

_ANY_PROGRAMS = (
    *("HOME", "LANG", "LC_", "LOGNAME", "PATH", "TEMP", "TMP", "TZ", "USER", "XDG_"),
    *("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_", "LD_LIBRARY_PATH", "PYTHON"),
    *("APPDATA", "COMSPEC", "LOCALAPPDATA", "PATHEXT", "PROGRAM", "SYSTEM", "WINDIR"),  # Windows
)


def python_command(*arguments: str) -> list[str]:
    """The command of this Python with these arguments."""
    return [sys.executable, "-P", *arguments]


def own_variables(*beginnings: str) -> dict[str, str]:
    """Of our own what any program needs, the proxies, and those that begin with one of `beginnings`."""
    wanted = (*_ANY_PROGRAMS, *beginnings)
    found = {name: value for name, value in os.environ.items() if name.startswith(wanted) or is_proxy(name)}
    if HOME_VARIABLE in found:
        found[HOME_VARIABLE] = str(home())  # a relative one is that of our own folder
    return found


def is_proxy(name: str) -> bool:
    return name.lower().endswith("_proxy")


def start_process(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int = subprocess.STDOUT,
    pass_fds: Sequence[int] = (),
    umask: int = 0o077,
) -> subprocess.Popen[bytes]:
    """Start it in a session of its own: Ctrl-C reaches us alone, and whoever starts it ends it."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        umask=umask,
        start_new_session=True,
    )
