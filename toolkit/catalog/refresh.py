"""Update the catalogue from the network: revisions of heads (Hugging Face hub) and prices (AWS's price list).

Both are public and need no credentials. Unverified: the real price list was not read for this. Its format is
taken from public programs that read it and from quoted entries, such as usage type USE2-Host:ml.g6.xlarge,
1.1267000000 USD, unit Hrs, "$1.1267 per Hosting ml.g6.xlarge hour in US East (Ohio)". Training, Studio, asynchronous
inference and the rest have usage types of their own, reservations terms of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

HUB = "https://huggingface.co"
PRICE_LIST = "https://pricing.us-east-1.amazonaws.com"
REGION = "us-east-1"
_HOSTING = re.compile(r"(?:^|-)Host:(ml\..+)$")


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
        answer = _get(client, f"{hub}/api/models/{head['repo']}")
        if isinstance(answer, str):
            unread.append(f"heads.json: {head['repo']}: not read, {answer}")
        else:
            changed += [f"heads.json: {head['repo']}: {line}" for line in _update(head, _hub_facts(answer))]
    _write(path, data, changed)
    return changed + unread


def _hub_facts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The hub's facts about a repository; `gated` is false, or how access is granted (`auto`, `manual`)."""
    facts = {"revision": answer.get("sha"), "last_modified": answer.get("lastModified")}
    if "gated" in answer:
        facts["gated"] = bool(answer["gated"])
    return {name: value for name, value in facts.items() if value is not None}


def refresh_prices(
    client: httpx.Client, folder: Path, *, price_list: str = PRICE_LIST, region: str = REGION
) -> list[str]:
    """Update the prices in instances.json: on-demand US dollars per hour of real-time hosting in `region`.

    A type without a price in the region's list keeps its old one. The whole list (one JSON document, perhaps
    hundreds of MB) is held in memory while it is read.
    """
    url = f"{price_list}/offers/v1.0/aws/AmazonSageMaker/current/{region}/index.json"
    answer = _get(client, url)
    if isinstance(answer, str):
        return [f"instances.json: prices not read, {answer}"]
    try:
        prices = dict(_hosting_prices(answer))
    except (AttributeError, TypeError, ValueError) as error:
        return [f"instances.json: prices not read, {url} does not have the expected format: {error}"]
    if not prices:
        return [f"instances.json: prices not read, {url} lists no hosting price per hour"]
    source = {"region": region, "date": str(answer.get("publicationDate", ""))[:10], "source": url, "quality": "good"}
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


def _hosting_prices(answer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Instance type and US dollars per hour of real-time hosting, from a regional price list of SageMaker."""
    on_demand = answer.get("terms", {}).get("OnDemand", {})
    for sku, product in answer.get("products", {}).items():
        hosting = _HOSTING.search(product.get("attributes", {}).get("usagetype", ""))
        if not hosting:
            continue
        dimensions = [d for term in on_demand.get(sku, {}).values() for d in term.get("priceDimensions", {}).values()]
        for dimension in dimensions:
            usd_per_hour = float(dimension.get("pricePerUnit", {}).get("USD", 0))
            if dimension.get("unit") == "Hrs" and usd_per_hour > 0:
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


def _get(client: httpx.Client, url: str) -> dict[str, Any] | str:
    """The JSON object at `url`, or the reason why it could not be read."""
    try:
        response = client.get(url, follow_redirects=True)
        answer = response.json() if response.is_success else None
    except (httpx.HTTPError, ValueError) as error:
        return f"{url}: {error or type(error).__name__}"
    if not response.is_success:
        return f"{url} answered {response.status_code} {response.reason_phrase}"
    return answer if isinstance(answer, dict) else f"{url} did not answer with a JSON object"


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
