"""Models on their way: weights to the bucket that pods mount, heads from the claim where Jobs have trained them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit import documents
from toolkit.apply.progress import Progress
from toolkit.errors import PlatformError, WaitTimeout
from toolkit.platforms.kubernetes.cluster import Cluster, path
from toolkit.platforms.kubernetes.execute import Objects
from toolkit.platforms.kubernetes.pods import Document, is_ready, trouble_of
from toolkit.platforms.kubernetes.rollout import readable_events
from toolkit.platforms.kubernetes.rules.security import PORT
from toolkit.platforms.kubernetes.rules.train_job import placing_pod, reading_pod
from toolkit.recipe.training_schema import TRAINED_METHODS

if TYPE_CHECKING:
    from boto3 import Session

    from toolkit.platforms.sagemaker.clients import Clients

_NOT_SEEN = "403"
_START_SECONDS = 900.0
_PAUSE_SECONDS = 1.0
_LISTING = documents.Limits(size=1024**2, seconds=60.0)
# A file of a head as http.server lists it: no folder, and nothing that leads out of one.
_FILE = re.compile(r'<a href="([A-Za-z0-9][\w.-]*)">')
_PIECE_BYTES = 1024**2


def upload_weights(request: Mapping[str, Any], progress: Progress, session: Session | None = None) -> None:
    """Send what the bucket lacks of a local folder, or of a repository on the hub. Raises PlatformError."""
    from toolkit.platforms.elsewhere import open_files
    from toolkit.platforms.sagemaker.staging import stage_weights

    bucket = request["Bucket"]
    with _own_bucket(bucket, f"uploading to s3://{bucket}/{request['Prefix']}", session) as clients:
        stage_weights(clients, request, progress, open_files)


def upload_head(folder: Path, address: str, progress: Progress) -> None:
    """Send a head to `s3://bucket/prefix/`, in a bucket of the user's own account. Raises PlatformError, UsageError."""
    from toolkit.platforms.sagemaker import objects

    bucket = address.removeprefix("s3://").partition("/")[0]
    with _own_bucket(bucket, f"copying the head to {address}") as clients:
        objects.put_head(clients, folder, address, progress)


def find_head(address: str) -> dict[str, str]:
    """The files of `s3://bucket/prefix/`, as `upload_head` would put them there. Raises PlatformError, UsageError."""
    from toolkit.platforms.sagemaker import objects

    bucket = address.removeprefix("s3://").partition("/")[0]
    with _own_bucket(bucket, f"looking for a head in {address}") as clients:
        return objects.head_at(clients, address)


@contextmanager
def _own_bucket(bucket: str, doing: str, session: Session | None = None) -> Iterator[Clients]:
    """Only to a bucket of the user's own account: a recipe from elsewhere must not send files to its author."""
    import boto3  # a quarter of a second, which only uploads are worth

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.errors import aws_errors

    with aws_errors(doing):
        clients = Clients(session or boto3.Session())
        try:
            clients.s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=clients.account_id)
        except clients.refusal as error:
            if error.response["Error"]["Code"] != _NOT_SEEN:
                raise
            hint = "Upload the model by other means, and write its address as the recipe's model: s3://bucket/prefix/."
            raise PlatformError(f"the bucket {bucket} is not one of account {clients.account_id}", hint=hint) from error
        yield clients


@dataclass(frozen=True)
class Heads:
    """Heads in the claims of a namespace, each handed over by a pod of its own, which is deleted again."""

    cluster: Cluster
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def fetch(self, job: Mapping[str, Any], folder: Path) -> None:
        """Copy the head that a Job made to `folder`, or each that it compares. Raises PlatformError, WaitTimeout."""
        with self._pod(reading_pod(job), is_ready) as name:
            address = f"{path('Pod', self.cluster.namespace, name)}:{PORT}/proxy/"
            listing = self._listing(address)
            methods = [method for method in TRAINED_METHODS if f'<a href="{method}/">' in listing]
            names = _FILE.findall(listing)
            names += [
                f"{method}/{file}" for method in methods for file in _FILE.findall(self._listing(f"{address}{method}/"))
            ]
            if not names:
                hint = "Set another `training.seed` to train it again, or restore the claim."
                raise PlatformError(f"the head of {job['metadata']['name']} is not in its claim", hint=hint)
            for method in methods:
                (folder / method).mkdir()
            for file in names:
                self._save(f"{address}{file}", folder / file)

    def place(self, job: Mapping[str, Any], name: str, method: str) -> None:
        """Copy the head to the folder of the claim from which endpoints read it. Raises PlatformError, WaitTimeout."""
        pod = placing_pod(job, name, method)
        with self._pod(pod, lambda pod: bool(pod.get("status", {}).get("phase") == "Succeeded")):
            pass

    def _listing(self, address: str) -> str:
        return self.cluster.read("GET", address, limits=_LISTING).decode(errors="replace")

    def _save(self, address: str, to: Path) -> None:
        try:
            with closing(self.cluster.open("GET", address)) as answer, to.open("wb") as stream:
                for piece in answer.stream(_PIECE_BYTES):
                    stream.write(piece)
        except OSError as error:
            hint = "Make room. The head stays in the claim; the same command goes on."
            raise PlatformError(f"{to} cannot be written: {error.strerror}", hint=hint) from error

    @contextmanager
    def _pod(self, manifest: Mapping[str, Any], is_done: Callable[[Document], bool]) -> Iterator[str]:
        """The pod's name, once it is as wanted. One that an earlier command has left is deleted first."""
        name = manifest["metadata"]["name"]
        self._remove(name)
        self.cluster.call("POST", path("Pod", self.cluster.namespace), manifest)
        try:
            self._wait(name, is_done)
            yield name
        finally:
            self._remove(name)

    def _wait(self, name: str, is_done: Callable[[Document], bool]) -> None:
        deadline, why = self.clock() + _START_SECONDS, ""
        see = f"See: kubectl describe pod -n {self.cluster.namespace} {name}. The head stays in its claim."
        while self.clock() < deadline:
            pod = self.cluster.find(path("Pod", self.cluster.namespace, name)) or {}
            if is_done(pod):
                return
            trouble = trouble_of(pod, readable_events(self.cluster, pod)) if pod else None
            why = f": {trouble.text}" if trouble else ""
            if (trouble and trouble.certain) or pod.get("status", {}).get("phase") == "Failed":
                raise PlatformError(f"pod {name} cannot hand the head over{why}", hint=see)
            self.sleep(_PAUSE_SECONDS)
        raise WaitTimeout(f"pod {name} has not handed the head over after {_START_SECONDS:.0f} s{why}", hint=see)

    def _remove(self, name: str) -> None:
        if existing := self.cluster.find(path("Pod", self.cluster.namespace, name)):
            objects = Objects(self.cluster, self.clock, self.sleep)
            objects.remove("Pod", existing, gracePeriodSeconds=0)
