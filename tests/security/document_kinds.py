"""Every kind of document that the toolkit reads from outside: a good one, and the code that reads and uses it."""

from __future__ import annotations

import io
import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import botocore.session
import httpx
import pyarrow
import pyarrow.parquet
import urllib3
from botocore.awsrequest import AWSResponse
from kubernetes.client import Configuration
from pairs import write_hub_pair, write_pair

ROOT = Path(__file__).parents[2]
sys.path[:0] = [
    str(ROOT / "tests" / "kubernetes"),
    str(ROOT / "containers" / "benchmark"),
    str(ROOT / "containers" / "on-vllm"),
]

import artifacts  # noqa: E402
import benchmark  # noqa: E402
import manifests  # noqa: E402
from jumpstart_entries import gated, gpt_oss  # noqa: E402
from reports import example  # noqa: E402
from state_kinds import state_kinds  # noqa: E402
from training_kinds import training_kinds  # noqa: E402

from toolkit.api.checking import check  # noqa: E402
from toolkit.catalog import lookup, updates  # noqa: E402
from toolkit.catalog.refresh import refresh  # noqa: E402
from toolkit.cli.report_text import comparison_text, report_text  # noqa: E402
from toolkit.endpoint.generation import Stream  # noqa: E402
from toolkit.endpoint.prometheus import parse as parse_metrics  # noqa: E402
from toolkit.endpoint.refusal import message_in  # noqa: E402
from toolkit.images.auth import anonymous  # noqa: E402
from toolkit.images.copy import find_image  # noqa: E402
from toolkit.images.docker_config import read_login  # noqa: E402
from toolkit.images.manifest import INDEXES, SCHEMA_2, digest_of  # noqa: E402
from toolkit.images.reference import parse  # noqa: E402
from toolkit.images.registry import Registry  # noqa: E402
from toolkit.measure.compare import compare  # noqa: E402
from toolkit.measure.page import page_html  # noqa: E402
from toolkit.measure.report import load_report  # noqa: E402
from toolkit.planning.plan import Plan  # noqa: E402
from toolkit.planning.record import Record  # noqa: E402
from toolkit.platforms.kubernetes.cluster import Cluster  # noqa: E402
from toolkit.platforms.kubernetes.platform import KubernetesPlatform  # noqa: E402
from toolkit.platforms.kubernetes.runtime import invoke as invoke_in_cluster  # noqa: E402
from toolkit.platforms.sagemaker import runtime  # noqa: E402
from toolkit.platforms.sagemaker.clients import Clients  # noqa: E402
from toolkit.platforms.sagemaker.errors import aws_errors  # noqa: E402
from toolkit.platforms.sagemaker.jumpstart import read_jumpstart  # noqa: E402
from toolkit.platforms.sagemaker.objects import BucketLease  # noqa: E402
from toolkit.platforms.sagemaker.platform import SageMakerPlatform  # noqa: E402
from toolkit.platforms.sagemaker.role import find_role  # noqa: E402
from toolkit.platforms.sagemaker.rules.jumpstart_entry import parse as parse_jumpstart  # noqa: E402
from toolkit.recipe.hub import HubFiles  # noqa: E402
from toolkit.recipe.lock import read_lock  # noqa: E402
from toolkit.recipe.model_files import read_folder  # noqa: E402
from toolkit.recipe.prompts import read_prompts  # noqa: E402
from toolkit.training.conversations import Skipped, distinct  # noqa: E402
from toolkit.training.shards import read_shards  # noqa: E402
from toolkit.training.sources import source_rows  # noqa: E402

DIGEST = "sha256:" + "0a" * 32
COMMIT = "0123456789abcdef" * 2 + "01234567"


@dataclass(frozen=True)
class Kind:
    """`read` uses a document in a folder of its own; what does not fit is an error that `names` it, a pattern."""

    good: bytes
    read: Callable[[bytes, Path], object]
    names: str = ""
    code: int = 3


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


# Files of the user's.


def _recipe(content: bytes, folder: Path) -> object:
    path = write_pair(folder)
    path.write_bytes(content)
    return check(path)


def _lock(content: bytes, folder: Path) -> object:
    (folder / "a.lock.json").write_bytes(content)
    return read_lock(folder / "a.lock.json")


def _checked_lock(content: bytes, folder: Path) -> object:
    path = write_hub_pair(folder)
    path.with_suffix(".lock.json").write_bytes(content)
    return check(path)


def _plan(content: bytes, folder: Path) -> object:
    (folder / "plan.json").write_bytes(content)
    plan = Plan.read(folder / "plan.json")
    return repr(plan), plan._repr_html_(), plan.to_dict(), plan.cost, [str(change) for change in plan.changes]


def _record(content: bytes, folder: Path) -> object:
    (folder / "record.jsonl").write_bytes(content)
    said: list[str] = []
    events = Record(folder / "record.jsonl", said.append).events()
    assert all(str(folder) in text for text in said)
    return [f"{event.time} {event.step} {event.detail}" for event in events]


def _in_model(name: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> object:
        path = write_pair(folder)
        (folder / "drafter" / name).write_bytes(content)
        return check(path), read_folder(folder / "drafter")

    return read


def _header(content: bytes, folder: Path) -> object:
    write_pair(folder)
    (folder / "drafter" / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content + bytes(10_000))
    return read_folder(folder / "drafter")


def _index(content: bytes, folder: Path) -> object:
    write_pair(folder)
    (folder / "drafter" / "model.safetensors.index.json").write_bytes(content)
    return read_shards(folder / "drafter")


def _prompts(name: str) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> object:
        (folder / name).write_bytes(content)
        return read_prompts(folder / name)

    return read


def _conversations(name: str, keep: bool = True) -> Callable[[bytes, Path], object]:
    def read(content: bytes, folder: Path) -> object:
        (folder / name).write_bytes(content)
        return list(distinct(source_rows(str(folder / name), folder), keep, Skipped()))

    return read


def _parquet() -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"turns": [["Hi", "and?"]], "id": [1]}), written)
    return written.getvalue()


def _report(content: bytes, folder: Path) -> object:
    """A saved report in each form that it is shown in."""
    (folder / "report.json").write_bytes(content)
    report = load_report(folder / "report.json")
    against = compare(example(), report)
    shown = (repr(report), report._repr_html_(), report_text(report, 80), repr(against), comparison_text(against, 80))
    return *shown, page_html(report)


def _docker_config(content: bytes, folder: Path) -> object:
    (folder / "config.json").write_bytes(content)
    return read_login(folder / "config.json", "r.example")


def _container_record(content: bytes, folder: Path) -> object:
    (folder / "artifacts.json").write_bytes(content)
    found = artifacts.recorded(folder)
    return found.get("key") == "k", artifacts.different(found.get("parts", {}), {"target": "a"})


def _container_times(content: bytes, folder: Path) -> object:
    (folder / "made").mkdir(exist_ok=True)
    (folder / "made" / "kernel.o").touch()
    (folder / artifacts.TIMES).write_bytes(content)
    artifacts.copy_files(folder / "made", folder / "cache", artifacts.recorded_times(folder))
    return (folder / "cache" / "kernel.o").stat().st_mtime_ns == 5


def _container_parts(content: bytes, _folder: Path) -> object:
    try:
        return artifacts.json_object({"PARTS": content.decode(errors="replace")}, "PARTS")
    except artifacts.ServeError as error:
        return str(error)


# Services over HTTP.


def _client(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(answer), base_url="https://hub.example")


def _hub(content: bytes, _folder: Path) -> object:
    files = HubFiles("org/model", None, _client(lambda _: httpx.Response(200, content=content)))
    return files.revision, files.sizes(), files.digests()


def _refresh(content: bytes, _folder: Path) -> object:
    """Every source gives the same answer."""
    client = _client(lambda _: httpx.Response(200, content=content))
    return refresh(client, updates.NOTHING, ["us-east-1"], date(2026, 11, 22), ec2=True)


def _update_file(content: bytes, _folder: Path) -> object:
    updates.path().parent.mkdir(parents=True, exist_ok=True)
    updates.path().write_bytes(content)
    try:
        return lookup.instances(), lookup.heads(), lookup.images("sagemaker", "vllm")
    finally:
        updates.path().unlink()


_LAYER = {"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "digest": DIGEST, "size": 5}
_CONFIG = _json({"os": "linux", "architecture": "amd64", "config": {"Env": ["A=b"]}, "rootfs": {"diff_ids": [DIGEST]}})


def _manifest(config: bytes) -> dict[str, Any]:
    blob = {
        "mediaType": "application/vnd.docker.container.image.v1+json",
        "digest": digest_of(config),
        "size": len(config),
    }
    return {"schemaVersion": 2, "mediaType": SCHEMA_2, "config": blob, "layers": [_LAYER]}


def _image(bodies: dict[str, tuple[int, str, bytes]]) -> object:
    def answer(request: httpx.Request) -> httpx.Response:
        for part, (status, media_type, body) in bodies.items():
            if part in str(request.url):
                headers = {"Content-Type": media_type}
                if status == 401:
                    headers["WWW-Authenticate"] = 'Bearer realm="https://token.example/",service="r"'
                return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))
        return httpx.Response(404)

    with Registry("r.example", anonymous, transport=httpx.MockTransport(answer), sleep=lambda _: None) as registry:
        return find_image(registry, parse("r.example/a:1"))


def _oci_manifest(content: bytes, _folder: Path) -> object:
    return _image({"manifests": (200, SCHEMA_2, content), "blobs": (200, "", _CONFIG)})


def _oci_index(content: bytes, _folder: Path) -> object:
    manifest = _json(_manifest(_CONFIG))
    entry = {digest_of(manifest): (200, SCHEMA_2, manifest)}
    return _image({**entry, "manifests": (200, INDEXES[1], content), "blobs": (200, "", _CONFIG)})


def _oci_config(content: bytes, _folder: Path) -> object:
    return _image({"manifests": (200, SCHEMA_2, _json(_manifest(content))), "blobs": (200, "", content)})


def _oci_error(content: bytes, _folder: Path) -> object:
    return _image({"manifests": (400, "", content)})


def _oci_token(content: bytes, _folder: Path) -> object:
    return _image({"token.example": (200, "", content), "manifests": (401, "", b"")})


def _events(content: bytes, _folder: Path) -> object:
    return Stream([b"data: " + content.replace(b"\n", b" ") + b"\n\n", b"data: [DONE]\n\n"]).result


def _metrics_page(content: bytes, _folder: Path) -> object:
    return parse_metrics(content, "pod a")


def _benchmark_events(content: bytes, _folder: Path) -> object:
    lines = io.BytesIO(b"data: " + content.replace(b"\n", b" ") + b"\n\n")
    try:
        return list(benchmark.events(lines))
    except benchmark.BenchmarkError as error:
        return str(error)


# AWS.


@cache
def _canned() -> tuple[Clients, list[tuple[int, bytes]]]:
    """Clients, made once, and what they get for an answer to any call: the last of the list."""
    session, answers = botocore.session.Session(), [(200, b"")]

    def answer(request: Any, **_: object) -> AWSResponse:
        status, content = answers[-1]
        raw = urllib3.HTTPResponse(io.BytesIO(content), preload_content=False)
        return AWSResponse(request.url, status, {"ETag": '"1"', "x-amz-request-id": "1"}, raw)

    session.register("before-send.*", answer)
    mine = boto3.Session("AKID", "secret", region_name="us-west-2", botocore_session=session)
    return Clients(mine, attempts=1), answers


def _aws(content: bytes, status: int = 200) -> Clients:
    clients, answers = _canned()
    answers[:] = [(status, content)]
    return clients


def _by_platform(use: Callable[[SageMakerPlatform], object], status: int = 200) -> Callable[[bytes, Path], object]:
    def read(content: bytes, _folder: Path) -> object:
        return use(SageMakerPlatform(_aws(content, status), sleep=lambda _: None))

    return read


def _by_clients(use: Callable[[Clients], object]) -> Callable[[bytes, Path], object]:
    def read(content: bytes, _folder: Path) -> object:
        with aws_errors("asking"):
            return use(_aws(content))

    return read


def _alarms(clients: Clients) -> object:
    pages = clients.cloudwatch.get_paginator("describe_alarms").paginate()
    return [alarm["AlarmName"].upper() for page in pages for alarm in page["MetricAlarms"]]


def _objects(clients: Clients) -> object:
    pages = clients.s3.get_paginator("list_objects_v2").paginate(Bucket="b", PaginationConfig={"MaxItems": 10})
    return {item["Key"]: item["Size"] + 1 for page in pages for item in page.get("Contents", [])}


def _events_of_log(clients: Clients) -> object:
    page = clients.logs.get_log_events(logGroupName="g", logStreamName="s")
    return [(event["timestamp"] / 1000, event["message"].rstrip()) for event in page["events"]], page[
        "nextForwardToken"
    ]


def _role(clients: Clients) -> object:
    return find_role(clients, written="me", environ={})


_DESCRIBED = {
    "EndpointName": "chat",
    "EndpointArn": "arn:aws:sagemaker:us-west-2:123456789012:endpoint/chat",
    "EndpointConfigName": "chat-1",
    "EndpointStatus": "Updating",
    "CreationTime": 1.7e9,
    "LastModifiedTime": 1.7e9,
    "ProductionVariants": [{"VariantName": "main", "CurrentInstanceCount": 1}],
    "FailureReason": "",
}
_OBJECTS = (
    b'<?xml version="1.0"?><ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated>'
    b"<Contents><Key>a</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>x</ETag><Size>5</Size></Contents>"
    b"</ListBucketResult>"
)
_ROLE = (
    b"<GetRoleResponse><GetRoleResult><Role><Path>/</Path><RoleName>me</RoleName><RoleId>AROA</RoleId>"
    b"<Arn>arn:aws:iam::123456789012:role/me</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate>"
    b"<AssumeRolePolicyDocument>%7B%7D</AssumeRolePolicyDocument></Role></GetRoleResult></GetRoleResponse>"
)
_HOLDER = {"user": "me", "host": "h", "machine": "m", "pid": 5, "since": 1.0}


# Kubernetes.

_NOTHING = _json({"metadata": {"name": "chat", "labels": {}}, "items": []})


class _Pool:
    """Answers the first request with the content, and others likewise or with nothing."""

    def __init__(self, content: bytes, status: int, again: bool) -> None:
        self.content, self.status, self.again = content, status, again

    def request(self, *_: object, preload_content: bool = True, **__: object) -> urllib3.HTTPResponse:
        answer = urllib3.HTTPResponse(io.BytesIO(self.content), status=self.status, preload_content=preload_content)
        if not self.again:
            self.content, self.status = _NOTHING, 200
        return answer


def _cluster(content: bytes, status: int, again: bool) -> Cluster:
    client: Any = SimpleNamespace(
        configuration=Configuration(host="https://cluster.example"),
        rest_client=SimpleNamespace(pool_manager=_Pool(content, status, again)),
    )
    return Cluster(client, "ctx", "ml")


def _by_cluster(
    use: Callable[[KubernetesPlatform], object], status: int = 200, again: bool = False
) -> Callable[[bytes, Path], object]:
    def read(content: bytes, _folder: Path) -> object:
        return use(KubernetesPlatform(_cluster(content, status, again), sleep=lambda _: None))

    return read


_DEPLOYMENT = {
    **manifests.deployment().request,
    "status": {
        "replicas": 1,
        "updatedReplicas": 1,
        "observedGeneration": 1,
        "conditions": [{"type": "Progressing", "status": "False"}],
    },
}
_DEPLOYMENT["metadata"] = {
    **_DEPLOYMENT["metadata"],
    "uid": "u",
    "generation": 1,
    "resourceVersion": "5",
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "managedFields": [{"manager": "toolkit", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}],
}
_POD = {
    "metadata": {
        "name": "p",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00.5Z",
        "ownerReferences": [{"uid": "u"}],
    },
    "spec": {},
    "status": {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [
            {"name": "engine", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
        ],
    },
}
_REFUSED = {
    "kind": "Status",
    "message": "no",
    "reason": "Conflict",
    "details": {"causes": [{"reason": "a", "message": "b"}]},
}


def _used_pods(platform: KubernetesPlatform) -> object:
    from toolkit.platforms.kubernetes.errors import api_errors
    from toolkit.platforms.kubernetes.pods import worst
    from toolkit.platforms.kubernetes.rollout import events, pods

    with api_errors("looking at pods"):
        found = pods(platform.cluster, manifests.deployment().request)
        return worst((pod, events(platform.cluster, pod["metadata"]["name"])) for pod in found)


def _good_lock(folder: Path) -> bytes:
    return write_hub_pair(folder).with_suffix(".lock.json").read_bytes()


_CHAT = {
    "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop", "token_ids": [1, 2]}],
    "usage": {"prompt_tokens": 2, "completion_tokens": 2},
    "prompt_token_ids": [5],
    "metrics": {"speculative_decoding": {"acceptance_histogram": [1, 2, 3]}},
}
_PLAN = {
    "recipe": "hub",
    "platform": "sagemaker",
    "endpoints": ["hub"],
    "price_per_hour": 1.0,
    "fingerprint": "f",
    "price_before": 0.0,
    "account": "123456789012",
    "region": "us-west-2",
    "notes": ["n"],
    "actions": [
        {
            "kind": "Model",
            "name": "m",
            "verb": "create",
            "reason": "r",
            "request": {"ModelName": "m"},
            "expected_seconds": 5,
        }
    ],
}
_EVENT = {
    "time": "2026-01-01T00:00:00",
    "plan": "f",
    "kind": "Model",
    "name": "m",
    "verb": "create",
    "step": "done",
    "detail": "",
}
_PRICES = {
    "publicationDate": "2026-01-01",
    "sha": COMMIT,
    "gated": False,
    "products": {"A": {"attributes": {"usagetype": "USE2-Host:ml.g6.xlarge"}}},
    "terms": {"OnDemand": {"A": {"A.B": {"priceDimensions": {"C": {"unit": "Hrs", "pricePerUnit": {"USD": "1.1"}}}}}}},
}
_PRICE = {"usd_per_hour": 1.0, "region": "r", "date": "2026-01-01", "source": "s", "quality": "good"}
_CONVERSATION = {
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello.", "reasoning": "Polite."}]
}
_CAPTURED = {
    "captureData": {
        "endpointInput": {"data": json.dumps({"messages": [{"role": "user", "content": "Hi"}]}), "encoding": "JSON"},
        "endpointOutput": {"data": json.dumps({"choices": [{"message": {"content": "Hello."}}]}), "encoding": "JSON"},
    }
}
_UPDATE = {
    "read": {"prices in r": "2026-01-01"},
    "prices": {"r": {"ml.g6.xlarge": _PRICE}},
    "heads": {"amazon/GPT-OSS-20B-P-EAGLE": {"revision": COMMIT}},
    "images": [
        {"platform": "sagemaker", "engine": "vllm", "version": "0.99.0", "repository": "v", "tag": "t", "note": ""}
    ],
    "types": ["ml.p7.48xlarge"],
}
_PAGE = (
    b'# TYPE a counter\na_total{x="1"} 5.0\n# TYPE h histogram\nh_bucket{le="1.0"} 1\n'
    b'h_bucket{le="+Inf"} 2\nh_count 2\nh_sum 1.5\n'
)
_SIBLINGS = [{"rfilename": "config.json", "size": 10, "blobId": COMMIT}, {"rfilename": "a/b", "size": None}]
_TOKENIZER = {
    "model": {"vocab": {f"w{i}": i for i in range(5)}},
    "added_tokens": [{"content": "<s>", "id": 5, "special": True}],
}


def kinds(folder: Path) -> dict[str, Kind]:
    """By name."""
    recipe, lock = write_pair(folder / "pair").read_bytes(), _good_lock(folder / "hub")
    drafter = folder / "pair" / "drafter"
    weights = (drafter / "model.safetensors").read_bytes()
    header = weights[8 : 8 + struct.unpack("<Q", weights[:8])[0]]
    files = {
        "recipe": Kind(recipe, _recipe, "recipe.yaml", 2),
        "lock": Kind(lock, _lock, "a.lock.json", 2),
        "lock in a check": Kind(lock, _checked_lock),
        "plan": Kind(_json(_PLAN), _plan, "plan.json", 2),
        "record": Kind(_json(_EVENT) + b"\n" + _json(_EVENT) + b"\n", _record),
        "config.json": Kind((drafter / "config.json").read_bytes(), _in_model("config.json"), "config.json", 2),
        "tokenizer.json": Kind(_json(_TOKENIZER), _in_model("tokenizer.json"), "tokenizer.json", 2),
        "safetensors": Kind(header, _header, "model.safetensors", 2),
        "safetensors index": Kind(_json({"weight_map": {"a": "model.safetensors"}}), _index, "index.json", 2),
        "prompts": Kind(_json({"prompt": "Hi"}) + b"\n", _prompts("a.jsonl"), "a.jsonl", 2),
        "prompts in CSV": Kind(b'id,prompt,max_tokens\n1,"Hi, you",20\n', _prompts("a.csv"), "a.csv", 2),
        "prompts in JSON": Kind(
            _json([{"messages": [{"role": "user", "content": "Hi"}]}]), _prompts("a.json"), "a.json", 2
        ),
        "prompts in Parquet": Kind(_parquet(), _prompts("a.parquet"), "a.parquet", 2),
        "conversations": Kind(_json(_CONVERSATION) + b"\n", _conversations("a.jsonl"), "a.jsonl", 2),
        "captured conversations": Kind(_json(_CAPTURED) + b"\n", _conversations("a.jsonl"), "a.jsonl", 2),
        "report": Kind(_json(example().to_dict()), _report, "report.json", 2),
        "catalogue update": Kind(_json(_UPDATE), _update_file, "update.json", 2),
        "docker config": Kind(_json({"auths": {"r.example": {"auth": "dTpw"}}}), _docker_config, "config.json", 2),
        "compiled record": Kind(_json({"key": "k", "parts": {"target": "a"}}), _container_record),
        "compiled files' times": Kind(_json({"kernel.o": 5}), _container_times),
        "container's variable": Kind(_json({"target": "a"}), _container_parts),
    }
    services = {
        "hub": Kind(_json({"sha": COMMIT, "siblings": _SIBLINGS}), _hub, "org/model"),
        "prices and heads": Kind(_json(_PRICES), _refresh),
        "list of files": Kind(_json([{"name": "0.99.0-gpu-sagemaker.yml", "id": "a/b"}]), _refresh),
        "package index": Kind(_json({"versions": ["0.99.0"]}), _refresh),
        "OCI manifest": Kind(_json(_manifest(_CONFIG)), _oci_manifest, "r.example"),
        "OCI index": Kind(
            _json(
                {
                    "manifests": [
                        {
                            "digest": digest_of(_json(_manifest(_CONFIG))),
                            "platform": {"os": "linux", "architecture": "amd64"},
                        }
                    ]
                }
            ),
            _oci_index,
            "r.example",
        ),
        "OCI config": Kind(_CONFIG, _oci_config, "r.example"),
        "OCI error": Kind(_json({"errors": [{"code": "X", "message": "no"}]}), _oci_error, "r.example"),
        "OCI token": Kind(_json({"token": "t", "access_token": "u"}), _oci_token, "r.example"),
        "engine's stream": Kind(_json(_CHAT), _events, "endpoint|stream ended"),
        "engine's error": Kind(
            _json({"error": {"message": "no"}}), lambda c, _: message_in(c.decode(errors="replace"))
        ),
        "engine's metrics": Kind(_PAGE, _metrics_page, "pod a"),
        "benchmark's stream": Kind(_json(_CHAT), _benchmark_events),
    }
    state = {name: Kind(*good) for name, good in state_kinds(folder / "state").items()}
    training = {name: Kind(*good) for name, good in training_kinds(folder / "training").items()}
    return {**files, **services, **_aws_kinds(), **_kubernetes_kinds(), **state, **training}


def _aws_kinds() -> dict[str, Kind]:
    entry = {**gpt_oss(), "HubContentDocument": json.dumps(gpt_oss()["HubContentDocument"])}
    return {
        "SageMaker endpoint": Kind(_json(_DESCRIBED), _by_platform(lambda p: p.status("chat")), "DescribeEndpoint"),
        "SageMaker refusal": Kind(
            _json({"__type": "ValidationException", "message": "no"}),
            _by_platform(lambda p: p.status("chat"), 400),
            "chat|DescribeEndpoint",
        ),
        "CloudWatch alarms": Kind(
            _json({"MetricAlarms": [{"AlarmName": "a"}]}), _by_clients(_alarms), "DescribeAlarms"
        ),
        "CloudWatch log": Kind(
            _json({"events": [{"timestamp": 5, "message": "x"}], "nextForwardToken": "f"}),
            _by_clients(_events_of_log),
            "GetLogEvents",
        ),
        "S3 listing": Kind(_OBJECTS, _by_clients(_objects), "AWS|asking"),
        "IAM role": Kind(_ROLE, _by_clients(_role), ""),
        "S3 lease": Kind(_json(_HOLDER), _by_clients(lambda c: str(BucketLease(c, "b", "chat").read()))),
        "JumpStart answer": Kind(_json(entry), _by_clients(lambda c: parse_jumpstart(read_jumpstart(c, "m"))), ""),
        "JumpStart entry": Kind(_json(gpt_oss()), lambda c, _: parse_jumpstart(_object(c)), "JumpStart"),
        "JumpStart gated entry": Kind(_json(gated()), lambda c, _: parse_jumpstart(_object(c)), "JumpStart"),
        "SageMaker invocation": Kind(
            _json({"choices": []}), _by_clients(lambda c: runtime.invoke(c.runtime, "chat", {}, lambda _: None)), "chat"
        ),
    }


def _object(content: bytes) -> Any:
    """What `read_jumpstart` would pass on: an object, whatever is in it."""
    from toolkit.errors import PlatformError

    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PlatformError(f"JumpStart: {error}") from error
    if not isinstance(found, dict):
        raise PlatformError("JumpStart: no object")
    return found


def _kubernetes_kinds() -> dict[str, Kind]:
    listed = _json({"items": [_DEPLOYMENT]})
    both = _json({**_DEPLOYMENT, "items": [_DEPLOYMENT]})
    return {
        "Kubernetes deployment": Kind(_json(_DEPLOYMENT), _by_cluster(lambda p: p.status("chat")), ""),
        "Kubernetes list": Kind(listed, _by_cluster(lambda p: p.endpoints()), ""),
        "Kubernetes objects": Kind(both, _by_cluster(lambda p: p.observe([], ["chat"]), again=True), ""),
        "Kubernetes pods": Kind(_json({"items": [_POD]}), _by_cluster(_used_pods), ""),
        "Kubernetes refusal": Kind(
            _json(_REFUSED), _by_cluster(lambda p: p.observe([manifests.service()], ["chat"]), 409), ""
        ),
        "Kubernetes invocation": Kind(
            _json({"choices": []}),
            _by_cluster(lambda p: invoke_in_cluster(p.cluster, "chat", {}, lambda _: None)),
            "chat",
        ),
    }
