"""Read the dated facts that lie beside this module. No logic: each function finds one fact."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DraftingMethod:
    """How an engine is told to draft with a recipe's `speculation.method`."""

    engine_method: str
    parallel_drafting: bool
    since: str
    default_num_speculative_tokens: int


@dataclass(frozen=True)
class EngineFacts:
    """What is true of an engine across its versions."""

    methods: dict[str, DraftingMethod]
    mask_token_keys: tuple[str, ...]
    per_request_metrics_since: str
    default_max_num_seqs: int
    default_max_num_batched_tokens: int


@dataclass(frozen=True)
class Image:
    """A container image that serves one engine version on one platform."""

    platform: str
    engine: str
    version: str
    repository: str
    tag: str
    note: str


@dataclass(frozen=True)
class PlatformFacts:
    """US dollars per instance and hour, and the seconds that an endpoint usually takes to come up."""

    price_per_hour: float
    endpoint_seconds: int
    source: str


@cache
def engine(name: str) -> EngineFacts:
    """Facts of the engine `name`, a key of engines.json."""
    facts = _read("engines.json")[name]
    methods = {method: DraftingMethod(**fields) for method, fields in facts.pop("methods").items()}
    return EngineFacts(methods=methods, mask_token_keys=tuple(facts.pop("mask_token_keys")), **facts)


@cache
def images(platform: str, engine_name: str) -> tuple[Image, ...]:
    """Images that serve `engine_name` on `platform`, as listed in images.json."""
    all_images = [Image(**fields) for fields in _read("images.json")["images"]]
    return tuple(image for image in all_images if (image.platform, image.engine) == (platform, engine_name))


@cache
def platform(name: str) -> PlatformFacts:
    """Facts of the platform `name`, a key of platforms.json."""
    return PlatformFacts(**_read("platforms.json")[name])


def version_key(version: str) -> tuple[int, ...]:
    """`"0.32.0"` as `(0, 32, 0)`, to compare versions."""
    return tuple(int(part) for part in version.split("."))


def _read(filename: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((Path(__file__).parent / filename).read_text())
    return facts
