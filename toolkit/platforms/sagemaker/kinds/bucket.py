"""The toolkit's bucket, and the weights in it.

There is one bucket for all endpoints of an account and region, deleted with the last of them. Weights are shared by
content, and have a mark for each endpoint that uses them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from toolkit.errors import PlatformError
from toolkit.planning.kinds import Decision
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.sagemaker.aws_errors import (
    code_of,
    has_code,
    is_denied,
    message_of,
    unless,
    unless_missing,
)
from toolkit.platforms.sagemaker.kinds.base import ApiCall, AwsKind, Look, Work
from toolkit.platforms.sagemaker.rules.access import policy
from toolkit.platforms.sagemaker.rules.in_account import IN_ACCOUNT, estimate
from toolkit.platforms.sagemaker.rules.model_data import ModelData
from toolkit.platforms.sagemaker.rules.names import (
    BUCKET_VARIABLE,
    LEASES_PREFIX,
    STAGED_PREFIX,
    USES_PREFIX,
    WEIGHTS_PREFIX,
    bucket_name,
    sender_lease,
)
from toolkit.platforms.sagemaker.staging import delete_prefix, read_mark, stage_weights
from toolkit.platforms.sagemaker.stored import object_sizes, stored_sha256

if TYPE_CHECKING:
    from types_boto3_s3.type_defs import (
        PublicAccessBlockConfigurationTypeDef,
        ServerSideEncryptionByDefaultTypeDef,
        ServerSideEncryptionConfigurationTypeDef,
    )

    from toolkit.platforms.sagemaker.clients import Clients
    from toolkit.platforms.sagemaker.rules.model_data import Deployment

# S3 does both by default today, for new buckets; an account may have other defaults.
_PUBLIC_ACCESS_BLOCK: PublicAccessBlockConfigurationTypeDef = {
    "BlockPublicAcls": True,
    "BlockPublicPolicy": True,
    "IgnorePublicAcls": True,
    "RestrictPublicBuckets": True,
}
_BY_DEFAULT: ServerSideEncryptionByDefaultTypeDef = {"SSEAlgorithm": "AES256"}
_ENCRYPTION: ServerSideEncryptionConfigurationTypeDef = {"Rules": [{"ApplyServerSideEncryptionByDefault": _BY_DEFAULT}]}

# S3 still deletes a bucket of that name (aws/aws-cli#2411), or somebody else makes it just now.
_IS_BUSY = has_code("OperationAborted")
_ATTEMPTS = 12

_PARAMETER, _CONDITION = "MakeBucket", "MakesBucket"

Uses = Mapping[str, tuple[str, ...]]
_FORMATS = "run `toolkit lock` first: without the names of the files, those of other formats are copied too"
_ONE_SOURCE = "one S3 prefix brings all, because AWS::SageMaker::Model has one model data source"


class BucketKind(AwsKind):
    """Nothing in it can become public, all is encrypted, and it is reached over TLS only."""

    kind = "Bucket"
    resource_type = "AWS::S3::Bucket"

    def desired(self, deployment: Deployment) -> list[Resource]:
        return made_bucket(deployment.account)

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {"Bucket": existing.name, "Lease": f"{LEASES_PREFIX}{endpoint}"}

    def observe(self, look: Look) -> Iterator[Existing]:
        name = bucket_name(look.account)
        uses = None if look.account.bucket else look.once(read_uses, name)
        if uses is not None:
            everyone = sorted({user for users in uses.values() for user in users})
            yield Existing("Bucket", name, True, tuple(everyone), {"Bucket": name})

    def creating(self, request: Any) -> tuple[ApiCall, ...]:
        _, account, region = request["Bucket"].split("-", 2)
        return _making(request, Account(account, region))

    def create(self, work: Work, request: Any) -> None:
        """Does nothing: the bucket was created by `make_bucket` before, because the lease is stored in it."""

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        """With our own lease."""
        lease = ApiCall("s3", "DeleteObject", {"Bucket": request["Bucket"], "Key": request["Lease"]})
        return lease, ApiCall("s3", "DeleteBucket", {"Bucket": request["Bucket"]})

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        """A bucket with somebody else's lease or weights is kept."""
        lease, own = self.deleting(name, request)
        lease.send(clients)
        unless(clients, partial(own.send, clients), has_code("BucketNotEmpty"))

    def properties(self, item: Resource, request: Mapping[str, Any], resources: Any) -> dict[str, Any]:
        return {
            "BucketName": item.name,
            "BucketEncryption": {"ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": _BY_DEFAULT}]},
            "PublicAccessBlockConfiguration": dict(_PUBLIC_ACCESS_BLOCK),
        }

    def companions(self, item: Resource, logical_id: str) -> dict[str, Any]:
        arn = {"Fn::GetAtt": [logical_id, "Arn"]}
        document = _tls_only([arn, {"Fn::Join": ["/", [arn, "*"]]}])
        properties = {"Bucket": {"Ref": logical_id}, "PolicyDocument": document}
        tls_only = {"Type": "AWS::S3::BucketPolicy", "Properties": properties}
        return {f"{logical_id}Policy": {**tls_only, **self.attributes(item)}}

    def attributes(self, item: Resource) -> dict[str, Any]:
        return {"Condition": _CONDITION, "DeletionPolicy": "Retain", "UpdateReplacePolicy": "Retain"}

    def sections(self, item: Resource) -> dict[str, Any]:
        """A parameter for whether to create it: the bucket is shared, and weights must be in it before the stack."""
        description = "yes: the stack creates the bucket, and keeps it; no: the bucket exists already"
        parameter = {"Type": "String", "AllowedValues": ["yes", "no"], "Default": "no", "Description": description}
        return {
            "Parameters": {_PARAMETER: parameter},
            "Conditions": {_CONDITION: {"Fn::Equals": [{"Ref": _PARAMETER}, "yes"]}},
        }

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        region = item.request.get("CreateBucketConfiguration", {}).get("LocationConstraint", "us-east-1")
        command = _shell("aws", "s3", "mb", f"s3://{item.name}", "--region", region)
        yield {"what": f"bucket {item.name}, if it does not exist", "command": command}


def bucket(account: Account) -> Resource:
    """The toolkit's bucket in an account and region."""
    name = bucket_name(account)
    # S3 refuses a LocationConstraint that names us-east-1, and needs one everywhere else.
    elsewhere = account.region != "us-east-1"
    location = {"CreateBucketConfiguration": {"LocationConstraint": account.region}} if elsewhere else {}
    return Resource("Bucket", name, {"Bucket": name, **location})


def made_bucket(account: Account) -> list[Resource]:
    """The toolkit's bucket; nothing where the user's own takes its place, of which nothing is made, set or removed."""
    return [] if account.bucket else [bucket(account)]


def make_bucket(clients: Clients, request: Any, account: Account, pause: Callable[[], None]) -> None:
    """Create the bucket, unless it exists, and close it. `pause` is between two tries, twelve in all.

    A caller without TLS, as on the local platform, gets no TLS policy: it would lock the caller out.
    """
    made, *closed, tls_only = _making(request, account)
    is_new = unless(clients, partial(_send, clients, made, pause), has_code("BucketAlreadyOwnedByYou")) is not None
    over_tls = clients.s3.meta.endpoint_url.startswith("https:")
    is_closed = False
    try:
        for each in (*closed, tls_only) if over_tls else closed:
            _send(clients, each, pause)
        is_closed = True
    except clients.refusal as error:
        message = f"the bucket {request['Bucket']} cannot be closed to others: {message_of(error)} ({code_of(error)})"
        hint = f"Ask an administrator to allow that, or let {BUCKET_VARIABLE} name a bucket of your own that is closed."
        raise PlatformError(message, hint=hint) from error
    finally:
        if is_new and not is_closed:  # else the next command would take it as it is
            removed = ApiCall("s3", "DeleteBucket", {"Bucket": request["Bucket"]})
            unless(clients, partial(removed.send, clients), is_denied, has_code("BucketNotEmpty"))


def _send(clients: Clients, call: ApiCall, pause: Callable[[], None]) -> Any:
    for _ in range(_ATTEMPTS - 1):
        answer = unless(clients, partial(call.send, clients), _IS_BUSY)
        if answer is not None:
            return answer
        pause()
    return call.send(clients)


def _making(request: Any, account: Account) -> tuple[ApiCall, ...]:
    name, arn = request["Bucket"], f"arn:{account.partition}:s3:::{request['Bucket']}"
    own = {"Bucket": name, "ExpectedBucketOwner": account.id}
    return (
        ApiCall("s3", "CreateBucket", request),
        ApiCall("s3", "PutPublicAccessBlock", {**own, "PublicAccessBlockConfiguration": _PUBLIC_ACCESS_BLOCK}),
        ApiCall("s3", "PutBucketEncryption", {**own, "ServerSideEncryptionConfiguration": _ENCRYPTION}),
        ApiCall("s3", "PutBucketPolicy", {**own, "Policy": json.dumps(_tls_only([arn, f"{arn}/*"]))}),
    )


def _tls_only(resources: Sequence[Any]) -> dict[str, Any]:
    """A policy of the bucket with these ARNs that refuses whatever comes without TLS."""
    statement = {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": list(resources),
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return policy(statement)


def read_uses(look: Look, bucket: str) -> Uses | None:
    """The endpoints that use each weights, from the marks in S3; None if the bucket does not exist."""
    clients = look.clients

    def read() -> Uses:
        clients.s3.head_bucket(Bucket=bucket, ExpectedBucketOwner=look.account.id)
        uses: dict[str, tuple[str, ...]] = {}
        for key in object_sizes(clients, bucket, USES_PREFIX):
            weights, _, endpoint = key.removeprefix(USES_PREFIX).partition("/")
            uses[weights] = (*uses.get(weights, ()), endpoint)
        return uses

    return unless_missing(clients, read)  # somebody may delete it at this moment, with their last endpoint


class WeightsReferenceKind(AwsKind):
    """An empty object `uses/<weights>/<endpoint>`. Weights are kept as long as they have one."""

    kind = "WeightsReference"
    creates = ("s3", "PutObject")

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [_mark(item.weights, deployment.recipe.name) for item in deployment.data if item.weights]

    def delete_request(self, existing: Existing, endpoint: str) -> Mapping[str, Any]:
        return {key: existing.state[key] for key in ("Bucket", "Key")}

    def observe(self, look: Look) -> Iterator[Existing]:
        bucket = bucket_name(look.account)
        for weights, users in sorted((look.once(read_uses, bucket) or {}).items()):
            for user in users:
                if user in look.endpoints:
                    name = f"{weights}/{user}"
                    yield Existing(self.kind, name, True, (user,), {"Bucket": bucket, "Key": f"{USES_PREFIX}{name}"})

    def deleting(self, name: str, request: Any) -> tuple[ApiCall, ...]:
        return (ApiCall("s3", "DeleteObject", request),)

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        """Without it, `toolkit destroy` of another endpoint would delete the weights as unused."""
        command = _shell("aws", "s3api", "put-object", "--bucket", item.request["Bucket"], "--key", item.request["Key"])
        yield {"what": f"mark of use {item.name}", "command": command}


class WeightsKind(AwsKind):
    """Files of a model, or settings. The request is not an API call but lists where the files come from."""

    kind = "Weights"

    def desired(self, deployment: Deployment) -> list[Resource]:
        return [item.weights for item in deployment.data if item.weights]

    def decide(self, resource: Resource, existing: Existing | None, observed: Observed) -> Decision:
        if existing is None:
            return _by_whom(super().decide(resource, existing, observed), resource.request)
        if "Hub" in resource.request:
            complete = existing.state.get("Complete", False)
            partly = Decision("update", "only part of the files is in S3")
            return _all() if complete else _by_whom(partly, resource.request)
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
        """Of several deployments that need the same model one sends it. The others wait, and find it there."""
        with ExitStack() as held:
            if "Hub" in request or "Source" in request:  # what else there is has some kilobytes
                held.enter_context(work.sending(request["Bucket"], request["Prefix"]))
            if IN_ACCOUNT in request:
                work.stage_in_account(request, work.progress)
            else:
                stage_weights(work.clients, request, work.progress, work.open_files)

    def delete(self, clients: Clients, name: str, request: Any) -> None:
        for key in (request["Mark"], f"{LEASES_PREFIX}{sender_lease(request['Prefix'])}"):  # of one that died
            clients.s3.delete_object(Bucket=request["Bucket"], Key=key)
        delete_prefix(clients, request["Bucket"], request["Prefix"])

    def stage_first(self, item: Resource) -> Iterator[dict[str, str]]:
        folders: Mapping[str, Any] = item.request.get("Folders", {"": item.request})
        for folder, request in folders.items():
            part = f", folder {folder} ({_ONE_SOURCE})" if folder else ""
            doubt = f" ({_FORMATS})" if "Hub" in request and "Names" not in request else ""
            yield {"what": f"weights {item.name}{part}{doubt}", "command": _upload(request)}


def staged(data: Iterable[ModelData], owner: str) -> list[Resource]:
    """The weights that are staged, and their owner's marks on them."""
    weights = [item.weights for item in data if item.weights]
    return [*(_mark(item, owner) for item in weights), *weights]


def _mark(weights: Resource, owner: str) -> Resource:
    name = f"{weights.name}/{owner}"
    return Resource("WeightsReference", name, {"Bucket": weights.request["Bucket"], "Key": f"{USES_PREFIX}{name}"})


def _by_whom(decision: Decision, request: Mapping[str, Any]) -> Decision:
    """With the job that fetches them, if one does, its time and its price."""
    job = request.get(IN_ACCOUNT)
    if job is None:
        return decision
    seconds, takes = estimate(job.get("Bytes"))
    return Decision(decision.verb, f"{decision.reason}; a job of CodeBuild fetches them from the hub, {takes}", seconds)


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
