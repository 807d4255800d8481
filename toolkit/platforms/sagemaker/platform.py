"""SageMaker behind the small protocols that the stages see."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from toolkit.apply.progress import Progress
from toolkit.apply.training import TrainingJob
from toolkit.apply.waiter import EndpointStatus, LogLine, wait_deleted, wait_settled
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.metrics import Figure, Metrics
from toolkit.endpoint.platform import Found, SdkKind, any_name
from toolkit.engines.arguments import builds
from toolkit.errors import EndpointFailed, EndpointNotFound, PlatformError, UsageError
from toolkit.planning.plan import Action
from toolkit.planning.resources import UNDER_WAY, Account, Observed, Resource
from toolkit.platforms.elsewhere import open_files
from toolkit.platforms.image import base_image
from toolkit.platforms.lease import lease, turn
from toolkit.platforms.sagemaker import execute, images, objects, observe, runtime
from toolkit.platforms.sagemaker.aws_errors import is_missing
from toolkit.platforms.sagemaker.clients import Clients
from toolkit.platforms.sagemaker.errors import aws_errors
from toolkit.platforms.sagemaker.images import image_digest, scan_findings
from toolkit.platforms.sagemaker.jumpstart import read_jumpstart
from toolkit.platforms.sagemaker.keys import aws
from toolkit.platforms.sagemaker.kinds.base import Look, Work
from toolkit.platforms.sagemaker.kinds.bucket import bucket, make_bucket
from toolkit.platforms.sagemaker.kinds.image import image_uris
from toolkit.platforms.sagemaker.kinds.inference_component import models_of
from toolkit.platforms.sagemaker.listing import DETAILED_SECONDS, SECONDS, Pace, list_endpoints
from toolkit.platforms.sagemaker.metrics import publish, read_metrics
from toolkit.platforms.sagemaker.objects import BucketLease, read_objects
from toolkit.platforms.sagemaker.observe import endpoint_status
from toolkit.platforms.sagemaker.role import STUDIO_METADATA, FoundRole, find_role
from toolkit.platforms.sagemaker.rules import RULES
from toolkit.platforms.sagemaker.rules.aws_rules import AwsRules
from toolkit.platforms.sagemaker.rules.checks.account import NO_ROLE, NO_ROLE_HINT
from toolkit.platforms.sagemaker.rules.in_account import is_in_aws
from toolkit.platforms.sagemaker.rules.jumpstart import Entries, ids, with_jumpstart_defaults
from toolkit.platforms.sagemaker.rules.metrics import TRAINING_LOG_GROUP, log_groups
from toolkit.platforms.sagemaker.rules.names import BUCKET_VARIABLE, on_aws, sender_lease
from toolkit.platforms.sagemaker.runtime import openai_access
from toolkit.recipe.lock import OpenFiles
from toolkit.recipe.recipe import Recipe
from toolkit.text import without_colours

if TYPE_CHECKING:
    from types_boto3_logs.type_defs import OutputLogEventTypeDef
    from types_boto3_sagemaker.type_defs import DescribeEndpointOutputTypeDef, DescribeInferenceComponentOutputTypeDef

    from toolkit.images.signing import PublicKey, SigningKey  # imports what only the extra `sign` has

_DELETE_TIMEOUT_SECONDS = 600.0
_READINGS = 3
# CloudWatch Logs counts in whole milliseconds, SageMaker in finer ones.
_LOG_CLOCK_SECONDS = 0.001
# As long as an endpoint may take to come up.
_SETTLE_TIMEOUT_SECONDS = 7200.0


@dataclass(frozen=True)
class SageMakerPlatform:
    """Real-time endpoints of one account and region. `poll_seconds` is the pause between two looks at an endpoint,
    and before AWS is asked again for what it did not know yet."""

    clients: Clients
    name: str = "sagemaker"
    rules: AwsRules = RULES
    open_files: OpenFiles = open_files
    sleep: Callable[[float], None] = time.sleep
    poll_seconds: float = 5.0
    studio_metadata: Path = STUDIO_METADATA
    is_in_aws: Callable[[], bool] = is_in_aws
    fresh_roles: execute.FreshRoles = field(default_factory=execute.FreshRoles)

    def account(self, recipe: Recipe | None = None) -> Account:
        with aws_errors("reading the AWS identity"):
            account = self.clients.account
        if recipe is None or not on_aws(recipe):
            return account
        account = replace(account, jumpstart=self.jumpstart_entries(recipe))
        recipe = with_jumpstart_defaults(recipe, account.jumpstart)
        uris = [base_image(recipe, account)] if builds(recipe) else sorted(image_uris(recipe, account))
        digests = images.digests(self.clients, uris)
        role = self._role(recipe)
        arn, source = (role.arn, role.source) if role else (None, "")
        far = not self.is_in_aws()
        return replace(account, role=arn, role_source=source, digests=digests, is_far=far)

    def jumpstart_entries(self, recipe: Recipe) -> Entries:
        return {name: read_jumpstart(self.clients, name) for name in ids(recipe)}

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        with aws_errors("reading existing resources"):
            for _ in range(_READINGS - 1):
                try:
                    return self._observe(desired, endpoints)
                except ClientError as error:  # somebody removed it after it was listed
                    if not is_missing(error):
                        raise
            return self._observe(desired, endpoints)

    def _observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        look = Look(self.clients, self.account(), desired, endpoints, self.image_exists, self.base_bytes)
        return observe.observe(look, self.rules.kinds)

    def image_exists(self, request: Mapping[str, Any]) -> bool:
        return image_digest(self.clients, request["Repository"], request["Tag"]) is not None

    def base_bytes(self, image: str) -> int | None:
        return images.layer_bytes(self.clients, image)

    def build_image(self, request: Mapping[str, Any], progress: Progress) -> None:
        from toolkit.platforms.sagemaker.build import build_image

        build_image(self.clients, request, progress)

    def _stage_in_account(self, request: Mapping[str, Any], progress: Progress) -> None:
        from toolkit.platforms.sagemaker.staging_job import stage_in_account

        stage_in_account(self.clients, request, progress, self.sleep)

    def with_digest(self, image: str) -> str:
        with aws_errors(f"looking at {image}"):
            return f"{image}@{image_digest(self.clients, *_repository_and_tag(image))}"

    def scan(self, image: str) -> dict[str, int]:
        return scan_findings(self.clients, *_repository_and_tag(image))

    def verify(self, image: str, key: PublicKey | None = None) -> dict[str, str]:
        from toolkit.platforms.sagemaker.build import verify_image

        with aws_errors(f"verifying {image}"):
            return verify_image(self.clients, *_repository_and_tag(image), key)

    def sign(self, image: str, key: SigningKey) -> None:
        from toolkit.platforms.sagemaker.build import sign_image

        with aws_errors(f"signing {image}"):
            sign_image(self.clients, *_repository_and_tag(image), key)

    def endpoints(self, is_wanted: Callable[[str], bool] = any_name, details: bool | None = None) -> Found:
        pace = Pace(DETAILED_SECONDS if details else SECONDS)
        with aws_errors("listing endpoints"):
            return list_endpoints(self.clients, self.name, is_wanted, details, pace)

    @contextmanager
    def lease(self, endpoint: str) -> Iterator[Callable[[], None]]:
        """The lease lies in the toolkit's bucket, which is made when it is not there."""
        account = self.account()
        request = bucket(account).request
        store = BucketLease(self.clients, request["Bucket"], endpoint)
        with ExitStack() as held:
            with aws_errors(f"locking {endpoint}"):
                try:
                    confirm = held.enter_context(lease(endpoint, store))
                except self.clients.s3.exceptions.NoSuchBucket as error:
                    if account.bucket:
                        raise _no_such_bucket(account) from error
                    make_bucket(self.clients, request, account, partial(self.sleep, self.poll_seconds))
                    confirm = held.enter_context(lease(endpoint, store))
            confirm = aws_errors(f"locking {endpoint}")(confirm)
            with self.clients.confirmed(confirm):
                yield confirm

    def exists_settled(self, endpoint: str, progress: Progress) -> bool:
        """AWS takes no changes while another one is under way."""
        return wait_settled(self, endpoint, _SETTLE_TIMEOUT_SECONDS, progress)

    def _role(self, recipe: Recipe) -> FoundRole | None:
        """The execution role, None when the recipe asks for one to be made."""
        if aws(recipe).role == "create":
            return None
        written, metadata = aws(recipe).role, self.studio_metadata
        role = find_role(self.clients, written=written, environ=os.environ, studio_metadata=metadata)
        if role is None:
            raise UsageError(NO_ROLE, hint=NO_ROLE_HINT)
        return role

    def execute(self, action: Action, progress: Progress) -> None:
        kind = next(kind for kind in self.rules.kinds if kind.kind == action.kind)
        pause = partial(self.sleep, self.poll_seconds)
        sending = partial(self._sending, progress)
        work = Work(self.clients, progress, self.open_files, self.build_image, sending, self._stage_in_account)
        with aws_errors(str(action)):
            if action.verb != "create":
                self._wait_settled(action, progress)
            if action.verb in ("delete", "replace"):
                execute.delete(kind, self.clients, action, self.sleep)
                if action.kind == "Endpoint":
                    wait_deleted(self, action.name, _DELETE_TIMEOUT_SECONDS)
                self._wait_settled(action, progress)
            if action.verb in ("create", "replace"):
                execute.create(kind, work, action, pause, self.fresh_roles)
            elif action.verb == "update":
                execute.update(kind, work, action, pause, self.fresh_roles)
            self.fresh_roles.note(action)
            if action.kind == "InferenceComponent" and action.verb != "delete":
                self._wait_component(action, progress)

    @contextmanager
    def _sending(self, progress: Progress, bucket: str, prefix: str) -> Iterator[None]:
        """The turn to send; a job that was left running has its own turn before."""
        from toolkit.platforms.sagemaker.staging_job import follow_jobs

        pause = partial(self.sleep, self.poll_seconds)
        with turn(prefix, BucketLease(self.clients, bucket, sender_lease(prefix)), progress, pause):
            follow_jobs(self.clients, bucket, prefix, progress, self.sleep)
            yield

    def _wait_settled(self, action: Action, progress: Progress) -> None:
        """Return when AWS takes a change of the endpoint or the inference component, or it is gone."""
        address = action.name
        if action.kind == "InferenceComponent":
            try:
                address = f"{self._describe_component(action.name)['EndpointName']}/{action.name}"
            except EndpointNotFound:
                return
        if action.kind in ("Endpoint", "InferenceComponent"):
            wait_settled(self, address, _SETTLE_TIMEOUT_SECONDS, progress)

    def _wait_component(self, action: Action, progress: Progress) -> None:
        """Return when the inference component is in service with its model. Raises EndpointFailed or WaitTimeout."""
        self._wait_settled(action, progress)
        described = self._describe_component(action.name)
        in_service = described["InferenceComponentStatus"] == "InService"
        if not in_service or models_of(described) != models_of(action.request):
            ended = "was rolled back" if in_service else "failed"
            why = described.get("FailureReason") or "no reason was given"
            hint = f"The container's log: toolkit logs {action.name}"
            raise EndpointFailed(f"{action.name} {ended}: {why}", hint=hint)

    def status(self, endpoint: str) -> EndpointStatus:
        """Of `endpoint/component` the component's, once the endpoint is in service."""
        name, _, component = endpoint.partition("/")
        answer = self._describe(name)
        config, status = answer["EndpointConfigName"], answer["EndpointStatus"]
        if not component or status != "InService":
            return endpoint_status(endpoint, status, config, answer.get("FailureReason", ""), _began(answer))
        described = self._describe_component(component)
        status = described["InferenceComponentStatus"]
        return endpoint_status(endpoint, status, config, described.get("FailureReason", ""))

    def address(self, name: str) -> str:
        try:
            self._describe(name)
        except EndpointNotFound:
            return f"{self._describe_component(name)['EndpointName']}/{name}"
        with aws_errors(f"listing the components of {name}"):
            # Two are enough to know that there is more than one.
            listed = self.clients.sagemaker.list_inference_components(EndpointNameEquals=name, MaxResults=2)
        components = listed["InferenceComponents"]
        return f"{name}/{components[0]['InferenceComponentName']}" if len(components) == 1 else name

    def logs(
        self,
        endpoint: str,
        since: float = 0.0,
        bookmarks: MutableMapping[str, str] | None = None,
        *,
        written_since: float = 0.0,
    ) -> Iterator[LogLine]:
        """Follows every page to the last one: the error stands there."""
        with aws_errors(f"reading the log of {endpoint}"):
            group, streams = self._log_streams(endpoint, since)
            for stream in streams:
                yield from self._lines(group, stream, {} if bookmarks is None else bookmarks, written_since)

    def last_logs(self, endpoint: str, count: int) -> list[LogLine]:
        lines: deque[LogLine] = deque()
        with aws_errors(f"reading the log of {endpoint}"):
            group, streams = self._log_streams(endpoint)
            for stream in reversed(streams):
                for event in observe.last_events(self.clients, group, stream, count - len(lines)):
                    lines.appendleft(_log_line(stream, event))
        return list(lines)

    def _log_streams(self, endpoint: str, since: float = 0.0) -> tuple[str, list[str]]:
        """The log group, and its streams since then, or else since the endpoint was created, the newest last."""
        name, _, component = endpoint.partition("/")
        # What an operation on the endpoint has begun is later than the endpoint itself.
        began = since or self._describe(name)["CreationTime"].timestamp()
        group = log_groups(component)[1] if component else log_groups(name)[0]
        return group, observe.log_streams(self.clients, group, began - _LOG_CLOCK_SECONDS)

    def training_job(self, name: str) -> TrainingJob:
        with aws_errors(f"describing {name}"):
            return observe.training_status(self.clients, name)

    def training_log(self, name: str, bookmarks: MutableMapping[str, str]) -> Iterator[LogLine]:
        with aws_errors(f"reading the log of {name}"):
            for stream in observe.training_streams(self.clients, TRAINING_LOG_GROUP, name):
                yield from self._lines(TRAINING_LOG_GROUP, stream, bookmarks)

    def log_command(self, name: str) -> str:
        return f"aws logs tail {TRAINING_LOG_GROUP} --since 1d --log-stream-name-prefix {name}/"

    def leave(self, name: str, progress: Progress) -> str:
        stop = f"aws sagemaker stop-training-job --training-job-name {name}"
        return f"{name} goes on, and bills. To stop it: {stop}"

    def fetch_head(self, job: Mapping[str, Any], folder: Path) -> None:
        with aws_errors(f"reading the head of {job['TrainingJobName']}"):
            objects.fetch_head(self.clients, job, folder)

    def head_at(self, address: str) -> dict[str, str]:
        with aws_errors(f"looking for a head in {address}"):
            return objects.head_at(self.clients, address)

    def put_head(self, folder: Path, address: str, progress: Progress) -> None:
        with aws_errors(f"copying the head to {address}"):
            objects.put_head(self.clients, folder, address, progress)

    def publish_head(self, job: Mapping[str, Any], name: str, method: str) -> None:
        """Nothing to do: a deployment reads the folder of the head."""

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return runtime.invoke(self.clients.runtime, endpoint, body, self.sleep)

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        return runtime.stream(self.clients.runtime, endpoint, body, self.sleep)

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        return openai_access(self.clients, endpoint)

    def publish(self, name: str, figures: Sequence[Figure]) -> str:
        return publish(self.clients, name, figures)

    def pause_between_arms(self, endpoint: str) -> float:
        return 0.0

    def benchmark(self, endpoint: str, settings: Mapping[str, Any] | None, progress: Progress, role: str = "") -> Any:
        from toolkit.platforms.sagemaker.benchmark_job import BenchmarkJob

        with _found(endpoint):
            job = BenchmarkJob(self.clients, endpoint, role, partial(self.sleep, self.poll_seconds))
            return job.run(settings, progress) if settings else None

    def captured_traffic(self, endpoint: str) -> str | None:
        """SageMaker writes to `<destination>/<endpoint>/<variant>/<year>/…` (guide, model-monitor-data-capture)."""
        settings = self._describe(endpoint).get("DataCaptureConfig")
        if settings is None or not settings["EnableCapture"]:
            return None
        return f"{settings['DestinationS3Uri'].rstrip('/')}/{endpoint}/"

    def read_objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        return read_objects(self.clients, prefix)

    def sdk_object(self, endpoint: str, kind: SdkKind) -> Any:
        from toolkit.platforms.sagemaker.sdk import sdk_object

        with _found(endpoint):
            return sdk_object(self.clients, endpoint, kind)

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        variants = self._describe(endpoint.partition("/")[0]).get("ProductionVariants", [])
        return read_metrics(self.clients, endpoint, [variant["VariantName"] for variant in variants], minutes)

    def _describe(self, endpoint: str) -> DescribeEndpointOutputTypeDef:
        with _found(endpoint):
            return self.clients.sagemaker.describe_endpoint(EndpointName=endpoint)

    def _describe_component(self, name: str) -> DescribeInferenceComponentOutputTypeDef:
        with _found(name):
            return self.clients.sagemaker.describe_inference_component(InferenceComponentName=name)

    def _lines(
        self, group: str, stream: str, bookmarks: MutableMapping[str, str], written_since: float = 0.0
    ) -> Iterator[LogLine]:
        """Lines of a stream from its bookmark on, which is moved behind each page when its lines were taken."""
        for page in observe.log_pages(self.clients, group, stream, bookmarks.get(stream), written_since):
            for event in page["events"]:
                yield _log_line(stream, event)
            bookmarks[stream] = page["nextForwardToken"]


def _no_such_bucket(account: Account) -> PlatformError:
    command = f"aws s3 mb s3://{account.bucket} --region {account.region}"
    return PlatformError(
        f"there is no bucket {account.bucket}, which ${BUCKET_VARIABLE} names, and the toolkit makes only its own",
        hint=f"Create it: {command}. Or unset ${BUCKET_VARIABLE}.",
    )


def _log_line(stream: str, event: OutputLogEventTypeDef) -> LogLine:
    return LogLine(stream, event["timestamp"] / 1000, without_colours(event["message"]))


def _repository_and_tag(image: str) -> tuple[str, str]:
    """Repository and tag of an address in ECR."""
    repository, _, tag = image.partition("/")[2].partition(":")
    return repository, tag


@contextmanager
def _found(name: str) -> Iterator[None]:
    """Raise EndpointNotFound where AWS says that it is not there."""
    with aws_errors(f"describing {name}"):
        try:
            yield
        except ClientError as error:
            if is_missing(error):
                raise EndpointNotFound(f"there is no endpoint {name}", hint="See: toolkit status") from error
            raise


def _began(answer: DescribeEndpointOutputTypeDef) -> float:
    """When what is under way began; 0 when nothing is. Weights and counts change without a PendingDeploymentSummary."""
    if answer["EndpointStatus"] not in UNDER_WAY:
        return 0.0
    pending = answer.get("PendingDeploymentSummary", {})
    began = pending.get("StartTime", answer["LastModifiedTime"])
    return began.timestamp()
