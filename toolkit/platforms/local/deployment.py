"""The containers of an endpoint, one for each variant: started, kept alive, ended."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from toolkit.platforms.local import folders, modeldata
from toolkit.platforms.local.aws import ServiceError
from toolkit.platforms.local.command import Starter
from toolkit.platforms.local.container import Container, LogStream
from toolkit.platforms.local.host import EndpointSpec, Placement, StartQueue, Target, Variant, Watcher
from toolkit.platforms.local.spare import Spares

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_PING_INTERVAL_S = 0.2
_DRAIN_INTERVAL_S = 0.05
_DRAIN_S = 480.0  # as long as SageMaker lets a streamed answer take


@dataclass(frozen=True)
class HealthChecks:
    """How a container in service is watched: by a /ping after every `interval_s` seconds.

    After so many `failures` in a row (no 200 within two seconds) it gets no more requests and is started again. AWS
    publishes the two seconds only. Half a minute is long enough for a server that is just very busy.
    """

    interval_s: float = 5.0
    failures: int = 6


@dataclass(frozen=True)
class Model:
    """What a container runs. `data` is the S3 prefix by folder below /opt/ml."""

    starter: Starter
    data: Mapping[str, str]
    startup_timeout_s: float
    grace_s: float = 10.0
    """Between SIGTERM and SIGKILL."""
    spares: Spares | None = None


class StartError(Exception):
    """A container did not become healthy; the text is a FailureReason."""


class ContainerDeployment:
    """All containers that serve one endpoint configuration, one for each variant."""

    def __init__(
        self,
        spec: EndpointSpec,
        models: Mapping[str, Model],
        folder: Path,
        s3: S3Client,
        checks: HealthChecks = HealthChecks(),
        queue: StartQueue | None = None,
    ) -> None:
        self._folder = folder
        self._queue = queue or StartQueue(1)
        self._checks = checks
        self._instances = [
            _Instance(spec.endpoint, variant, models[variant.name], folder / variant.name, s3)
            for variant in spec.variants
        ]

    def start(self, watcher: Watcher) -> None:
        threading.Thread(target=self._start, args=(watcher, self._queue.enter()), daemon=True).start()

    def rescale(self, spec: EndpointSpec, watcher: Watcher) -> None:
        """The number of instances stays what it is, one."""
        weights = {variant.name: variant.weight for variant in spec.variants}
        for instance in self._instances:
            instance.weigh(weights[instance.variant.name])
        watcher.healthy()

    def retire(self, ended: Callable[[], None]) -> None:
        """A request that takes longer than any may is not waited for."""
        threading.Thread(target=self._retire, args=(ended,), daemon=True).start()

    def stop(self, ended: Callable[[], None]) -> None:
        threading.Thread(target=self._stop, args=(ended,), daemon=True).start()

    def targets(self) -> list[Target]:
        return [instance.target for instance in self._instances if instance.target]

    def placement(self, variant: Variant) -> Placement:
        """Its first choice: here every type is there."""
        return variant.placements[0]

    def _start(self, watcher: Watcher, place: object) -> None:
        try:
            self._start_all(place)
        except StartError as exc:
            watcher.failing(str(exc))
            self._end()
            watcher.failed(str(exc))
            return
        watcher.healthy()
        for instance in self._instances:
            threading.Thread(target=self._keep_alive, args=(instance, watcher), daemon=True).start()

    def _start_all(self, place: object) -> None:
        """Start the containers when it is their turn; returns when all are healthy."""
        try:
            for instance in self._instances:
                instance.prepare()
            self._queue.wait(place, self._instances[0].say_queued)
            for instance in self._instances:
                instance.launch()
            waiting = self._instances
            while waiting:
                waiting = [instance for instance in waiting if not instance.is_healthy()]
        finally:
            self._queue.leave(place)

    def _keep_alive(self, instance: _Instance, watcher: Watcher) -> None:
        """Start a container again when it dies or is stuck, as SageMaker does, until it does not become healthy."""
        try:
            while instance.wait_until_dead(self._checks):
                instance.launch()
                while not instance.is_healthy():
                    pass
        except StartError as exc:
            watcher.failed(f"{exc} It had been in service before.")
            self._end()

    def _retire(self, ended: Callable[[], None]) -> None:
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            time.sleep(_DRAIN_INTERVAL_S)
            if not any(target.requests for target in self.targets()):
                break
        self._stop(ended)

    def _stop(self, ended: Callable[[], None]) -> None:
        self._end()
        ended()

    def _end(self) -> None:
        stopping = [threading.Thread(target=instance.stop) for instance in self._instances]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(OSError):  # other generations of this endpoint may still be there
            self._folder.parent.rmdir()


class _Instance:
    def __init__(self, endpoint: str, variant: Variant, model: Model, folder: Path, s3: S3Client) -> None:
        self.variant = variant
        self.target: Target | None = None
        self._model = model
        self._weight = variant.weight
        self._folder = folder
        self._s3 = s3
        self._log = LogStream(endpoint, f"{variant.name}/i-{uuid.uuid4().hex[:17]}", folder.parents[2])
        self._lock = threading.Lock()
        self._container: Container | None = None
        self._deadline = 0.0
        self._stopping = False

    def prepare(self) -> None:
        """Bring the model data to where the container sees /opt/ml."""
        try:
            for name in ("opt/ml/model", "root"):
                (self._folder / name).mkdir(parents=True)
            for name, uri in self._model.data.items():
                modeldata.fetch(self._s3, uri, self._folder / "opt" / "ml" / name)
        except ServiceError as exc:
            raise StartError(str(exc)) from exc
        except (OSError, BotoCoreError, ClientError) as exc:
            raise StartError(f"The model data of {self.variant.name} did not get to {self._folder}: {exc}.") from exc

    def say_queued(self) -> None:
        """Say in the log why nothing happens yet; causes.json of this platform knows the words."""
        self._log.write(b"local: waiting until another container has started: this machine has few cores\n")

    def launch(self) -> None:
        """Start the container; `is_healthy()` tells when it serves."""
        model = self._model
        with self._lock:
            if self._stopping:
                raise StartError("The endpoint is being deleted.")
            try:
                self._container = Container(model.starter, self._folder, self._log, model.grace_s, model.spares)
            except OSError as exc:
                raise StartError(f"The container of {self.variant.name} could not be started: {exc}.") from exc
            self._deadline = time.monotonic() + model.startup_timeout_s

    def is_healthy(self) -> bool:
        """Whether the container serves; takes a moment when it does not. Raises StartError when it never will."""
        container = self._running()
        if container.answers_ping():
            if spares := self._model.spares:
                spares.pattern = container.pattern
            name, is_shadow = self.variant.name, self.variant.is_shadow
            self.target = Target(name, self._weight, container.address, self._log.arn, is_shadow)
            return True
        if container.ended(_PING_INTERVAL_S):
            raise StartError(f"{self._not_healthy()} It ended with exit code {container.exit_code}.")
        if time.monotonic() > self._deadline:
            raise StartError(f"{self._not_healthy()} No answer within {self._model.startup_timeout_s:.0f} seconds.")
        return False

    def wait_until_dead(self, checks: HealthChecks) -> bool:
        """True when the container died, or was ended because it is stuck; False when the endpoint ends it."""
        container = self._running()
        failures = 0
        while failures < checks.failures and not container.ended(checks.interval_s):
            failures = 0 if container.answers_ping() else failures + 1
        self.target = None
        if self._stopping:
            return False
        if container.ended(0):
            why = f"The container ended with exit code {container.exit_code}"
        else:
            why = f"The container did not pass {failures} ping health checks in a row"
            container.stop()
        self._log.write(f"{why}; starting it again.\n".encode())
        return True

    def weigh(self, weight: float) -> None:
        self._weight = weight
        if target := self.target:
            target.weight = weight

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
            f"The primary container for production variant {self.variant.name} did not pass the ping health check. "
            "Please check CloudWatch logs for this endpoint."
        )
