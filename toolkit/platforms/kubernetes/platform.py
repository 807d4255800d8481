"""A Kubernetes cluster behind the small protocols that the stages see."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from kubernetes.client import ApiException

from toolkit.apply.progress import Progress
from toolkit.apply.training import TrainingJob
from toolkit.apply.waiter import EndpointStatus, LogLine
from toolkit.endpoint.access import OpenAIAccess
from toolkit.endpoint.metrics import Figure, Metrics
from toolkit.endpoint.platform import Found, SdkKind, any_name
from toolkit.errors import EndpointNotFound, PlatformError, UsageError
from toolkit.planning.plan import Action
from toolkit.planning.resources import Account, Observed, Resource
from toolkit.platforms.kubernetes import rollout, runtime
from toolkit.platforms.kubernetes.cluster import Cluster, SuppressStatus, is_ours, path
from toolkit.platforms.kubernetes.errors import api_errors, is_unknown, message_of
from toolkit.platforms.kubernetes.execute import Objects
from toolkit.platforms.kubernetes.lease import ClusterLease
from toolkit.platforms.kubernetes.listing import read_deployed
from toolkit.platforms.kubernetes.models import Heads, find_head, upload_head, upload_weights
from toolkit.platforms.kubernetes.observe import job_status, observe
from toolkit.platforms.kubernetes.rules.kinds import KINDS_BY_NAME, WEIGHTS
from toolkit.platforms.lease import lease, turn
from toolkit.recipe.content import digest
from toolkit.recipe.recipe import Recipe

# Sent where a client certificate lets us in: the OpenAI client wants some key.
_NO_TOKEN = "none"  # noqa: S105
_DIGEST_CHARACTERS = 16


@dataclass(frozen=True)
class KubernetesPlatform:
    """Endpoints in one namespace of a cluster. `poll_seconds` is the pause between two looks at an endpoint.

    `lists_all`: `endpoints` are those of all namespaces where we may look into all.
    """

    cluster: Cluster
    name: str = "kubernetes"
    lists_all: bool = False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    poll_seconds: float = 2.0
    upload: Callable[[Mapping[str, Any], Progress], None] = upload_weights

    def account(self, recipe: Recipe | None = None) -> Account:
        """No account and no region: only the `context/namespace`."""
        return Account("", "", scope=f"{self.cluster.context}/{self.cluster.namespace}")

    def observe(self, desired: Sequence[Resource], endpoints: Sequence[str]) -> Observed:
        with api_errors(f"reading existing resources in {self._scope}"):
            return observe(self.cluster, desired, endpoints)

    def execute(self, action: Action, progress: Progress) -> None:
        if action.kind == WEIGHTS.kind:
            with api_errors(str(action)), self._sending(action.request, progress):
                self.upload(action.request, progress)
            return
        if action.verb == "update" and KINDS_BY_NAME[action.kind].is_job:
            return  # it runs already
        with api_errors(str(action)):
            objects = Objects(self.cluster, self.clock, self.sleep, progress)
            if action.verb == "delete":
                objects.delete(action.kind, action.name)
                return
            objects.delete_autoscalers(action.kind, action.request)
            change = objects.replace if action.verb == "replace" else objects.put
            change(action.kind, action.request)

    @contextmanager
    def lease(self, endpoint: str) -> Iterator[Callable[[], None]]:
        store = ClusterLease(self.cluster, endpoint, self.clock, self.sleep)
        with ExitStack() as held:
            with api_errors(f"locking {endpoint} in {self._scope}"):
                confirm = held.enter_context(lease(endpoint, store, self.clock, self.sleep))
            confirm = api_errors(f"locking {endpoint} in {self._scope}")(confirm)
            with self.cluster.confirmed(confirm):
                yield confirm

    def _sending(self, request: Mapping[str, Any], progress: Progress) -> AbstractContextManager[None]:
        """Of several deployments that need the same model one sends it. The others wait, and find it there."""
        name = f"sending-{digest([request['Bucket'], request['Prefix']])[:_DIGEST_CHARACTERS]}"
        store = ClusterLease(self.cluster, name, self.clock, self.sleep)
        return turn(request["Prefix"], store, progress, partial(self.sleep, self.poll_seconds))

    def status(self, endpoint: str) -> EndpointStatus:
        with api_errors(f"looking at {endpoint}"):
            return rollout.status(self.cluster, self._deployment(endpoint))

    def logs(
        self,
        endpoint: str,
        since: float = 0.0,
        bookmarks: MutableMapping[str, str] | None = None,
        *,
        written_since: float = 0.0,
    ) -> Iterator[LogLine]:
        """Events of the pods are among the lines: `kubernetes: Pulled: …`."""
        with api_errors(f"reading the log of {endpoint}"):
            deployment = self._deployment(endpoint)
            yield from rollout.read_logs(self.cluster, deployment, since, {} if bookmarks is None else bookmarks)

    def last_logs(self, endpoint: str, count: int) -> list[LogLine]:
        """Of all lines, which are read one after the other: a kubelet keeps tens of MiB."""
        return list(deque(self.logs(endpoint), maxlen=count))

    def address(self, name: str) -> str:
        with api_errors(f"looking at {name}"):
            self._deployment(name)
        return name

    def exists_settled(self, endpoint: str, progress: Progress) -> bool:
        """Whether the endpoint exists. A cluster takes changes at any time."""
        try:
            self.address(endpoint)
        except EndpointNotFound:
            return False
        return True

    def endpoints(self, is_wanted: Callable[[str], bool] = any_name, details: bool | None = None) -> Found:
        with api_errors(f"listing the endpoints of {self.cluster.context}"):
            try:
                found = read_deployed(self.cluster, is_wanted, reads_all_logs=bool(details), everywhere=self.lists_all)
            except ApiException as error:
                if not self.lists_all or error.status != 403 or is_unknown(error):
                    raise
                message = f"{self.cluster.context}: you may list endpoints neither of all namespaces nor of"
                hint = "Name the recipe, which says its namespace, such as: toolkit status RECIPE"
                raise PlatformError(f"{message} {self.cluster.namespace}: {message_of(error)}", hint=hint) from error
            return Found(tuple(found))

    def training_job(self, name: str) -> TrainingJob:
        with api_errors(f"looking at Job {name}"):
            return job_status(self.cluster, self._job(name))

    def training_log(self, name: str, bookmarks: MutableMapping[str, str]) -> Iterator[LogLine]:
        """Events of the pods are among the lines, as in `logs`."""
        with api_errors(f"reading the log of Job {name}"):
            yield from rollout.read_logs(self.cluster, self._job(name), 0.0, bookmarks)

    def log_command(self, name: str) -> str:
        return f"kubectl logs -n {self.cluster.namespace} --tail=-1 -l batch.kubernetes.io/job-name={name}"

    def leave(self, name: str, progress: Progress) -> str:
        stop = f"kubectl delete job -n {self.cluster.namespace} {name}"
        return f"{name} goes on in the cluster. To stop it, with a checkpoint: {stop}"

    def fetch_head(self, job: Mapping[str, Any], folder: Path) -> None:
        with api_errors(f"reading the head of {job['metadata']['name']}"):
            self._heads.fetch(job, folder)

    def head_at(self, address: str) -> dict[str, str]:
        return find_head(address)

    def put_head(self, folder: Path, address: str, progress: Progress) -> None:
        upload_head(folder, address, progress)

    def publish_head(self, job: Mapping[str, Any], name: str, method: str) -> None:
        with api_errors(f"copying the head of {job['metadata']['name']}"):
            self._heads.place(job, name, method)

    def invoke(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return runtime.invoke(self.cluster, endpoint, body, self.sleep)

    def stream(self, endpoint: str, body: Mapping[str, Any]) -> Iterator[bytes]:
        return runtime.stream(self.cluster, endpoint, body, self.sleep)

    def openai_access(self, endpoint: str) -> OpenAIAccess:
        base = f"{self.cluster.url}{runtime.proxy(self.cluster, endpoint)}/v1"
        tls, proxy = self.cluster.tls(), self.cluster.proxy
        return OpenAIAccess(base, self._token, tls, runtime.on_openai_route, proxy)

    def metrics(self, endpoint: str, minutes: int) -> Metrics:
        with api_errors(f"reading the metrics of {endpoint}"):
            return runtime.read_metrics(self.cluster, self._deployment(endpoint), minutes)

    def publish(self, name: str, figures: Sequence[Figure]) -> str:
        hint = "Leave out --publish; --json prints them for a monitoring of yours."
        raise UsageError(f"the figures of {name} cannot be published from a cluster", hint=hint)

    def benchmark(self, endpoint: str, settings: object, progress: Progress, role: str = "") -> NoReturn:
        raise UsageError(f"AWS does not benchmark {endpoint}: it is on a cluster", hint="Leave out --also.")

    def sdk_object(self, endpoint: str, kind: SdkKind) -> NoReturn:
        hint = "Use `endpoint.openai()`, or the lines that `endpoint.connect_info()` prints."
        raise UsageError(f"{endpoint} is on a cluster, which the SageMaker SDK does not know", hint=hint)

    def pause_between_arms(self, endpoint: str) -> float:
        return 0.0

    def captured_traffic(self, endpoint: str) -> str | None:
        """None: nothing in a cluster captures requests."""
        return None

    def read_objects(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        hint = "Copy the files to this machine, and give their paths."
        raise UsageError(f"{prefix} cannot be read from a cluster", hint=hint)

    def with_digest(self, image: str) -> str:
        """The image as it is: a cluster builds none."""
        return image

    def scan(self, image: str) -> dict[str, int]:
        hint = "Scan it in its registry, such as ECR."
        raise UsageError(f"a cluster does not scan images, so there is no scan of {image}", hint=hint)

    def verify(self, image: str, key: object = None) -> dict[str, str]:
        hint = "Verify it as its maker says."
        raise UsageError(f"{image} was not built here, so nothing of ours lies beside it", hint=hint)

    def sign(self, image: str, key: object) -> None:
        raise UsageError(f"{image} was not built here", hint="Its maker signs it.")

    @property
    def _heads(self) -> Heads:
        return Heads(self.cluster, self.clock, self.sleep)

    @property
    def _scope(self) -> str:
        return f"namespace {self.cluster.namespace} of {self.cluster.context}"

    def _token(self) -> str:
        with api_errors("getting a token for the cluster"):
            return self.cluster.credentials().get("authorization", "").partition(" ")[2] or _NO_TOKEN

    def _deployment(self, endpoint: str) -> dict[str, Any]:
        """What makes its pods. While an endpoint goes from one node to several, or back, both are there until the one
        that was applied last serves: that one it is.
        """
        found = [self._ours("Deployment", endpoint)]
        with SuppressStatus(403):  # who may see Deployments alone has none of these
            found.append(self._ours("LeaderWorkerSet", endpoint))
        if there := list(filter(None, found)):
            return max(there, key=rollout.changed)
        hint = "See: toolkit status --platform kubernetes. Pass the recipe to select its namespace."
        raise EndpointNotFound(f"there is no endpoint {endpoint} in {self._scope}", hint=hint)

    def _job(self, name: str) -> dict[str, Any]:
        if job := self._ours("Job", name):
            return job
        hint = "It was removed. The same command starts it again, from its last checkpoint."
        raise PlatformError(f"there is no Job {name} in {self._scope}", hint=hint)

    def _ours(self, kind: str, name: str) -> dict[str, Any] | None:
        manifest = self.cluster.find(path(kind, self.cluster.namespace, name))
        return manifest if manifest and is_ours(manifest) else None
