"""Weights in S3, shared by content, and the marks of the endpoints that use them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.planning.kinds import Decision
from toolkit.planning.resources import Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import unless_missing
from toolkit.platforms.sagemaker.kinds.base import AwsKind, Look, Work, put_object
from toolkit.platforms.sagemaker.kinds.bucket import read_uses
from toolkit.platforms.sagemaker.rules.model_data import ModelData
from toolkit.platforms.sagemaker.rules.names import STAGED_PREFIX, USES_PREFIX, WEIGHTS_PREFIX, bucket_name
from toolkit.platforms.sagemaker.staging import (
    delete_prefix,
    object_sizes,
    read_mark,
    stage_weights,
    stored_sha256,
)

if TYPE_CHECKING:
    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment


_FORMATS = "run `toolkit lock` first: without the names of the files, those of other formats are copied too"
_ONE_SOURCE = "one S3 prefix brings all, because AWS::SageMaker::Model has one model data source"


class WeightsReferenceKind(AwsKind):
    """An empty object `uses/<weights>/<endpoint>`. Weights are kept as long as they have one."""

    kind = "WeightsReference"

    def desired(self, deployment: Deployment) -> list[Resource]:
        marks = [reference(item, deployment.recipe.name) for item in deployment.data]
        return [mark for mark in marks if mark]

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {key: existing.state[key] for key in ("Bucket", "Key")}

    def observe(self, look: Look) -> Iterator[Existing]:
        bucket = bucket_name(look.account)
        for weights, users in sorted((look.once(read_uses, bucket) or {}).items()):
            for user in users:
                if user in look.endpoints:
                    name = f"{weights}/{user}"
                    yield Existing(self.kind, name, True, (user,), {"Bucket": bucket, "Key": f"{USES_PREFIX}{name}"})

    def create(self, work: Work, request: Any) -> None:
        work.clients.s3.put_object(**request, Body=b"")

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        clients.s3.delete_object(**request)

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        """Without it, `toolkit destroy` of another endpoint would delete the weights as unused."""
        command = put_object(item.request["Bucket"], item.request["Key"])
        yield {"what": f"mark of use {item.name}", "command": command}


class WeightsKind(AwsKind):
    """Files of a model, or settings. The request is not an API call but lists where the files come from."""

    kind = "Weights"

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item.weights for item in deployment.data if item.weights]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None:
            return super().decide(resource, existing, observed)
        if "Hub" in resource.request:
            complete = existing.state.get("Complete", False)
            return _all() if complete else Decision("update", "only part of the files is in S3")
        total, arrived = len(resource.request["Files"]), existing.state["Files"]
        return Decision("update", f"{arrived} of {total} files are in S3") if arrived < total else _all()

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {key: existing.state[key] for key in ("Bucket", "Prefix", "Mark") if key in existing.state}

    def observe(self, look: Look) -> Iterator[Existing]:
        bucket = bucket_name(look.account)
        wanted = {item.name: item for item in look.wanted(self.kind)}
        for name, users in sorted((look.once(read_uses, bucket) or {}).items()):
            if name in wanted or set(users) & set(look.endpoints):
                state = unless_missing(look.clients, partial(_state, look, bucket, name, wanted.get(name)))
                if state is not None:
                    yield Existing(self.kind, name, True, users, state)

    def create(self, work: Work, request: Any) -> None:
        stage_weights(work.clients, request, work.progress, work.open_files)

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        clients.s3.delete_object(Bucket=request["Bucket"], Key=request["Mark"])
        delete_prefix(clients, request["Bucket"], request["Prefix"])

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        folders: Mapping[str, Any] = item.request.get("Folders", {"": item.request})
        for folder, request in folders.items():
            part = f", folder {folder} ({_ONE_SOURCE})" if folder else ""
            doubt = f" ({_FORMATS})" if "Hub" in request and "Names" not in request else ""
            yield {"what": f"weights {item.name}{part}{doubt}", "command": _upload(request)}


def reference(data: ModelData, endpoint: str) -> Resource | None:
    """The mark of an endpoint on weights that were staged."""
    if data.weights is None:
        return None
    name = f"{data.weights.name}/{endpoint}"
    return Resource("WeightsReference", name, {"Bucket": data.weights.request["Bucket"], "Key": f"{USES_PREFIX}{name}"})


def _all() -> Decision:
    return Decision("reuse", "all files are in S3")


def _state(look: Look, bucket: str, name: str, wanted: Resource | None) -> dict[str, Any]:
    """`Files` counts the wanted files that S3 holds byte for byte; `Complete` says of the hub's whether all are."""
    prefix, mark = f"{WEIGHTS_PREFIX}{name}/", f"{STAGED_PREFIX}{name}"
    state = {"Bucket": bucket, "Prefix": prefix, "Mark": mark}
    if wanted and "Hub" in wanted.request:
        return {**state, "Complete": read_mark(look.clients, bucket, mark).is_whole(look.clients, bucket, prefix)}
    found = object_sizes(look.clients, bucket, prefix)
    files = wanted.request["Files"] if wanted else []
    content = {
        prefix + file["path"]: file["sha256"] for file in files if found.get(prefix + file["path"]) == file["size"]
    }
    stored = stored_sha256(look.clients, bucket, content)
    return {**state, "Files": sum(stored.get(key) == sha256 for key, sha256 in content.items())}


def _upload(request: Mapping[str, Any]) -> str:
    """Shell commands that upload a folder, a repository of the hub, or small files of the request."""
    to = f"s3://{request['Bucket']}/{request['Prefix']}"
    encryption = ["--sse", "aws:kms", "--sse-kms-key-id", request["KmsKeyId"]] if "KmsKeyId" in request else []
    options = ["--checksum-algorithm", "SHA256", *encryption]  # by which `toolkit deploy` knows the files again
    hidden = ["--exclude", ".*", "--exclude", "*/.*"]
    if "Hub" in request:
        folder = "-".join(request["Prefix"].rstrip("/").split("/")[1:])
        at = ("--revision", request["Revision"], "--local-dir", folder)
        # As `toolkit deploy`: not the folders, in which repositories hold the weights again in other formats.
        exactly = (*at, "--", request["Hub"], *request["Names"]) if "Names" in request else ()
        fetch = _shell("hf", "download", *(exactly or (request["Hub"], *at, "--exclude", "*/*")))
        return " && ".join([fetch, _shell("aws", "s3", "sync", folder, to, *hidden, *options)])
    if "Url" in request:
        (file,) = request["Files"]
        fetch = _shell("curl", "--fail", "--location", "--output", file["path"], request["Url"])
        compare = f"{_shell('echo', file['sha256'] + '  ' + file['path'])} | sha256sum --check"
        return " && ".join([fetch, compare, _shell("aws", "s3", "cp", file["path"], to, *options)])
    if "From" in request:
        copy = _shell("aws", "s3", "sync", request["From"], to, *options)
        return f"{request['MadeBy']} && {copy}" if "MadeBy" in request else copy
    if "Content" in request:
        copies = [
            f"{_shell('printf', '%s', text)} | {_shell('aws', 's3', 'cp', '-', to + name, *options)}"
            for name, text in request["Content"].items()
        ]
        return " && ".join(copies)
    return _shell("aws", "s3", "sync", request["Source"], to, *hidden, *options)


def _shell(*words: str) -> str:
    return shlex.join(words)
