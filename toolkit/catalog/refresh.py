"""Read from public documents what is newer than the catalogue: prices, revisions of heads, images, versions, types.

No source needs credentials. What cannot be read stays as it was, and is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from toolkit import documents
from toolkit.catalog import lookup, new_heads, published
from toolkit.catalog.entries import Head, Image, Price
from toolkit.catalog.new_heads import Named, new_head
from toolkit.catalog.updates import Update

REGION = "us-east-1"
_IMAGE_FILE = re.compile(r"^(?P<version>[\d.]+)(\+\S+)?-gpu-sagemaker\.yml$")
# Types with accelerators; the price list has hundreds without.
_ACCELERATED = re.compile(r"^ml\.(g|p|inf|trn)\d")
# Who publishes drafters on the hub, and what their names have in common.
_PUBLISHERS = (
    ("amazon", "p-eagle"),
    ("RedHatAI", "speculator"),
    ("z-lab", "DFlash"),
    ("nvidia", "Eagle3"),
    ("thoughtworks", "Eagle3"),
    ("AngelSlim", "eagle3"),
    ("amd", "PARD"),
)
_RELEASE = re.compile(r"^\d+\.\d+\.\d+$")
_MOST_PAGES = 20
_WITHHELD = (401, 403, 404)
_YAML_LIMITS = documents.Limits(size=64 * 1024)
T = TypeVar("T")


@dataclass(frozen=True)
class Sources:
    """Addresses of the services that are asked."""

    hub: str = "https://huggingface.co"
    price_list: str = published.PRICE_LIST
    image_list: str = "https://api.github.com/repos/aws/deep-learning-containers/contents/docs/src/data"
    image_data: str = "https://raw.githubusercontent.com/aws/deep-learning-containers/main/docs/src/data"
    packages: str = "https://pypi.org/simple"
    recipes: str = field(default_factory=lookup.recipes_archive)


SOURCES = Sources()


@dataclass(frozen=True)
class Refreshed:
    """What an update brought. `failed` are those of its `steps` that read nothing, `unread` single entries of one."""

    update: Update
    changed: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    steps: int = 0

    def with_facts(self, changed: Iterable[str] = (), unread: Iterable[str] = (), **facts: Any) -> Refreshed:
        """With these fields of the update, the lines that tell of them, and entries that could not be read."""
        update = replace(self.update, **facts)
        named = tuple(dict.fromkeys((*self.unread, *unread)))
        return replace(self, update=update, changed=(*self.changed, *changed), unread=named)


@dataclass(frozen=True)
class _Named:
    """An entry of a list, of which only the name matters: `id` on the hub, `name` in a folder on GitHub."""

    id: str = ""
    name: str = ""


@dataclass(frozen=True)
class _Project:
    """A package in an index (PEP 691)."""

    versions: tuple[str, ...]


class _Failed(Exception):
    """A source could not be read."""


class _Withheld(_Failed):
    """It answered that there is no such document, or not for everybody: asking again will not help."""


# Of a host that cannot be reached: it is asked for a hundred documents, and each would wait as long.
_UNANSWERED = (httpx.TimeoutException, httpx.ConnectError, httpx.ProxyError)


@dataclass(frozen=True)
class _Reader:
    """`reached` are the hosts that have answered, `silent` the others, with why, which are not asked again."""

    client: httpx.Client
    sources: Sources
    today: date
    reached: set[str] = field(default_factory=set)
    silent: dict[str, str] = field(default_factory=dict)

    def get(self, url: str, model: type[T], **headers: str) -> T:
        """The JSON document at `url`. Raises _Failed with the reason why it could not be read."""
        return _parse(model, self.answer(url, documents.LIMITS, **headers), url)

    def pages(self, url: str, model: type[list[T]]) -> Iterator[T]:
        """The entries of a list that may go on at the address in its header `Link`."""
        for _ in range(_MOST_PAGES):
            answer = self.answer(url)
            yield from _parse(model, answer, url)
            url = answer.links.get("next", {}).get("url", "")
            if not url:
                return

    def answer(self, url: str, limits: documents.Limits = documents.LIMITS, **headers: str) -> httpx.Response:
        """What is at `url`. Raises _Failed with the reason why it could not be read."""
        host = urlsplit(url).netloc
        if why := self.silent.get(host):
            raise _Failed(f"{url}: {why}")
        try:
            response = documents.request(self.client, "GET", url, limits, headers=headers)
        except _UNANSWERED as error:
            at = error.request.url.netloc.decode()  # another host, behind a redirect
            why = f"{at} cannot be reached: {error or type(error).__name__}"
            if hint := documents.connection_hint(error, ""):
                why += f". {hint}"
            if at not in self.reached:
                self.silent[at] = why
            raise _Failed(f"{url}: {why}") from error
        except (httpx.HTTPError, httpx.InvalidURL, documents.Unfit) as error:
            raise _Failed(f"{url}: {error or type(error).__name__}") from error
        self.reached.update((host, response.url.netloc.decode()))
        if not response.is_success:
            kind = _Withheld if response.status_code in _WITHHELD else _Failed
            raise kind(f"{url} answered {response.status_code} {response.reason_phrase}")
        return response


def _parse(model: type[T], answer: httpx.Response, url: str) -> T:
    try:
        return documents.parse(model, answer.content)
    except documents.Unfit as error:
        raise _Failed(f"{url}: {error}") from error


def refresh(
    client: httpx.Client,
    held: Update,
    regions: Sequence[str],
    today: date,
    *,
    ec2: bool = False,
    sources: Sources = SOURCES,
) -> Refreshed:
    """What the user holds, with all that could be read now. With `ec2` prices of EC2 too, whose list is very large."""
    steps: dict[str, Callable[[_Reader, Refreshed], Refreshed]] = {
        **{f"prices in {region}": partial(_hosting_prices, region) for region in regions},
        **{f"EC2 prices in {region}": partial(_ec2_prices, region) for region in regions if ec2},
        "heads on the hub": _heads,
        "new heads on the hub": _listed_heads,
        f"heads in recipes of {lookup.engine_title()}": _recipe_heads,
        "images of AWS": _images,
        f"versions of {lookup.engine_title()}": _versions,
    }
    reader, refreshed = _Reader(client, sources, today), Refreshed(held, steps=len(steps))
    for name, read in steps.items():
        try:
            refreshed = read(reader, refreshed)
        except _Failed as error:
            refreshed = replace(refreshed, failed=(*refreshed.failed, f"{name}: {error}"))
        else:
            refreshed = refreshed.with_facts(read={**refreshed.update.read, name: today})
    return refreshed


def _hosting_prices(region: str, reader: _Reader, so_far: Refreshed) -> Refreshed:
    """Prices of real-time hosting in a region, and types that are new there."""
    prices = _prices(reader, "AmazonSageMaker", region)
    known = {instance.name: instance for instance in lookup.instances()}
    new = {name for name in prices if name not in known and _ACCELERATED.match(name)}
    kept = {name: price for name, price in prices.items() if name in known or name in new}
    types = tuple(sorted({*so_far.update.types, *new} - {*known}))
    lines = [
        *(line for name in kept if name in known for line in _price_line(name, kept[name], known[name].price(region))),
        *(f"new instance type: {name}" for name in types if name not in so_far.update.types),
    ]
    return so_far.with_facts(lines, prices={**so_far.update.prices, region: kept}, types=types)


def _ec2_prices(region: str, reader: _Reader, so_far: Refreshed) -> Refreshed:
    """Prices of EC2 instances in a region, which are the nodes of clusters."""
    prices = _prices(reader, "AmazonEC2", region)
    known = {instance.name.removeprefix("ml.") for instance in lookup.instances()}
    kept = {name: price for name, price in prices.items() if name in known}
    line = f"EC2 prices in {region}: {len(kept)} types"
    return so_far.with_facts([line], ec2_prices={**so_far.update.ec2_prices, region: kept})


def _heads(reader: _Reader, so_far: Refreshed) -> Refreshed:
    """The revisions of the catalogue's heads."""
    heads, changed, unread = dict(so_far.update.heads), [], []
    for head in lookup.heads():
        try:
            answer = reader.get(f"{reader.sources.hub}/api/models/{head.repo}", published.Repository)
        except _Failed as error:
            unread.append(f"{head.repo}: {error}")
            continue
        heads[head.repo] = facts = published.hub_facts(answer)
        changed += [f"{head.repo}: {line}" for line in _fact_lines(head, facts)]
    if len(unread) == len(lookup.heads()):
        raise _Failed(unread[0].partition(": ")[2])
    return so_far.with_facts(changed, unread, heads=heads)


def _listed_heads(reader: _Reader, so_far: Refreshed) -> Refreshed:
    """Drafters of those who publish many, and those of which an earlier update knows the name alone."""
    listed = {*so_far.update.drafters}
    for owner, part in _PUBLISHERS:
        url = f"{reader.sources.hub}/api/models?author={owner}&search={part}&limit=200"
        listed |= {one.id for one in reader.pages(url, list[_Named]) if new_heads.REPOSITORY.fullmatch(one.id)}
    return _with_drafters(reader, so_far, dict.fromkeys(listed))


def _recipe_heads(reader: _Reader, so_far: Refreshed) -> Refreshed:
    """Drafters that vLLM's recipes speculate with."""
    url = reader.sources.recipes
    try:
        found = new_heads.drafters(reader.answer(url, new_heads.ARCHIVE).content)
    except documents.Unfit as error:
        raise _Failed(f"{url}: {error}") from error
    return _with_drafters(reader, so_far, found)


def _with_drafters(reader: _Reader, so_far: Refreshed, found: Mapping[str, Named | None]) -> Refreshed:
    """With those drafters that the catalogue does not have; of those that tell too little, the name is kept."""
    known = {head.repo.lower() for head in lookup.heads()} | {head.repo.lower() for head in so_far.update.new_heads}
    names = {repo: recipe for repo, recipe in found.items() if repo.lower() not in known}
    heads, unread = list(so_far.update.new_heads), []
    for repo, recipe in sorted(names.items()):
        try:
            head = _read_head(reader, repo, recipe)
        except _Failed as error:
            head = None
            unread.append(f"{repo}: {error}")
        heads += [head] if head else []
    told = {head.repo for head in heads}
    unknown = tuple(sorted({repo for repo in (*so_far.update.drafters, *names) if repo.lower() not in known} - told))
    lines = [
        *(f"new head: {head.repo} ({head.method} for {head.target})" for head in heads if head.repo in names),
        *(f"new head: {repo}" for repo in unknown if repo not in so_far.update.drafters),
    ]
    return so_far.with_facts(lines, unread, new_heads=tuple(heads), drafters=unknown)


def _read_head(reader: _Reader, repo: str, recipe: Named | None) -> Head | None:
    """From the hub; a gated one's config.json cannot be read, and the recipe that names it may tell enough."""
    page = f"{reader.sources.hub}/{repo}"
    about, config = published.Repository(), {}
    try:
        about = reader.get(f"{reader.sources.hub}/api/models/{repo}", published.Repository)
        config = reader.get(f"{page}/resolve/main/config.json", dict[str, Any])
    except _Withheld:
        if recipe is None:
            raise
    return new_head(repo, page, config, about, recipe)


def _images(reader: _Reader, so_far: Refreshed) -> Refreshed:
    """AWS's images that are newer than the catalogue's."""
    engine = lookup.default_engine()
    known = lookup.images("sagemaker", engine)
    tags = {image.tag for image in known}
    new: list[Image] = []
    for folder in (engine, f"{engine}-server"):
        for file in _files_since(reader, folder, known[0].version):
            content = reader.answer(f"{reader.sources.image_data}/{folder}/{file}", _YAML_LIMITS).content
            source = f"github aws/deep-learning-containers docs/src/data/{folder}/{file}"
            image = _image(content, known[0], reader.today, source)
            new += [image] if image.tag not in tags else []
    lines = [f"new image: {image.repository}:{image.tag} ({lookup.engine_title()} {image.version})" for image in new]
    return so_far.with_facts(lines, images=(*new, *so_far.update.images))


def _versions(reader: _Reader, so_far: Refreshed) -> Refreshed:
    """Releases of the default engine that are newer than those whose flags the catalogue knows."""
    package, newest = lookup.released_package()
    accept = "application/vnd.pypi.simple.v1+json"
    listed = reader.get(f"{reader.sources.packages}/{package}/", _Project, Accept=accept).versions
    newer = [version for version in listed if _RELEASE.match(version) and lookup.older(newest, version)]
    versions = tuple(sorted(newer, key=lookup.version_key))
    unseen = (version for version in versions if version not in so_far.update.versions)
    new = [f"new version of {lookup.engine_title()}: {version}" for version in unseen]
    return so_far.with_facts(new, versions=versions)


def _prices(reader: _Reader, service: str, region: str) -> dict[str, Price]:
    url = published.price_list_url(service, region, reader.sources.price_list)
    try:
        listed = published.price_list(reader.answer(url, published.PRICES).content, service)
    except documents.Unfit as error:
        raise _Failed(f"{url}: {error}") from error
    return {name: Price(usd, region, listed.date, url, "good") for name, usd in sorted(listed.prices.items())}


def _files_since(reader: _Reader, folder: str, version: str) -> Iterator[str]:
    """Names of AWS's files on images of that version of the engine or a newer one."""
    for entry in reader.get(f"{reader.sources.image_list}/{folder}", list[_Named]):
        named = _IMAGE_FILE.match(entry.name)
        if named and _RELEASE.match(named["version"]) and not lookup.older(named["version"], version):
            yield entry.name


def _image(content: bytes, like: Image, today: date, source: str) -> Image:
    try:
        facts = published.image_data(YAML(typ="safe").load(content.decode()))
    except (documents.Unfit, YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise _Failed(f"{source}: {str(error).splitlines()[0]}") from error
    note = f"its entrypoint and the driver it needs are taken to be those of {like.tag}"
    changes: dict[str, Any] = {**facts, "date": today.isoformat(), "source": source, "note": note}
    return replace(like, **changes)


def _price_line(name: str, price: Price, old: Price | None) -> Iterator[str]:
    if old is None or (old.usd_per_hour, old.region) != (price.usd_per_hour, price.region):
        was = f"{old.usd_per_hour} USD ({old.region}, {old.date})" if old else "no price"
        yield f"{name}: {was} -> {price.usd_per_hour} USD ({price.region}, {price.date})"


def _fact_lines(head: lookup.Head, facts: dict[str, Any]) -> Iterable[str]:
    for name, value in facts.items():
        old = getattr(head, name)
        if old != value:
            yield f"{name} {'unknown' if old in ('', None) else old} -> {value}"
