"""The containers of an endpoint, one for each production variant: started, kept alive, ended."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.platforms.local import folders, modeldata
from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.container import Container
from toolkit.platforms.local.logs import LogStream

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_PING_INTERVAL_S = 0.2
_DRAIN_INTERVAL_S = 0.05
_DRAIN_S = 480.0  # as long as SageMaker lets a streamed answer take


@dataclass(frozen=True)
class Variant:
    """What CreateModel and CreateEndpointConfig said about one production variant."""

    name: str
    image: str
    program: Path
    environment: Mapping[str, str]
    model_data: Mapping[str, str]
    """S3 prefix by folder below /opt/ml."""
    weight: float
    startup_timeout_s: float


@dataclass
class Target:
    """Where the gateway sends the requests of one production variant."""

    variant: str
    weight: float
    port: int
    log_stream_arn: str
    requests: int = 0
    """Requests under way, counted by the gateway."""


class StartError(Exception):
    """A container did not become healthy; the text is a FailureReason."""


class Deployment:
    """All containers that serve one endpoint configuration. `on_lost` is called with a reason when one is given up."""

    def __init__(
        self,
        endpoint: str,
        variants: Sequence[Variant],
        folder: Path,
        s3: S3Client,
        on_lost: Callable[[Deployment, str], None],
    ) -> None:
        self.variants = tuple(variants)
        self._folder = folder
        self._on_lost = on_lost
        self._instances = [_Instance(endpoint, variant, folder / variant.name, s3) for variant in variants]

    def start(self) -> None:
        """Return when every container answers /ping; else end them all and raise StartError."""
        try:
            for instance in self._instances:
                instance.prepare()
            for instance in self._instances:
                instance.launch()
            waiting = self._instances
            while waiting:
                waiting = [instance for instance in waiting if not instance.is_healthy()]
        except StartError:
            self.stop()
            raise
        for instance in self._instances:
            threading.Thread(target=self._keep_alive, args=(instance,), daemon=True).start()

    def targets(self) -> list[Target]:
        """The containers that take requests now."""
        return [instance.target for instance in self._instances if instance.target]

    def drain(self) -> None:
        """Return when the requests that are under way have been answered, or have had all the time they may take."""
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            time.sleep(_DRAIN_INTERVAL_S)
            if not any(target.requests for target in self.targets()):
                return

    def stop(self) -> None:
        """End all containers and delete their folders."""
        stopping = [threading.Thread(target=instance.stop) for instance in self._instances]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # other generations of this endpoint may still be there
            self._folder.parent.rmdir()

    def _keep_alive(self, instance: _Instance) -> None:
        """Start a container again when it dies, as SageMaker does; give up when it does not become healthy again."""
        try:
            while instance.wait_until_dead():
                instance.launch()
                while not instance.is_healthy():
                    pass
        except StartError as exc:
            self._on_lost(self, f"{exc} It had been in service before.")


class _Instance:
    """One production variant's container, across restarts."""

    def __init__(self, endpoint: str, variant: Variant, folder: Path, s3: S3Client) -> None:
        self.target: Target | None = None
        self._variant = variant
        self._folder = folder
        self._s3 = s3
        self._log = LogStream(endpoint, f"{variant.name}/i-{uuid.uuid4().hex[:17]}")
        self._lock = threading.Lock()
        self._container: Container | None = None
        self._deadline = 0.0
        self._stopping = False

    def prepare(self) -> None:
        """Bring the model data to where the container sees /opt/ml."""
        try:
            for name in ("opt/ml/model", "root"):
                (self._folder / name).mkdir(parents=True)
            for name, uri in self._variant.model_data.items():
                modeldata.fetch(self._s3, uri, self._folder / "opt" / "ml" / name)
        except ServiceError as exc:
            raise StartError(str(exc)) from exc
        except (OSError, BotoCoreError, ClientError) as exc:
            raise StartError(f"The model data of {self._variant.name} did not get to {self._folder}: {exc}.") from exc

    def launch(self) -> None:
        """Start the container's program; `is_healthy()` tells when it serves."""
        variant = self._variant
        with self._lock:
            if self._stopping:
                raise StartError("The endpoint is being deleted.")
            try:
                self._container = Container(variant.program, variant.environment, self._folder, self._log)
            except OSError as exc:
                raise StartError(f"The container of {variant.name} could not be started: {exc}.") from exc
            self._deadline = time.monotonic() + variant.startup_timeout_s

    def is_healthy(self) -> bool:
        """Whether the container serves; takes a moment when it does not. Raises StartError when it never will."""
        container, variant = self._running(), self._variant
        if container.answers_ping():
            self.target = Target(variant.name, variant.weight, container.port, self._log.arn)
            return True
        if container.ended(_PING_INTERVAL_S):
            raise StartError(f"{self._not_healthy()} It ended with exit code {container.exit_code}.")
        if time.monotonic() > self._deadline:
            raise StartError(f"{self._not_healthy()} No answer within {variant.startup_timeout_s:.0f} seconds.")
        return False

    def wait_until_dead(self) -> bool:
        """True when the container died, False when it was stopped."""
        container = self._running()
        container.ended()
        self.target = None
        if self._stopping:
            return False
        self._log.write(f"The container ended with exit code {container.exit_code}; starting it again.\n".encode())
        return True

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
        self.target = None
        if self._container:
            self._container.stop()
        folders.remove(self._folder)

    def _running(self) -> Container:
        assert self._container is not None
        return self._container

    def _not_healthy(self) -> str:
        return (  # SageMaker's words
            f"The primary container for production variant {self._variant.name} did not pass the ping health check. "
            "Please check CloudWatch logs for this endpoint."
        )
