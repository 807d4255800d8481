"""The daemon's process: `python -m toolkit.platforms.local HOME CONTAINERS READY_FD`, started by `daemon.start()`.

The pipe READY_FD is closed when both servers answer. SIGTERM ends the daemon and every container.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.platforms.local import credentials
from toolkit.platforms.local.daemon import IDLE_HOURS, LocalDaemon, credentials_file, idle_hours, spare_minutes
from toolkit.platforms.local.folders import endpoints_folder
from toolkit.platforms.local.presence import Activity, Presence

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_LOOK_S = 0.25


def main(home: Path, containers: Path, ready_fd: int) -> None:
    """Serve until SIGTERM, or until nothing was asked for so long as `idle_hours()` says."""
    # First, under the user's own umask: what Python compiles of moto lies in its folder, of which botocore lists every
    # folder. One that only we could read would end each request to another user's daemon with 500.
    import moto  # noqa: F401

    os.umask(0o077)
    try:
        _serve(home, containers, ready_fd, Presence(home))
    except OSError as error:  # no port, no room, too many open files
        sys.exit(f"{error.filename or '127.0.0.1'}: {error.strerror or error}")


def _serve(home: Path, containers: Path, ready_fd: int, presence: Presence) -> None:
    # Imported here, and not before the fork: half a second of moto, boto3 and uvicorn.
    import uvicorn

    from toolkit.platforms.local.aws import HOME
    from toolkit.platforms.local.clients import DaemonSession
    from toolkit.platforms.local.container_host import ContainerHost
    from toolkit.platforms.local.control import control_application, control_server
    from toolkit.platforms.local.front import guarded
    from toolkit.platforms.local.gateway import gateway
    from toolkit.platforms.local.objects import with_large_objects
    from toolkit.platforms.local.service import SageMaker
    from toolkit.platforms.local.sigv4 import Guard
    from toolkit.platforms.local.spare import Spares

    asked_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_end.set())
    control_socket, runtime_socket = _listening(), _listening()

    @cache
    def s3() -> S3Client:
        client: S3Client = DaemonSession(daemon).client("s3")
        return client

    spares = Spares(endpoints_folder(home), spare_minutes() * 60)
    sagemaker = SageMaker(HOME, ContainerHost(endpoints_folder(home), containers, s3, spares))
    activity = Activity()
    guard = Guard(credentials.create(credentials_file(home)))
    application = activity.count_wsgi(with_large_objects(control_application(lambda region: sagemaker), home))
    control = control_server(guarded(application, guard, home), control_socket)
    daemon = LocalDaemon(
        pid=os.getpid(),
        control_url=f"http://127.0.0.1:{control_socket.getsockname()[1]}",
        runtime_url=f"http://127.0.0.1:{runtime_socket.getsockname()[1]}",
        started_at=time.time(),
        credentials_file=str(credentials_file(home)),
    )
    counted = activity.count_asgi(gateway(sagemaker.endpoints.targets, guard))
    runtime = uvicorn.Server(
        uvicorn.Config(
            counted,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
            http="h11",  # httptools takes heads without an end
            h11_max_incomplete_event_size=16 * 1024,
        )
    )
    serving = [
        threading.Thread(target=control.serve_forever, args=(0.05,), name="control", daemon=True),
        threading.Thread(target=runtime.run, args=([runtime_socket],), name="runtime", daemon=True),
    ]
    for thread in serving:
        thread.start()
    while not runtime.started:
        time.sleep(0.005)
    presence.announce(daemon)
    os.close(ready_fd)

    def look_after_spare() -> None:
        spares.look(is_idle=not sagemaker.endpoints.summaries())

    why = _wait_for_end(asked_to_end, activity, presence, look_after_spare)
    if why:
        names = ", ".join(endpoint["EndpointName"] for endpoint in sagemaker.endpoints.summaries())
        why += f" Its endpoints went with it: {names}." if names else ""
        _log(why)
    runtime.should_exit = True
    control.shutdown()
    sagemaker.endpoints.close()
    spares.close()
    for thread in serving:
        thread.join()
    presence.withdraw(why)


def _listening() -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", 0), backlog=512)
    except OSError as error:
        sys.exit(f"no port of 127.0.0.1 is free ({error.strerror}): end a program that listens on one")


def _wait_for_end(
    asked_to_end: threading.Event, activity: Activity, presence: Presence, look_after_spare: Callable[[], None]
) -> str:
    """Return when the daemon shall end, and why, where nobody has asked it to. Meanwhile mend its files."""
    hours, trouble = idle_hours(), ""
    while not asked_to_end.wait(_LOOK_S):
        look_after_spare()
        try:
            presence.mend()
            trouble = ""
        except BlockingIOError:
            _log("Another daemon has taken over this home: this one ends, with its containers.")
            os._exit(1)  # no clearing away: the folders may be the other's. The keepers end the containers
        except OSError as error:
            if str(error) != trouble:
                _log(f"daemon.json cannot be kept: {error}")
            trouble = str(error)
        if hours and activity.idle_seconds() >= hours * 3600:
            at = time.strftime("%Y-%m-%d %H:%M")
            return (
                f"The local platform ended by itself on {at}: nothing was asked of it for {hours:g} hours "
                f"({IDLE_HOURS})."
            )
    return ""


def _log(text: str) -> None:
    with suppress(OSError):  # on a full disk
        print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    if os.fork() == 0:  # the daemon is nobody's child: whoever started it need not wait for it
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
