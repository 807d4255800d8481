"""A container: a process with mounts, a network, process numbers and a user of its own, of which Linux does the rest.

Its image is the Python that runs the tests, read-only, with the machine's programs. It takes root, and what
`why_not` asks for. Left out: limits of memory and CPU, devices, and seccomp.
"""

from __future__ import annotations

import ipaddress
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

VENV = "/opt/venv"
NETWORK = "198.18.0.0/15"
"""Of measurements (RFC 2544): no other route of a machine leads there."""

GATEWAY = "198.18.0.1"
PATH = f"{VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_IMAGE = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/sys", sys.base_prefix)
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_TOOLS = ("ip", "nsenter", "setpriv", "unshare")
# Its end of the cable is the node's. Arguments: the node's process, the cable's name, the address, what comes then.
_NETWORK = f"""
ip link add eth0 type veth peer name "$2" netns "$1"
nsenter --target "$1" --net sh -ec 'ip address add {GATEWAY} peer "$1" dev "$0"; ip link set "$0" up' "$2" "$3"
ip link set lo up
ip address add "$3" peer {GATEWAY} dev eth0
ip link set eth0 up
ip route add default via {GATEWAY}
exec unshare --pid --fork --kill-child sh -ec "$4"
"""


@dataclass(frozen=True)
class Mount:
    """A folder of the node's, and where the container has it."""

    source: Path
    target: str
    read_only: bool


@cache
def why_not() -> str:
    """Why this machine starts no containers; empty if it does."""
    if os.geteuid() != 0 or not all(map(shutil.which, _TOOLS)):
        return f"NOT TESTED: it takes root, and {', '.join(_TOOLS)}"
    tried = ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "add", "eth0", "type", "veth"]
    failed = subprocess.run(tried, capture_output=True, text=True, check=False).stderr
    return f"NOT TESTED: no namespaces here: {failed}" if failed else ""


def new_address() -> str:
    """One of 130,000 of the network, as other tests take some too."""
    return str(ipaddress.ip_address(GATEWAY) + random.randrange(1, 2**17 - 2))


class Container:
    """Started. What it writes is read from `process.stdout`."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        mounts: Sequence[Mount],
        security: Mapping[str, Any],
        root: Path,
        address: str,
        folder: str,
    ) -> None:
        self._cable = f"tk{int(ipaddress.ip_address(address)):08x}"
        become = ["env", f"--chdir={folder}", *_as_user(security), "--", *command]
        inside = "\n".join(_file_system(root, mounts, security)) + f"\nexec chroot {root} {shlex.join(become)}"
        network = ["sh", "-ec", _NETWORK, "sh", str(os.getpid()), self._cable, address, inside]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", *network],
            env={"PATH": PATH, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    @property
    def first_process(self) -> int:
        """Its number on this machine. Raises OSError, ValueError where it does not run."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())

    def terminate(self) -> None:
        """SIGTERM to its first process, for which Linux drops what it has no handler for."""
        with suppress(OSError, ValueError):
            os.kill(self.first_process, signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()

    def end(self) -> int:
        """The exit code, once it has ended: 128 + N when signal N ended it."""
        code = self.process.wait()
        subprocess.run(["ip", "link", "delete", self._cable], capture_output=True, check=False)
        return 128 - code if code < 0 else code


def _file_system(root: Path, mounts: Sequence[Mount], security: Mapping[str, Any]) -> Iterator[str]:
    """Commands that put it together below `root`."""
    image = [Mount(Path(path).resolve(), path, read_only=True) for path in _IMAGE if Path(path).exists()]
    venv = Mount(Path(sys.prefix).resolve(), VENV, read_only=True)
    devices = [Mount(Path("/dev", name), f"/dev/{name}", read_only=False) for name in _DEVICES]
    yield f"mount -t tmpfs none {root}; mkdir {root}/proc {root}/dev; mount -t proc proc {root}/proc"
    yield from (f"touch {root}{item.target}" for item in devices)
    for item in [*image, venv, *devices, *sorted(mounts, key=lambda item: item.target)]:
        source, target = shlex.quote(str(item.source)), shlex.quote(f"{root}{item.target}")
        if item not in devices and not item.source.is_file():
            yield f"mkdir -p {target}"
        yield f"mount --rbind {source} {target}"
        if item.read_only:
            yield f"mount -o remount,bind,ro {target}"
    if security.get("readOnlyRootFilesystem"):
        yield f"mount -o remount,ro {root}"


def _as_user(security: Mapping[str, Any]) -> list[str]:
    """The words of setpriv that start the container's program; it is root where nothing is said."""
    user, group = security.get("runAsUser", 0), security.get("runAsGroup", 0)
    groups = [f"--groups={security['fsGroup']}"] if "fsGroup" in security else ["--clear-groups"]
    # Another user is not killed with its parent any more (unshare's --kill-child), unless that is said again.
    words = ["setpriv", "--pdeathsig=KILL", f"--reuid={user}", f"--regid={group}", *groups]
    if security.get("capabilities", {}).get("drop") == ["ALL"]:
        words += ["--bounding-set=-all", "--inh-caps=-all"]
    if security.get("allowPrivilegeEscalation") is False:
        words.append("--no-new-privs")
    return words
