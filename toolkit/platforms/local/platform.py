"""The local platform to the stages: SageMaker's own code, talking to this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from botocore.exceptions import ConnectionClosedError, EndpointConnectionError

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.apply.waiter import EndpointStatus
from toolkit.endpoint.metrics import Metrics
from toolkit.endpoint.prometheus import metrics_of_pages
from toolkit.engines import registry as engine_registry
from toolkit.errors import PlatformError, Unavailable, UsageError
from toolkit.platforms.image import ON_THIS_MACHINE, spec_of
from toolkit.platforms.local import engine
from toolkit.platforms.local.clients import DaemonSession
from toolkit.platforms.local.daemon import LocalDaemon
from toolkit.platforms.local.rules import RULES
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.platform import SageMakerPlatform
from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules

if TYPE_CHECKING:
    from types_boto3_sagemaker.type_defs import ContainerDefinitionOutputTypeDef

# vLLM's shm_broadcast.py, busy_loop_s, and a little more.
_SPINNING_SECONDS = 1.2


@dataclass(frozen=True, kw_only=True)
class LocalPlatform(SageMakerPlatform):
    """AWS on this machine."""

    name: str = "local"
    rules: AwsRules = RULES
    poll_seconds: float = 0.5

    def status(self, endpoint: str) -> EndpointStatus:
        """One that takes no connection any more has ended, and all its endpoints with it."""
        try:
            return super().status(endpoint)
        except Unavailable as error:
            if not isinstance(error.__cause__, (EndpointConnectionError, ConnectionClosedError)):
                raise
            hint = "The local platform has ended: run the same command again, which starts it."
            raise PlatformError(error.message, hint=hint) from error

    def benchmark(self, endpoint: str, settings: object, progress: Progress, role: str = "") -> NoReturn:
        raise UsageError(f"AWS does not benchmark {endpoint}: it is on this machine", hint="Leave out --also.")

    def pause_between_arms(self, endpoint: str) -> float:
        """Arms share the machine, and a vLLM whose worker is a process of its own spins after a request."""
        sagemaker = self.clients.sagemaker
        with aws_errors(f"describing {endpoint}"):
            config = self._describe(endpoint)["EndpointConfigName"]
            variants = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
            models = [sagemaker.describe_model(ModelName=variant["ModelName"]) for variant in variants]
        return _SPINNING_SECONDS if any(_has_workers(model["PrimaryContainer"]) for model in models) else 0.0

    def energy(self) -> Callable[[], float | None] | None:
        """What reads the joules of this machine's GPUs; None where they do not tell."""
        return gpu_energy()

    def image_exists(self, request: Mapping[str, Any]) -> bool:
        return engine.holds(request["Image"])

    def build_image(self, request: Mapping[str, Any], progress: Progress) -> None:
        from toolkit.platforms.local.taking import take  # imports httpx

        take(spec_of(request), request["Image"], progress.update, progress.say)

    def with_digest(self, image: str) -> str:
        """The image itself: it is in no registry, and its tag says its content."""
        return image

    def scan(self, image: str) -> dict[str, int]:
        """There is none: it is ECR that scans."""
        hint = "Write `platform: {name: sagemaker}` to have the image pushed to ECR and scanned."
        raise UsageError(f"{image} is on this machine, where images are not scanned", hint=hint)

    def verify(self, image: str, key: object = None) -> dict[str, str]:
        raise _in_no_registry(image)

    def sign(self, image: str, key: object) -> None:
        raise _in_no_registry(image)

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        """What the engine itself counts; CloudWatch's stand-in is not fed. Raises EndpointNotFound or PlatformError."""
        import httpx  # takes a tenth of a second, which other commands need not spend

        self.status(endpoint)
        access = self.openai_access(endpoint)
        url = access.base_url.replace("/openai/v1", "/metrics")
        try:
            answer = httpx.get(url, headers={"Authorization": f"Bearer {access.token()}"}, trust_env=False)
            pages = documents.parse(list[str], answer.raise_for_status().content)
        except (httpx.HTTPError, documents.Unfit) as error:
            hint = f"Its log says whether it is well: toolkit logs {endpoint} --platform local"
            raise PlatformError(f"cannot read the metrics of {endpoint}: {error}", hint=hint) from error
        return metrics_of_pages(
            endpoint, minutes, {f"container {number}": page.encode() for number, page in enumerate(pages, 1)}
        )


def _in_no_registry(image: str) -> UsageError:
    hint = "Write `platform: {name: sagemaker}` to have the image pushed to ECR, with what it is made of."
    return UsageError(f"{image} is on this machine, and in no registry", hint=hint)


def _has_workers(container: ContainerDefinitionOutputTypeDef) -> bool:
    """Whether vLLM has a process for its worker: in an image, and where the recipe says on which cores it computes."""
    given = container.get("Environment", {})
    engines = map(engine_registry.engine_rules, engine_registry.engines())
    return container.get("Image", "").startswith(f"{ON_THIS_MACHINE.registry}/") or any(
        engine.cpu.binds_threads(given) for engine in engines if engine.cpu
    )


def local_platform(daemon: LocalDaemon) -> LocalPlatform:
    """The platform that a running daemon serves."""
    return LocalPlatform(clients=Clients(DaemonSession(daemon), attempts=2))


def gpu_energy() -> Callable[[], float | None] | None:
    """What reads the joules of all GPUs since their driver was loaded, None if they no longer answer.

    None without a GPU that counts them.

    Source: `nvmlDeviceGetTotalEnergyConsumption` of NVML, in millijoules, for Volta and newer.
    """
    try:
        import pynvml
    except ImportError:  # without the extra `bench`
        return None
    try:
        pynvml.nvmlInit()
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        for gpu in gpus:
            pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except pynvml.NVMLError:
        return None

    def read() -> float | None:
        try:
            millijoules: int = sum(map(pynvml.nvmlDeviceGetTotalEnergyConsumption, gpus))
        except pynvml.NVMLError:
            return None
        return millijoules / 1000

    return read if gpus else None
