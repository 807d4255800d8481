"""Update the catalogue from the network: revisions of heads (Hugging Face hub) and prices (AWS's price list).

Both are public and need no credentials. Unverified: the real price list was not read for this. Its format is
taken from public programs that read it and from quoted entries, such as usage type USE2-Host:ml.g6.xlarge,
1.1267000000 USD, unit Hrs, "$1.1267 per Hosting ml.g6.xlarge hour in US East (Ohio)". Training, Studio, asynchronous
inference and the rest have usage types of their own, reservations terms of their own.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx

from toolkit import documents

HUB = "https://huggingface.co"
PRICE_LIST = "https://pricing.us-east-1.amazonaws.com"
REGION = "us-east-1"
_HOSTING = re.compile(r"(?:^|-)Host:(ml\..+)$")


# AWS's list of one service in one region has tens of MB.
_PRICES = documents.Limits(size=512 * 1024**2, items=50_000_000, seconds=600.0)
T = TypeVar("T")


@dataclass(frozen=True)
class _Repository:
    """What the hub says of a model's repository, in the hub's names."""

    sha: str | None = None
    lastModified: str | None = None  # noqa: N815
    gated: bool | str | None = None


@dataclass(frozen=True)
class _Amount:
    USD: float = 0.0


@dataclass(frozen=True)
class _Dimension:
    pricePerUnit: _Amount = _Amount()  # noqa: N815
    unit: str = ""


@dataclass(frozen=True)
class _Term:
    priceDimensions: dict[str, _Dimension] = field(default_factory=dict)  # noqa: N815


@dataclass(frozen=True)
class _Terms:
    OnDemand: dict[str, dict[str, _Term]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Attributes:
    usagetype: str = ""


@dataclass(frozen=True)
class _Product:
    attributes: _Attributes = _Attributes()


@dataclass(frozen=True)
class _PriceList:
    """AWS's price list of a service in a region, in AWS's names: what tells of hosting per hour."""

    publicationDate: str = ""  # noqa: N815
    products: dict[str, _Product] = field(default_factory=dict)
    terms: _Terms = field(default_factory=_Terms)


def refresh(
    client: httpx.Client, folder: Path, *, hub: str = HUB, price_list: str = PRICE_LIST, region: str = REGION
) -> list[str]:
    """Update heads.json and instances.json in `folder`. Returns a line for each change and for each failure to read.

    Entries that cannot be read are kept. A file without changes is not written. Raises OSError.
    """
    heads = refresh_heads(client, folder, hub=hub)
    return [*heads, *refresh_prices(client, folder, price_list=price_list, region=region)]


def refresh_heads(client: httpx.Client, folder: Path, *, hub: str = HUB) -> list[str]:
    """Update the revisions in heads.json."""
    path = folder / "heads.json"
    data = _read(path)
    changed: list[str] = []
    unread: list[str] = []
    for head in data["heads"]:
        answer = _get(client, f"{hub}/api/models/{head['repo']}", _Repository)
        if isinstance(answer, str):
            unread.append(f"heads.json: {head['repo']}: not read, {answer}")
        else:
            changed += [f"heads.json: {head['repo']}: {line}" for line in _update(head, _hub_facts(answer))]
    _write(path, data, changed)
    return changed + unread


def _hub_facts(answer: _Repository) -> dict[str, Any]:
    """The hub's facts about a repository; `gated` is false, or how access is granted (`auto`, `manual`)."""
    facts: dict[str, Any] = {"revision": answer.sha, "last_modified": answer.lastModified}
    if answer.gated is not None:
        facts["gated"] = bool(answer.gated)
    return {name: value for name, value in facts.items() if value is not None}


def refresh_prices(
    client: httpx.Client, folder: Path, *, price_list: str = PRICE_LIST, region: str = REGION
) -> list[str]:
    """Update the prices in instances.json: on-demand US dollars per hour of real-time hosting in `region`.

    A type without a price in the region's list keeps its old one. The whole list (one JSON document, perhaps
    hundreds of MB) is held in memory while it is read.
    """
    url = f"{price_list}/offers/v1.0/aws/AmazonSageMaker/current/{region}/index.json"
    answer = _get(client, url, _PriceList, _PRICES)
    if isinstance(answer, str):
        return [f"instances.json: prices not read, {answer}"]
    prices = dict(_hosting_prices(answer))
    if not prices:
        return [f"instances.json: prices not read, {url} lists no hosting price per hour"]
    source = {"region": region, "date": answer.publicationDate[:10], "source": url, "quality": "good"}
    data = _read(folder / "instances.json")
    changed: list[str] = []
    unread: list[str] = []
    for instance in data["instances"]:
        name, old = instance["name"], instance["price"]
        new = {"usd_per_hour": prices.get(name), **source}
        if name not in prices:
            unread += [f"instances.json: {name}: no hosting price in {region}"] if instance["hostable"] else []
        elif old is None or {**old, "date": new["date"]} != new:  # a later date alone is no change
            instance["price"] = new
            changed.append(f"instances.json: {name}: {_shown(old)} -> {_shown(new)}")
    _write(folder / "instances.json", data, changed)
    return changed + unread


def _hosting_prices(answer: _PriceList) -> Iterator[tuple[str, float]]:
    """Instance type and US dollars per hour of real-time hosting, from a regional price list of SageMaker."""
    for sku, product in answer.products.items():
        hosting = _HOSTING.search(product.attributes.usagetype)
        terms = answer.terms.OnDemand.get(sku, {}).values() if hosting else ()
        for dimension in (dimension for term in terms for dimension in term.priceDimensions.values()):
            usd_per_hour = dimension.pricePerUnit.USD
            if hosting and dimension.unit == "Hrs" and 0 < usd_per_hour < math.inf:
                yield hosting[1], usd_per_hour


def _shown(price: Mapping[str, Any] | None) -> str:
    return f"{price['usd_per_hour']} USD ({price['region']}, {price['date']})" if price else "no price"


def _update(entry: dict[str, Any], facts: Mapping[str, Any]) -> list[str]:
    changes = {name: value for name, value in facts.items() if entry[name] != value}
    lines = [
        f"{name} {'unknown' if entry[name] in ('', None) else entry[name]} -> {value}"
        for name, value in changes.items()
    ]
    entry.update(changes)
    return lines


def _get(client: httpx.Client, url: str, model: type[T], limits: documents.Limits = documents.LIMITS) -> T | str:
    """The document at `url`, or the reason why it could not be read."""
    try:
        response = documents.request(client, "GET", url, limits)
        if not response.is_success:
            return f"{url} answered {response.status_code} {response.reason_phrase}"
        return documents.parse(model, response.content, limits)
    except (httpx.HTTPError, httpx.InvalidURL, documents.Unfit) as error:
        return f"{url}: {error or type(error).__name__}"


def _read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def _write(path: Path, data: dict[str, Any], changed: list[str]) -> None:
    """Write a catalogue file atomically, if it changed."""
    if not changed:
        return
    data["date"] = datetime.now(UTC).date().isoformat()
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)
