"""Look up dated facts in the JSON files beside this module. Each function finds one fact.

What no source states is `None`, `""` or empty, never a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
"""The folder of the JSON files."""


@dataclass(frozen=True)
class Image:
    """A container image that serves one engine version on one platform.

    Fields:
        version: of the engine; it may be a pre-release (`0.22.1rc0`).
        registry: AWS account of the ECR registry (us-east-1 and most regions), or the host of a public one.
        cuda, driver, python: `13.0`, the lowest NVIDIA driver branch it states (`580`), `3.12`.
        standards_version: pinned version of the package model-hosting-container-standards.
        entrypoint: `python` and `bash-loop` turn SM_VLLM_* variables into flags; `own` works in another way.
        supervisor_quoting: `broken` if the supervisor removes the quotes of JSON flags, else `fixed` or `unknown`.
        ami: SageMaker's InferenceAmiVersion that its CUDA needs.
    """

    platform: str
    engine: str
    version: str
    repository: str
    tag: str
    note: str
    registry: str = ""
    cuda: str = ""
    driver: str = ""
    python: str = ""
    standards_version: str = ""
    entrypoint: str = ""
    supervisor_quoting: str = "unknown"
    ami: str = ""
    size_gb: float | None = None
    date: str = ""
    source: str = ""


@dataclass(frozen=True)
class Price:
    """US dollars per hour of one instance, on demand. `quality` says how far to trust it."""

    usd_per_hour: float
    region: str
    date: str
    source: str
    quality: str


@dataclass(frozen=True)
class Instance:
    """A SageMaker instance type.

    Fields:
        accelerator: `""` for a CPU type.
        memory_per_accelerator_mib: usable MiB as EC2 reports it, below the marketing figure.
        compute_capability: of an NVIDIA GPU, `8.9`.
        interconnect: between the accelerators: `nvlink`, `pcie`, `neuronlink`; `""` where there is at most one.
        neuron_cores, neuron_cores_logical: physical ones, and as the default LNC groups them.
        hostable: whether an endpoint can run on it at all.
        regions: where AWS prices it for hosting; empty where that is not known.
    """

    name: str
    accelerator: str
    accelerator_count: int
    memory_per_accelerator_mib: int
    compute_capability: str
    interconnect: str
    vcpus: int
    host_memory_gib: float
    local_nvme_gb: int
    neuron_cores: int
    neuron_cores_logical: int
    hostable: bool
    regions: tuple[str, ...]
    price: Price | None


@dataclass(frozen=True)
class Acceptance:
    """A published acceptance length: tokens per target step, bonus token included."""

    workload: str
    k: int
    acceptance_length: float
    hardware: str
    engine: str
    date: str
    source: str


@dataclass(frozen=True)
class Head:
    """A public drafter on the Hugging Face hub. `card_*` is what its card, or the post that presents it, recommends.

    Fields:
        method: the recipe's `speculation.method`.
        target: Hugging Face id.
        layers, trained_depth: decoder layers; draft tokens that it was trained to predict in one pass.
        card_flags: flags of the engine without leading dashes; `card_env`: environment variables.
        min_engine: first vLLM version that serves it, where one is known.
        context: `short` or `long` if the card says which of two sibling heads this is.
        recommended_max_context, min_context: tokens, for the same reason.
        positions: `max_position_embeddings` of its config.json, where a source states it.
        revision, last_modified: of the repository, from the last refresh.
    """

    repo: str
    method: str
    target: str
    layers: int | None
    trained_depth: int | None
    card_k: int | None
    card_flags: Mapping[str, Any]
    card_env: Mapping[str, str]
    min_engine: str
    acceptance: tuple[Acceptance, ...]
    context: str
    recommended_max_context: int | None
    min_context: int | None
    license: str
    gated: bool | None
    published: str
    revision: str
    last_modified: str
    note: str
    source: str
    positions: int | None = None


@dataclass(frozen=True)
class PlatformFacts:
    """US dollars per instance and hour, and the seconds that an endpoint usually takes to come up.

    `scale_to_zero_refused` are regions where somebody saw AWS refuse it, each with where that is told.
    """

    price_per_hour: float
    endpoint_seconds: int
    source: str
    scale_to_zero_refused: Mapping[str, str] = field(default_factory=dict)


@cache
def images(platform: str, engine_name: str) -> tuple[Image, ...]:
    """Images that serve `engine_name` on `platform`, newest engine version first, the preferred one of each first."""
    own = (_read(f"engines/{path.name}") for path in sorted((FOLDER / "engines").glob("*.json")))
    listed = [*_read("images.json")["images"], *(fields for facts in own for fields in facts.get("images", ()))]
    all_images = [Image(**fields) for fields in listed]
    found = [image for image in all_images if (image.platform, image.engine) == (platform, engine_name)]
    return tuple(sorted(found, key=lambda image: version_key(image.version), reverse=True))


def released(platform: str, engine_name: str) -> list[str]:
    """Versions of an engine, newest first, that have an image on a platform, or else one of the engine's own."""
    listed = images(platform, engine_name) or images("upstream", engine_name)
    return list(dict.fromkeys(image.version for image in listed if image.version.replace(".", "").isdigit()))


@cache
def registries() -> Mapping[str, str]:
    """AWS account of the registry that holds AWS's own images, by region."""
    accounts: dict[str, str] = _read("registries.json")["accounts"]
    return accounts


def newest_image(region: str, engine_name: str) -> str:
    """The newest engine version that AWS's SDK lists for that region; empty where all are listed, or none is known."""
    newest: dict[str, dict[str, str]] = _read("registries.json")["newest"]
    return next((found.get(engine_name, "") for start, found in newest.items() if region.startswith(start)), "")


@cache
def instances() -> tuple[Instance, ...]:
    """Every instance type in instances.json, by name."""
    return tuple(_instance(dict(fields)) for fields in _read("instances.json")["instances"])


def instance(name: str) -> Instance | None:
    """The instance type `name`, such as `ml.g7e.2xlarge`."""
    return next((found for found in instances() if found.name == name), None)


@cache
def heads() -> tuple[Head, ...]:
    """Every public drafter in heads.json, by repository."""
    return tuple(_head(dict(fields)) for fields in _read("heads.json")["heads"])


def head(repo: str) -> Head | None:
    """The public drafter `repo`, such as `amazon/GPT-OSS-20B-P-EAGLE`; case does not matter, as on the hub."""
    return next((found for found in heads() if found.repo.lower() == repo.lower()), None)


@cache
def platform(name: str) -> PlatformFacts:
    """Facts of the platform `name`, a key of platforms.json."""
    facts = _read("platforms.json")[name]
    names = [item.name for item in fields(PlatformFacts)]
    return PlatformFacts(**{name: facts[name] for name in names if name in facts})


def older(version: str, than: str) -> bool:
    """Whether `version` comes before `than`."""
    return version_key(version) < version_key(than)


def version_key(version: str) -> tuple[int, ...]:
    """A key to compare versions by: `0.22.1rc0` comes before `0.22.1`, that before `0.30.0`."""
    release, *pre = re.split(r"(?:rc|\.dev)", version)
    numbers = tuple(int(part) for part in release.split("."))
    return (*numbers, -1, int(pre[0])) if pre else (*numbers, 0)


def _instance(fields: dict[str, Any]) -> Instance:
    price, regions = fields.pop("price"), tuple(fields.pop("regions"))
    return Instance(**fields, regions=regions, price=Price(**price) if price else None)


def _head(fields: dict[str, Any]) -> Head:
    acceptance = tuple(Acceptance(**measured) for measured in fields.pop("acceptance"))
    return Head(**fields, acceptance=acceptance)


def _read(filename: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((FOLDER / filename).read_text(encoding="utf-8"))
    return facts
