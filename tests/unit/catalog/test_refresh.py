"""Refreshing the catalogue from a hub and a price list, both on loopback."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from toolkit.catalog.lookup import FOLDER
from toolkit.catalog.refresh import refresh, refresh_prices

REPO = "amazon/GPT-OSS-20B-P-EAGLE"
PRICES = "/offers/v1.0/aws/AmazonSageMaker/current/us-east-1/index.json"
HUB_ANSWER = {"id": REPO, "sha": "abc123", "lastModified": "2026-05-01T10:00:00.000Z", "gated": "auto"}


def price_list(**usd_per_hour: str) -> dict[str, Any]:
    """A cut-out of a regional price list: a hosting product for each size of g7e, and what else is priced there."""
    hosting = {f"USE1-Host:ml.g7e.{size}": price for size, price in usd_per_hour.items()}
    others = {
        "USE1-Train:ml.g7e.2xlarge": "9.99",
        "USE1-AsyncInf:ml.g7e.2xlarge": "9.98",
        "USE1-Studio:JupyterLab:ml.g7e.2xlarge": "9.97",
        "USE1-Host:VolumeUsage.gp3": "0.11",
    }
    skus = {f"SKU{number}": item for number, item in enumerate({**others, **hosting}.items())}
    return {
        "formatVersion": "v1.0",
        "offerCode": "AmazonSageMaker",
        "version": "20261119000000",
        "publicationDate": "2026-11-19T00:00:00Z",
        "products": {sku: product(sku, usagetype) for sku, (usagetype, _) in skus.items()},
        "terms": {
            "OnDemand": {sku: {f"{sku}.JRTCKXETXF": term(sku, price)} for sku, (_, price) in skus.items()},
            "Reserved": {},
        },
    }


def product(sku: str, usagetype: str) -> dict[str, Any]:
    name = usagetype.rpartition(":")[2]
    attributes = {
        "servicecode": "AmazonSageMaker",
        "locationType": "AWS Region",
        "regionCode": "us-east-1",
        "component": "Hosting" if "-Host:" in usagetype else "other",
        "instanceName": name,
        "usagetype": usagetype,
        "operation": "RunInstance",
    }
    return {"sku": sku, "productFamily": "ML Instance", "attributes": attributes}


def term(sku: str, price: str) -> dict[str, Any]:
    dimension = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": price}}
    return {
        "offerTermCode": "JRTCKXETXF",
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension},
    }


IN_YUAN = json.loads(json.dumps(price_list(**{"2xlarge": "30.0"})).replace('"USD"', '"CNY"'))


class Answers(ThreadingHTTPServer):
    """Answers each path with the JSON it was given, every other one with 404."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Any] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path)
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Answers]:
    with Answers() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A catalogue of one head and the two smallest g7e types."""
    for name, kind, key, wanted in (
        ("heads.json", "heads", "repo", {REPO}),
        ("instances.json", "instances", "name", {"ml.g7e.2xlarge", "ml.g7e.4xlarge"}),
    ):
        data = json.loads((FOLDER / name).read_text(encoding="utf-8"))
        data[kind] = [entry for entry in data[kind] if entry[key] in wanted]
        (tmp_path / name).write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return tmp_path


def run(site: Answers, folder: Path) -> list[str]:
    with httpx.Client(timeout=5) as client:
        return refresh(client, folder, hub=site.url, price_list=site.url)


def entry(folder: Path, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{kind}.json").read_text(encoding="utf-8"))[kind][0]
    return found


def test_revision_date_and_gate_of_a_head_come_from_the_hub(site: Answers, folder: Path) -> None:
    site.answers[f"/api/models/{REPO}"] = HUB_ANSWER
    lines = run(site, folder)
    assert lines[:3] == [
        f"heads.json: {REPO}: revision unknown -> abc123",
        f"heads.json: {REPO}: last_modified unknown -> 2026-05-01T10:00:00.000Z",
        f"heads.json: {REPO}: gated False -> True",
    ]
    head = entry(folder, "heads")
    assert (head["revision"], head["gated"], head["card_k"]) == ("abc123", True, 7)


def test_hosting_prices_come_from_the_price_list_and_say_so(site: Answers, folder: Path) -> None:
    site.answers[PRICES] = price_list(**{"2xlarge": "4.2039000000"})
    lines = run(site, folder)
    assert (
        "instances.json: ml.g7e.2xlarge: 4.2039 USD (us-west-2, 2026-09-01) -> 4.2039 USD (us-east-1, 2026-11-19)"
        in lines
    )
    assert "instances.json: ml.g7e.4xlarge: no hosting price in us-east-1" in lines
    source = f"{site.url}{PRICES}"
    expected = {
        "usd_per_hour": 4.2039,
        "region": "us-east-1",
        "date": "2026-11-19",
        "source": source,
        "quality": "good",
    }
    assert entry(folder, "instances")["price"] == expected


def test_a_second_refresh_changes_nothing(site: Answers, folder: Path) -> None:
    site.answers = {f"/api/models/{REPO}": HUB_ANSWER, PRICES: price_list(**{"2xlarge": "4.2", "4xlarge": "5.0"})}
    run(site, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert run(site, folder) == []
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_what_cannot_be_read_stays_and_is_named(
    site: Answers, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = shutil.copytree(folder, tmp_path_factory.mktemp("before") / "catalog")
    lines = run(site, folder)
    assert lines == [
        f"heads.json: {REPO}: not read, {site.url}/api/models/{REPO} answered 404 Not Found",
        f"instances.json: prices not read, {site.url}{PRICES} answered 404 Not Found",
    ]
    for path in folder.iterdir():
        assert path.read_bytes() == (before / path.name).read_bytes()


@pytest.mark.parametrize(
    "answer",
    [{}, [], {"products": []}, price_list(), price_list(**{"2xlarge": "four"}), IN_YUAN],
    ids=["empty", "no object", "no products", "no hosting", "no number", "not in dollars"],
)
def test_a_price_list_of_another_shape_is_not_taken_for_no_prices(site: Answers, folder: Path, answer: Any) -> None:
    site.answers[PRICES] = answer
    assert run(site, folder)[-1].startswith("instances.json: prices not read")


def test_prices_alone_leave_the_heads_as_they_are(site: Answers, folder: Path) -> None:
    heads = (folder / "heads.json").read_bytes()
    site.answers[PRICES] = price_list(**{"2xlarge": "4.2", "4xlarge": "5.0"})
    with httpx.Client(timeout=5) as client:
        lines = refresh_prices(client, folder, price_list=site.url)
    assert [line.rpartition(" -> ")[2] for line in lines] == [
        "4.2 USD (us-east-1, 2026-11-19)",
        "5.0 USD (us-east-1, 2026-11-19)",
    ]
    assert (folder / "heads.json").read_bytes() == heads


def test_prices_of_another_region_name_it(site: Answers, folder: Path) -> None:
    path = PRICES.replace("us-east-1", "eu-central-1")
    site.answers[path] = json.loads(json.dumps(price_list(**{"2xlarge": "5.2549"})).replace("USE1-", "EUC1-"))
    with httpx.Client(timeout=5) as client:
        refresh_prices(client, folder, price_list=site.url, region="eu-central-1")
    price = entry(folder, "instances")["price"]
    assert (price["usd_per_hour"], price["region"]) == (5.2549, "eu-central-1")
    assert price["source"].endswith(path)


def test_a_type_that_costs_nothing_in_the_list_keeps_the_price_it_has(site: Answers, folder: Path) -> None:
    site.answers[PRICES] = price_list(**{"2xlarge": "0.0000000000", "4xlarge": "5.0"})
    before = entry(folder, "instances")["price"]
    assert "instances.json: ml.g7e.2xlarge: no hosting price in us-east-1" in run(site, folder)
    assert entry(folder, "instances")["price"] == before


def test_a_network_that_is_down_is_said_once_for_each_source(folder: Path) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route", request=request)

    with httpx.Client(transport=httpx.MockTransport(refuse)) as client:
        lines = refresh(client, folder)
    assert [line.rpartition(": ")[2] for line in lines] == ["no route", "no route"]


def test_files_keep_the_format_of_the_catalogue(site: Answers, folder: Path) -> None:
    site.answers[f"/api/models/{REPO}"] = HUB_ANSWER
    run(site, folder)
    text = (folder / "heads.json").read_text(encoding="utf-8")
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
    assert sorted(path.name for path in folder.iterdir()) == ["heads.json", "instances.json"]
