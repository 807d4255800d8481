"""The daemon's process: `python -m toolkit.platforms.local HOME CONTAINERS READY_FD`, started by `daemon.start()`.

The pipe READY_FD is closed when both servers answer. SIGTERM ends the daemon and every container.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.platforms.local import credentials
from toolkit.platforms.local.daemon import LocalDaemon, credentials_file
from toolkit.platforms.local.folders import endpoints_folder

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


def main(home: Path, containers: Path, ready_fd: int) -> None:
    """Serve until SIGTERM."""
    os.umask(0o077)
    # Never closed: the lock shall last as long as the process.
    fcntl.flock(os.open(home / "daemon.lock", os.O_WRONLY | os.O_CREAT), fcntl.LOCK_EX)
    _serve(home, containers, ready_fd)


def _serve(home: Path, containers: Path, ready_fd: int) -> None:
    # Imported here, and not before the fork: half a second of moto, boto3 and uvicorn.
    import uvicorn

    from toolkit.platforms.local.access import Guard
    from toolkit.platforms.local.aws import HOME
    from toolkit.platforms.local.clients import session
    from toolkit.platforms.local.container_host import ContainerHost
    from toolkit.platforms.local.control import control_application, control_server
    from toolkit.platforms.local.front import guarded
    from toolkit.platforms.local.gateway import gateway
    from toolkit.platforms.local.objects import with_large_objects
    from toolkit.platforms.local.service import SageMaker

    asked_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_end.set())
    runtime_socket = socket.create_server(("127.0.0.1", 0), backlog=512)

    @cache
    def s3() -> S3Client:
        client: S3Client = session(daemon).client("s3")
        return client

    sagemaker = SageMaker(HOME, ContainerHost(endpoints_folder(home), containers, s3))
    guard = Guard(credentials.create(credentials_file(home)))
    application = with_large_objects(control_application(lambda region: sagemaker), home)
    control = control_server(guarded(application, guard, home))
    daemon = LocalDaemon(
        pid=os.getpid(),
        control_url=f"http://127.0.0.1:{control.server_port}",
        runtime_url=f"http://127.0.0.1:{runtime_socket.getsockname()[1]}",
        started_at=time.time(),
        credentials_file=str(credentials_file(home)),
    )
    runtime = uvicorn.Server(
        uvicorn.Config(
            gateway(sagemaker.endpoints.targets, guard),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
    )
    serving = [
        threading.Thread(target=control.serve_forever, args=(0.05,), name="control"),
        threading.Thread(target=runtime.run, args=([runtime_socket],), name="runtime"),
    ]
    for thread in serving:
        thread.start()
    while not runtime.started:
        time.sleep(0.005)
    _write(home / "daemon.json", daemon)
    os.close(ready_fd)

    asked_to_end.wait()
    runtime.should_exit = True
    control.shutdown()
    sagemaker.endpoints.close()
    for thread in serving:
        thread.join()
    credentials_file(home).unlink(missing_ok=True)
    (home / "daemon.json").unlink(missing_ok=True)


def _write(file: Path, daemon: LocalDaemon) -> None:
    """In one step, so that a reader sees all of it or nothing."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(asdict(daemon)))
    new.replace(file)


if __name__ == "__main__":
    if os.fork() == 0:  # the daemon is nobody's child: whoever started it need not wait for it
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
