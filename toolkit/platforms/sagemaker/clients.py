"""boto3 clients, made when first used: the first of a service costs a tenth of a second."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import IO, TYPE_CHECKING, Any, ClassVar

import boto3
import botocore.session
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.loaders import JSONFileLoader

from toolkit.errors import PlatformError
from toolkit.planning.resources import Account
from toolkit.platforms.lease import Fenced
from toolkit.platforms.sagemaker.answers import check_answers
from toolkit.platforms.sagemaker.rules.names import LEASES_PREFIX
from toolkit.version import __version__

if TYPE_CHECKING:
    from types_boto3_application_autoscaling import ApplicationAutoScalingClient
    from types_boto3_cloudwatch import CloudWatchClient
    from types_boto3_codebuild import CodeBuildClient
    from types_boto3_ecr import ECRClient
    from types_boto3_iam import IAMClient
    from types_boto3_logs import CloudWatchLogsClient
    from types_boto3_resourcegroupstaggingapi import ResourceGroupsTaggingAPIClient
    from types_boto3_s3 import S3Client
    from types_boto3_sagemaker import SageMakerClient
    from types_boto3_sagemaker_runtime import SageMakerRuntimeClient
    from types_boto3_secretsmanager import SecretsManagerClient
    from types_boto3_service_quotas import ServiceQuotasClient
    from types_boto3_sts import STSClient

# A model may think for a minute before it answers (SageMaker's own limit), and asking twice would generate twice:
# runtime.py decides what is sent again. A pool that is too small for a benchmark opens a connection per request.
_RUNTIME = Config(
    connect_timeout=5,
    read_timeout=70,
    retries={"total_max_attempts": 1},
    max_pool_connections=256,
    tcp_keepalive=True,
)

# Weights are sent with the SHA-256 of each part, which is signed: hashing them again for the signature adds nothing.
_UPLOADS = Config(max_pool_connections=32, s3={"payload_signing_enabled": False})

# AWS answers in tenths of a second, or there is no network.
_CONNECT_SECONDS = 3


# Operations that change nothing.
_READING = ("Describe", "List", "Get", "Head", "BatchGet", "BatchCheck")


class _ReadOnce(JSONFileLoader):
    load_file = cache(JSONFileLoader.load_file)


_DESCRIPTIONS = _ReadOnce()


def new_session(**options: Any) -> botocore.session.Session:
    """A session that shares with all others what botocore says of AWS's services.

    Each would parse it anew, and who looks every minute would hold megabytes for each look until they are collected.
    """
    session = botocore.session.Session(**options)
    session.get_component("data_loader").file_loader = _DESCRIPTIONS
    return session


def open_client(session: boto3.Session, service: str, config: Config | None = None) -> Any:
    """A client of that service. Raises PlatformError where the user's configuration cannot be used."""
    try:
        return session.client(service, config=config)  # type: ignore[call-overload]
    except BotoCoreError:
        raise
    except ValueError as error:  # of $AWS_ENDPOINT_URL without `https://`, or $AWS_MAX_ATTEMPTS that is no number
        hint = "Correct it in the variables AWS_…, or in the profile: aws configure list shows which is used."
        raise PlatformError(f"AWS cannot be asked as it is configured here: {error}", hint=hint) from error


def _open(service: str) -> Any:
    """A client of Clients, made when it is first used."""
    return cached_property(lambda clients: clients._client(service, clients._config))


@dataclass(frozen=True)
class Clients(Fenced):
    """Clients of one session. `attempts` is how often a throttled or lost call to the control plane is made in all.

    `bucket` is one of the user's own that takes the place of the toolkit's.
    """

    session: boto3.Session
    attempts: int = 10
    bucket: str = ""

    sagemaker: ClassVar[cached_property[SageMakerClient]] = _open("sagemaker")
    s3: ClassVar[cached_property[S3Client]] = _open("s3")
    iam: ClassVar[cached_property[IAMClient]] = _open("iam")
    sts: ClassVar[cached_property[STSClient]] = _open("sts")
    logs: ClassVar[cached_property[CloudWatchLogsClient]] = _open("logs")
    cloudwatch: ClassVar[cached_property[CloudWatchClient]] = _open("cloudwatch")
    application_autoscaling: ClassVar[cached_property[ApplicationAutoScalingClient]] = _open("application-autoscaling")
    service_quotas: ClassVar[cached_property[ServiceQuotasClient]] = _open("service-quotas")
    ecr: ClassVar[cached_property[ECRClient]] = _open("ecr")
    codebuild: ClassVar[cached_property[CodeBuildClient]] = _open("codebuild")
    secretsmanager: ClassVar[cached_property[SecretsManagerClient]] = _open("secretsmanager")
    tagging: ClassVar[cached_property[ResourceGroupsTaggingAPIClient]] = _open("resourcegroupstaggingapi")
    ec2: ClassVar[cached_property[Any]] = _open("ec2")  # not typed: its stubs are larger than all others together

    @property
    def refusal(self) -> type[ClientError]:
        """What every client raises when AWS refuses."""
        return ClientError

    @cached_property
    def account_id(self) -> str:
        """Number of the account, asked for once."""
        return self.sts.get_caller_identity()["Account"]

    @cached_property
    def runtime(self) -> SageMakerRuntimeClient:
        client: SageMakerRuntimeClient = self._client("sagemaker-runtime", self._config.merge(_RUNTIME))
        return client

    @cached_property
    def uploads(self) -> S3Client:
        """S3 for the parts of large files, which carry their own checksums, by many threads."""
        client: S3Client = self._client("s3", self._config.merge(_UPLOADS))
        return client

    def upload(self, stream: IO[bytes], bucket: str, key: str, whole_below: int, part: int) -> None:
        """Send a stream to S3 with SHA-256 checksums: in one piece below `whole_below` bytes, else in parts."""
        # The classic client: that of AWS's common runtime chooses parts of its own.
        parts = TransferConfig(whole_below, multipart_chunksize=part, preferred_transfer_client="classic")
        self.s3.upload_fileobj(stream, bucket, key, {"ChecksumAlgorithm": "SHA256"}, Config=parts)

    @property
    def account(self) -> Account:
        """The account and region."""
        return Account(self.account_id, self.session.region_name, bucket=self.bucket)

    def _client(self, service: str, config: Config) -> Any:
        client = open_client(self._session, service, config)
        client.meta.events.register("before-send", self._before_send)
        return client

    def _before_send(self, event_name: str, request: Any, **_: object) -> None:
        """The requests that hold the lease are conditions themselves."""
        is_read = event_name.rpartition(".")[2].startswith(_READING)
        if not is_read and f"/{LEASES_PREFIX}" not in request.url:
            self.confirm()

    @cached_property
    def _session(self) -> boto3.Session:
        return check_answers(self.session)

    @cached_property
    def _config(self) -> Config:
        return Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=60,
            retries={"mode": "standard", "total_max_attempts": self.attempts},
            user_agent_extra=f"toolkit/{__version__}",
        )
