"""Look up dated facts in the JSON files beside this module, and in what the user has read since."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from toolkit import documents
from toolkit.catalog.entries import Head as Head
from toolkit.catalog.entries import Image as Image
from toolkit.catalog.entries import Instance as Instance
from toolkit.catalog.entries import NoPrice as NoPrice
from toolkit.catalog.entries import OwnLayers
from toolkit.catalog.entries import PlatformFacts as PlatformFacts
from toolkit.catalog.entries import Price as Price
from toolkit.catalog.updates import Update, read_update

FOLDER = Path(__file__).parent
"""The folder of the JSON files."""

# The key of the whole file; entries have theirs further in. Reading all of them as JSON takes 15 ms.
_DATE = re.compile(r'^ {1,2}"date": "(\d{4}-\d\d-\d\d)"', re.MULTILINE)

_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)?-(north|south|central|northwest|southwest|northeast|southeast|east|west)-\d")


@cache
def engine_files() -> tuple[Mapping[str, Any], ...]:
    """The files of engines, the default engine's first."""
    files = [read(f"engines/{path.name}") for path in sorted((FOLDER / "engines").glob("*.json"))]
    return tuple(sorted(files, key=lambda facts: not facts["is_default"]))


def default_engine() -> str:
    """The engine of a recipe that does not name one."""
    return str(next(iter(engine_files()[0]["engines"])))


def engine_title() -> str:
    """The default engine as its makers write it."""
    return str(engine_files()[0]["title"])


def recipes_archive() -> str:
    """The address of an archive of the recipes that the default engine's makers publish."""
    return str(engine_files()[0]["recipes"])


def example_command() -> str:
    """A command line that starts the default engine."""
    return str(engine_files()[0]["command"])


def importable() -> str:
    """What `toolkit import` reads: formats of the default engine's settings."""
    return str(engine_files()[0]["imports"])


def engine_summary() -> str:
    """What the catalogue's engines are for, in one line."""
    return "; ".join(facts["summary"] for facts in engine_files())


def platform_causes(name: str | None = None) -> list[Path]:
    """JSON files with the known causes of failure of a platform, by default of all."""
    data = read("platforms.json")
    return [FOLDER.parent / path for each, facts in data.items() if name in (None, each) for path in facts["causes"]]


def released_package() -> tuple[str, str]:
    """The default engine in the Python package index: its name, and the newest version whose flags are known."""
    default, *_ = engine_files()
    return default["package"], read(f"engines/{next(iter(default['engines']))}/flags.json")["versions"][-1]


def first_with_drafter(architecture: str) -> str:
    """The default engine's first version that has that class of drafters; empty if no version has it."""
    drafters = read(f"engines/{default_engine()}/models.json")["drafters"]
    return str(drafters.get(architecture, [""])[0])


def shared_programs(engine_name: str) -> str:
    """The folder of containers/ with programs that the engine's containers have in common with others; may be empty."""
    return next((file.get("programs", "") for file in engine_files() if engine_name in file["engines"]), "")


def images(platform: str, engine_name: str) -> tuple[Image, ...]:
    """Images that serve `engine_name` on `platform`, newest engine version first, the preferred one of each first."""
    return _images(platform, engine_name, read_update())


def repositories() -> frozenset[str]:
    """Where the images of engines come from, as `registry/repository`; AWS's registries are their accounts."""
    return frozenset(f"{image.registry}/{image.repository}" for image in _all_images(read_update()))


@cache
def _all_images(update: Update) -> tuple[Image, ...]:
    of_engines = [image for facts in engine_files() for image in facts.get("images", ())]
    all_images = documents.fit(list[Image], [*read("images.json")["images"], *of_engines])
    known = {image.tag for image in all_images}
    return (*(image for image in update.images if image.tag not in known), *all_images)


@cache
def _images(platform: str, engine_name: str, update: Update) -> tuple[Image, ...]:
    matching = [image for image in _all_images(update) if (image.platform, image.engine) == (platform, engine_name)]
    return tuple(sorted(matching, key=lambda image: version_key(image.version), reverse=True))


def released(platform: str, engine_name: str) -> list[str]:
    """Versions of an engine, newest first, that have an image on a platform, or else one of the engine's own."""
    listed = images(platform, engine_name) or images("upstream", engine_name)
    return list(dict.fromkeys(image.version for image in listed if image.version.replace(".", "").isdigit()))


def registries() -> Mapping[str, str]:
    """AWS account of the registry that holds AWS's own images, by region."""
    accounts: dict[str, str] = read("registries.json")["accounts"]
    return accounts


def nearest_region(text: str) -> str:
    """The region that a misspelled one is most like; empty if it may be a region, known here or not."""
    if text in registries() or _REGION.fullmatch(text):
        return ""
    return next(iter(difflib.get_close_matches(text.lower(), registries(), n=1)), "us-east-1")


def newest_image(region: str, engine_name: str) -> str:
    """The newest engine version that AWS's SDK lists for that region; empty where all are listed, or none is known."""
    newest: dict[str, dict[str, str]] = read("registries.json")["newest"]
    return next((by_engine.get(engine_name, "") for start, by_engine in newest.items() if region.startswith(start)), "")


def instances() -> tuple[Instance, ...]:
    return _instances(read_update())


@cache
def _instances(update: Update) -> tuple[Instance, ...]:
    listed = documents.fit(list[Instance], read("instances.json")["instances"])
    return tuple(_with_prices(instance, update) for instance in listed)


def instance(name: str) -> Instance | None:
    """The instance type `name`, such as `ml.g7e.2xlarge`."""
    return next((one for one in instances() if one.name == name), None)


def heads() -> tuple[Head, ...]:
    return _heads(read_update())


@cache
def _heads(update: Update) -> tuple[Head, ...]:
    listed = documents.fit(list[Head], read("heads.json")["heads"])
    known = {head.repo.lower() for head in listed}
    new = (head for head in update.new_heads if head.repo.lower() not in known)
    return tuple(replace(head, **update.heads.get(head.repo, {})) for head in (*listed, *new))


def head(repo: str) -> Head | None:
    """The public drafter `repo`, such as `amazon/GPT-OSS-20B-P-EAGLE`; case does not matter, as on the hub."""
    return next((one for one in heads() if one.repo.lower() == repo.lower()), None)


@cache
def own_layers() -> tuple[OwnLayers, ...]:
    """K of models that draft with layers of their own, as vLLM's recipes have it."""
    return documents.fit(tuple[OwnLayers, ...], read("heads.json")["own_layers"])


@cache
def platform(name: str) -> PlatformFacts:
    """Facts of the platform `name`, a key of platforms.json."""
    return documents.fit(PlatformFacts, read("platforms.json")[name])


@cache
def dates() -> Mapping[str, date]:
    """The day on which each file was last held against its sources, by its name."""
    days = {path: _DATE.search(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.rglob("*.json"))}
    return {path.relative_to(FOLDER).as_posix(): date.fromisoformat(day[1]) for path, day in days.items() if day}


def older(version: str, than: str) -> bool:
    """Whether `version` comes before `than`."""
    return version_key(version) < version_key(than)


@cache
def version_key(version: str) -> tuple[int, ...]:
    """A key to compare versions by: `0.22.1rc0` comes before `0.22.1`, that before `0.30.0`."""
    release, *pre = re.split(r"(?:rc|\.dev)", version)
    numbers = tuple(int(part) for part in release.split("."))
    return (*numbers, -1, int(pre[0])) if pre else (*numbers, 0)


def _with_prices(instance: Instance, update: Update) -> Instance:
    """With the prices that the user has read, which come first and take the place of those of their region."""
    both = (
        (update.prices, instance.name, instance.prices),
        (update.ec2_prices, instance.name.removeprefix("ml."), instance.ec2_prices),
    )
    merged = []
    for by_region, name, shipped in both:
        read = [prices[name] for prices in by_region.values() if name in prices]
        merged.append((*read, *(price for price in shipped if price.region not in by_region)))
    return replace(instance, prices=merged[0], ec2_prices=merged[1])


@cache
def read(filename: str) -> Mapping[str, Any]:
    """The content of one of the files."""
    content: dict[str, Any] = json.loads((FOLDER / filename).read_text(encoding="utf-8"))
    return content
