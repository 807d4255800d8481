"""What others publish, in their own formats: AWS's price lists and image data, the Hugging Face hub, package indexes.

Only formats: nothing here uses the network. Every function raises documents.Unfit for a document of another shape.
Unverified: no real price list was at hand. Its format is taken from public programs that read it and from quoted
entries, such as usage type USE2-Host:ml.g6.xlarge, 1.1267000000 USD, unit Hrs. Training, Studio, asynchronous inference
and the rest have usage types of their own, reservations terms of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit import documents
from toolkit.catalog import lookup

PRICE_LIST = "https://pricing.us-east-1.amazonaws.com"
PRICES = documents.Limits(size=1024**3, items=100_000_000, seconds=600.0)
"""AWS's list of one service in one region has tens of MB, EC2's hundreds."""

_USAGE = {"AmazonSageMaker": re.compile(r"(?:^|-)Host:(ml\..+)$"), "AmazonEC2": re.compile(r"(?:^|-)BoxUsage:(.+)$")}
# Of EC2: Linux without software that costs extra.
_OPERATIONS = {"AmazonSageMaker": (), "AmazonEC2": ("RunInstances",)}
# It becomes part of an image's address, in which other characters would mean another image.
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_VERSION = re.compile(r"\d+(\.\d+)+((rc|\.dev)\d+)?")
_SHOWN = 60
_ARCHITECTURE = re.compile("DFlash|DSpark|Eagle3|^Eagle")
# Published K are 1 to 15.
_MOST_TOKENS = 64
# An EAGLE-3 head with one of these drafts all tokens in one pass.
_MASK_TOKENS = ("ptd_token_id", "pard_token", "mask_token_id")


@dataclass(frozen=True)
class Prices:
    """US dollars per hour, on demand, by instance type; `date` is the day the list was published."""

    date: str
    prices: Mapping[str, float]


@dataclass(frozen=True)
class Repository:
    """What the hub says of a model's repository, in the hub's names. `gated` may be how access is granted."""

    sha: str | None = None
    lastModified: str | None = None  # noqa: N815
    gated: bool | str | None = None
    cardData: dict[str, Any] | None = None  # noqa: N815


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
    operation: str = ""


@dataclass(frozen=True)
class _Product:
    attributes: _Attributes = _Attributes()


@dataclass(frozen=True)
class _PriceList:
    publicationDate: str = ""  # noqa: N815
    products: dict[str, _Product] = field(default_factory=dict)
    terms: _Terms = field(default_factory=_Terms)


@dataclass(frozen=True)
class _ImageData:
    """A file of AWS's image data: github aws/deep-learning-containers docs/src/data."""

    version: str
    tags: tuple[str, ...]
    cuda: str = ""
    python: str = ""
    engine: str = ""


def price_list_url(service: str, region: str, base: str = PRICE_LIST) -> str:
    """Where AWS publishes the prices of a service in a region; needs no credentials."""
    return f"{base}/offers/v1.0/aws/{service}/current/{region}/index.json"


def price_list(content: bytes, service: str) -> Prices:
    """Prices of real-time hosting (AmazonSageMaker), or of plain Linux instances (AmazonEC2)."""
    found = documents.parse(_PriceList, content, PRICES)
    prices = dict(_hourly(found, service))
    if not prices:
        raise documents.Unfit(f"it lists no price per hour of {service}")
    day = found.publicationDate[: len("2026-11-22")]
    if not documents.is_day(day):
        raise documents.Unfit(f"`publicationDate`: {day!r} is not a day")
    return Prices(day, prices)


def _hourly(prices: _PriceList, service: str) -> Iterator[tuple[str, float]]:
    for sku, product in prices.products.items():
        used = _USAGE[service].search(product.attributes.usagetype)
        if not used or (_OPERATIONS[service] and product.attributes.operation not in _OPERATIONS[service]):
            continue
        terms = prices.terms.OnDemand.get(sku, {}).values()
        for dimension in (dimension for term in terms for dimension in term.priceDimensions.values()):
            if dimension.unit == "Hrs" and 0 < dimension.pricePerUnit.USD < math.inf:
                yield used[1], dimension.pricePerUnit.USD


def hub_facts(repository: Repository) -> dict[str, Any]:
    """The catalogue's facts about a head, as far as the hub has them."""
    facts: dict[str, Any] = {"revision": repository.sha, "last_modified": repository.lastModified}
    if repository.gated is not None:
        facts["gated"] = bool(repository.gated)
    return {name: value for name, value in facts.items() if value is not None}


def written_method(config: Mapping[str, Any]) -> str:
    """The method that a drafter's config.json says it is for; empty if it says none."""
    speculators = {"peagle": "p-eagle", "eagle3": "eagle3", "eagle": "eagle", "dflash": "dflash", "dspark": "dspark"}
    if named := speculators.get(str(config.get("speculators_model_type"))):
        return named
    for architecture in architectures(config):
        if found := _ARCHITECTURE.search(architecture):
            parallel = found[0] == "Eagle3" and any(key in config for key in _MASK_TOKENS)
            return "p-eagle" if parallel else found[0].lower()
    model_types = {"eagle": "eagle", "gemma4_assistant": "gemma4_mtp", "gemma4_unified_assistant": "gemma4_mtp"}
    return model_types.get(str(config.get("model_type")), "")


def written_target(config: Mapping[str, Any]) -> str:
    """The model that a drafter's config.json says it was trained for; empty if it says none."""
    verifier = inner(inner(config, "speculators_config"), "verifier")
    return str(config.get("target_model") or verifier.get("name_or_path") or "")


def written_tokens(config: Mapping[str, Any]) -> int | None:
    """K in a config of speculators' format."""
    proposals = inner(config, "speculators_config").get("proposal_methods")
    first = proposals[0] if isinstance(proposals, list) and proposals and isinstance(proposals[0], dict) else {}
    return draft_tokens(first.get("speculative_tokens"))


def draft_tokens(value: Any) -> int | None:
    """A number of draft tokens; None for what can be none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST_TOKENS else None


def architectures(config: Mapping[str, Any]) -> list[str]:
    """The classes that a config.json names."""
    named = config.get("architectures")
    return [str(name) for name in named] if isinstance(named, list) else []


def inner(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key; empty where there is none."""
    value = config.get(key)
    return value if isinstance(value, Mapping) else {}


def image_data(data: Any) -> dict[str, str]:
    """The catalogue's facts about an image, from a file of AWS's image data: engine version, tag, CUDA, Python."""
    image = documents.fit(_ImageData, data)
    if not image.tags:
        raise documents.Unfit("it names no tag")
    if not _TAG.fullmatch(image.tags[0]):
        raise documents.Unfit(f"{image.tags[0][:_SHOWN]!r} is not a tag")
    in_engine = re.search(rf"{re.escape(lookup.engine_title())} (\S+)", image.engine)
    version = in_engine[1] if in_engine else image.version.partition("+")[0]
    if not _VERSION.fullmatch(version):
        raise documents.Unfit(f"{version[:_SHOWN]!r} is not a version")
    return {
        "version": version,
        "tag": image.tags[0],
        "cuda": _add_dots(image.cuda.removeprefix("cu"), 2),
        "python": _add_dots(image.python.removeprefix("py"), 1),
    }


def _add_dots(digits: str, major: int) -> str:
    """`130` as `13.0`, `312` as `3.12`."""
    return f"{digits[:major]}.{digits[major:]}" if digits else ""
