"""Records, locks, tags, marks and leases are history and facts: a crafted one gives no right to do anything."""

from __future__ import annotations

import io
import json
import time
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from aws_in_memory import aws_in_memory
from hostile import obeyed
from pairs import RECIPE, write_hub_pair, write_pair

import toolkit
from toolkit.apply.progress import Silent
from toolkit.catalog.refresh import refresh
from toolkit.catalog.updates import NOTHING
from toolkit.cli.main import run
from toolkit.errors import PlatformError, RecipeError, UsageError
from toolkit.home import home
from toolkit.loading import load
from toolkit.planning.plan import differences
from toolkit.planning.record import Event
from toolkit.planning.resources import Account, Existing, Observed, Resource
from toolkit.platforms.kubernetes.lease import ClusterLease
from toolkit.platforms.lease import lease as hold
from toolkit.platforms.sagemaker.kinds.bucket import WeightsKind, WeightsReferenceKind
from toolkit.platforms.sagemaker.kinds.training_job import ArtifactsKind
from toolkit.platforms.sagemaker.objects import BucketLease
from toolkit.platforms.sagemaker.rules.updates import rollback_plan
from toolkit.recipe.lock import lock_path, pinned, read_lock

ON_AWS = RECIPE.replace("0.32.0", "0.30.0").replace(
    "platform: {name: local}",
    "platform: {name: sagemaker, instance_types: [ml.g6.xlarge], role: create}\n"
    "observability: {alarms: false, dashboard: false}",
)


def test_a_record_does_nothing(tmp_path: Path) -> None:
    """The same deployment and removal, with and without a record that somebody else wrote."""
    recipe = write_pair(tmp_path)
    recipe.write_text(ON_AWS)
    record = home() / "records" / "tiny.jsonl"
    events = [
        Event("2026-01-01T00:00:00.000", "0" * 12, kind, name, verb, step)  # type: ignore[arg-type]
        for kind, name, verb, step in (
            ("Endpoint", "theirs", "delete", "started"),
            ("Weights", "../..", "delete", "interrupted"),
            ("Role", "admin", "create", "failed"),
        )
    ]
    done = []
    for written in ("", "".join(json.dumps(asdict(event)) + "\n" for event in events)):
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(written)
        with aws_in_memory() as platform:
            toolkit.deploy(recipe, progress=Silent())
            toolkit.destroy(recipe, progress=Silent())
            done.append(platform.done)
            assert platform.resources == {}
    assert done[0] == done[1] != []


@pytest.mark.parametrize(
    "revision", ["main", "refs/pr/7", "../../../evil/model/resolve/main", "--local-dir=/", "x y", "\x1b[2J"]
)
def test_a_lock_pins_commits_only(tmp_path: Path, capsys: pytest.CaptureFixture[str], revision: str) -> None:
    """Anybody can open a pull request on a public model; `..` would lead to another model."""
    recipe = write_hub_pair(tmp_path, target={"revision": revision})
    assert run(["plan", str(recipe)]) == 1
    assert obeyed(capsys.readouterr().err) == []
    assert run(["check", str(recipe), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["code"] for finding in found} >= {"lock.unreadable", "lock.missing"}


def test_a_lock_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write_hub_pair(tmp_path, drafter={"model": "evil/drafter"})
    assert run(["plan", str(recipe), "--json"]) == 1
    assert "lock.stale" in {finding["code"] for finding in json.loads(capsys.readouterr().out)["findings"]}


def test_a_lock_of_another_model_pins_nothing(tmp_path: Path) -> None:
    recipe = load(write_hub_pair(tmp_path, drafter={"model": "evil/drafter"}))
    complete = pinned(recipe, read_lock(lock_path(recipe)))
    assert [source.revision for source in complete.models.values()] == ["abc", None]


def test_a_lock_s_sizes_change_time_outs_and_disks_only(tmp_path: Path) -> None:
    honest = toolkit.plan(write_hub_pair(tmp_path))
    crafted = {"weight_bytes": 2 * 10**11, "source": "evil", "generation_config": {"temperature": 9}}
    changed = differences(honest, toolkit.plan(write_hub_pair(tmp_path, target=crafted)))
    keys = {line.partition(": saved")[0].rpartition(".")[2].rpartition(", ")[2] for line in changed}
    assert keys == {"name", "EndpointConfigName", "ModelDataDownloadTimeoutInSeconds"}


def test_a_lock_with_less_than_no_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError):
        toolkit.plan(write_hub_pair(tmp_path, target={"weight_bytes": -(10**15)}))


def test_a_tag_cannot_bring_another_s_configuration_into_service() -> None:
    running = {"Running": "tiny-1", "Previous": "theirs"}
    observed = Observed(
        (
            Existing("Endpoint", "tiny", True, ("tiny",), running),
            Existing("EndpointConfig", "theirs", False, ("theirs",), {"Models": ["miner"]}),
        )
    )
    with pytest.raises(UsageError, match="ran theirs before, which does not exist"):
        rollback_plan("tiny", "sagemaker", "tiny", observed)


class Bucket:
    """S3 with these keys in one bucket."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def head_bucket(self, **_: Any) -> None:
        pass

    def get_paginator(self, _: str) -> Any:
        found = lambda Prefix, **_: [{"Contents": [{"Key": k, "Size": 1} for k in self.keys if k.startswith(Prefix)]}]  # noqa: E731, N803
        return SimpleNamespace(paginate=found)


@pytest.mark.parametrize("mark", ["uses//tiny", "uses/../tiny", "uses/a/../../tiny", "uses/tiny", "uses/.aws/tiny"])
def test_a_mark_cannot_make_more_than_its_own_weights_go(mark: str) -> None:
    class Refused(Exception):
        pass

    clients = SimpleNamespace(s3=Bucket(mark, "weights/w/model", "leases/other"), refusal=Refused)
    account = Account("123456789012", "us-west-2")
    look: Any = SimpleNamespace(clients=clients, account=account, endpoints=["tiny"], wanted=lambda *_: [], desired=())
    look.once = lambda read, name: read(look, name)
    for kind, folders in (
        (WeightsKind(on_aws=True), ("weights/", "staged/")),
        (WeightsReferenceKind(on_aws=True), mark),
    ):
        for item in kind.observe(look):
            request = kind.delete_request(item, "tiny")
            assert request.pop("Bucket") == "toolkit-123456789012-us-west-2"  # type: ignore[attr-defined]
            assert all(value.startswith(folders) and value.count("/") >= 1 for value in request.values())
            assert request.get("Prefix") not in ("", "/", "weights/")


@pytest.mark.parametrize(
    "record",
    ["[]", '{"key": "k"}', '{"key": "k", "parts": ["a"]}', '{"key": "k", "parts": {"target": [1]}}', "[" * 10**5],
)
def test_a_record_of_compiled_code_that_is_none_counts_for_nothing(record: str) -> None:
    pages = {"list_objects_v2": [{"CommonPrefixes": [{"Prefix": "neuron/k/"}]}], "list_training_jobs": []}
    client = SimpleNamespace(
        get_object=lambda **_: {"Body": io.BytesIO(record.encode())},
        get_paginator=lambda name: SimpleNamespace(paginate=lambda **_: pages[name]),
    )
    clients = SimpleNamespace(s3=client, sagemaker=client, refusal=LookupError)
    account = Account("123456789012", "us-west-2")
    wanted = [Resource("Artifacts", "k", {"Key": "k", "Parts": {"target": "org/model@abc"}})]
    look: Any = SimpleNamespace(clients=clients, account=account, endpoints=[], wanted=lambda *_: wanted)
    (found,) = ArtifactsKind(on_aws=True).observe(look)
    assert (found.state["Complete"], found.state["Nearest"]) == (False, None)


def stored(**changes: Any) -> str:
    return json.dumps({"user": "ann", "host": "laptop", "machine": "another", "pid": 5, "since": 1.0, **changes})


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "7", '"x"', "{}", "[" * 100_000),
        *(stored(since="today"), stored(since=float("inf")), stored(since=None)),
        *(stored(pid="one"), stored(pid=10**30), stored(pid=-1), stored(pid=0)),
    ],
)
def test_what_is_no_lease_has_no_holder(text: str) -> None:
    held = _lease(text).read()
    assert held
    assert held.holder is None


def test_a_lease_of_somebody_else_keeps_out_whatever_it_says() -> None:
    for user in ("\x1b[2J", "[bold]", "x" * 10_000):
        with (
            pytest.raises(PlatformError, match="is being changed by"),
            hold("tiny", _lease(stored(user=user)), time.time),
        ):
            pass


YEARS_AHEAD = 4e9  # in 2096


@pytest.mark.parametrize("until", [0, YEARS_AHEAD, 1e300, "soon"])
def test_a_lease_that_is_to_last_for_years_is_over_when_nobody_renews_it(until: object) -> None:
    """By S3's own clock: what is written in a lease, such as `until` by earlier versions, and the clock of this machine
    neither end it nor keep anybody out for ever."""
    with (
        pytest.raises(PlatformError, match="is being changed by") as refused,
        hold("tiny", _lease(stored(until=until))),
    ):
        pass
    assert "its lease expires within 300 seconds" in refused.value.hint
    with hold("tiny", _lease(stored(until=until), age_s=301)):
        pass


def test_on_a_cluster_too_one_that_is_to_last_for_years_is_over_when_nobody_renews_it() -> None:
    labels = {"app.kubernetes.io/managed-by": "toolkit"}
    document = {
        "metadata": {"name": "toolkit-tiny", "resourceVersion": "1", "labels": labels},
        "spec": {"holderIdentity": "ann@laptop", "leaseDurationSeconds": 2**31 - 1},
    }
    cluster: Any = SimpleNamespace(url="https://cluster.example", namespace="ml", find=lambda _: document)
    held = ClusterLease(cluster, "tiny", time.monotonic, time.sleep).read()
    assert held
    assert held.seconds == 300


def _lease(text: str, age_s: float = 0) -> BucketLease:
    """The lease with that text, which was written so many seconds ago."""
    now = datetime.now(UTC)
    answer = {
        "ETag": "1",
        "LastModified": now - timedelta(seconds=age_s),
        "ResponseMetadata": {"HTTPHeaders": {"date": format_datetime(now)}},
    }
    s3 = SimpleNamespace(
        get_object=lambda **_: {**answer, "Body": io.BytesIO(text.encode())},
        put_object=lambda IfNoneMatch="", **_: {"ETag": "" if IfNoneMatch else "2"},  # noqa: N803
        delete_object=lambda **_: {},
    )
    clients: Any = SimpleNamespace(s3=s3, account_id="123456789012")
    return BucketLease(clients, "toolkit-123456789012-us-west-2", "tiny")


@pytest.mark.parametrize(
    "text",
    [
        'version: "0.99.0"\ntags: ["x@sha256:0123"]',
        'version: "0.99.0"\ntags: ["../../other:latest"]',
        'version: "0.99.0"\ntags: ["a b"]',
        'version: "0.99.0; rm"\ntags: ["x"]',
        "version: !!python/object/apply:os.system [exit]\ntags: [x]",
        "&a [*a, *a]",
        "- " * 30_000,
    ],
    ids=["digest", "path", "space", "version", "object", "alias", "deep"],
)
def test_data_on_an_image_names_a_tag_and_nothing_else(text: str) -> None:
    """What `toolkit catalog update` reads from AWS's repository becomes part of an image's address."""

    def answer(request: httpx.Request) -> httpx.Response:
        listing = "/contents/" in request.url.path
        return (
            httpx.Response(200, json=[{"name": "0.99.0-gpu-sagemaker.yml"}])
            if listing
            else httpx.Response(200, text=text)
        )

    client = httpx.Client(transport=httpx.MockTransport(answer))
    found = refresh(client, NOTHING, (), date(2026, 11, 22))
    assert found.update.images == ()
    assert "images of AWS" in [line.partition(": ")[0] for line in found.failed]
