"""Read the dated facts that lie beside this module. No logic: each function finds one fact.

What no source states is `None`, `""` or empty here, never a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

FOLDER = Path(__file__).parent
"""Where the JSON files lie."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class DraftingMethod:
    """How an engine is told to draft with a recipe's `speculation.method`.

    `parallel_drafting`: whether `parallel_drafting: true` has to be written; dflash always drafts so and is not told.
    """

    engine_method: str
    parallel_drafting: bool
    since: str
    default_num_speculative_tokens: int


@dataclass(frozen=True)
class Versions:
    """Engine versions from `since` up to, but without, `until` (`None`: to this day)."""

    since: str
    until: str | None

    def __contains__(self, version: str) -> bool:
        key = version_key(version)
        return version_key(self.since) <= key and (self.until is None or key < version_key(self.until))


@dataclass(frozen=True)
class EngineFacts:
    """What is true of an engine across its versions. Where each comes from stands under `sources` in engines.json.

    Fields:
        mask_token_keys_since: by first version, the config.json keys that the engine tries in that order.
        kv_group_factor_since: by first version: layers of two attention types share a group size when the larger
            count is below this factor times the smaller.
        token_budget_subtraction: versions that take the draft slots of `max_num_seqs` requests off the token budget
            of every step; later ones charge each scheduled request for its own.
        max_position_crash_until: first version that serves a head whose `max_position_embeddings` is below
            `max_model_len`.
        full_vocabulary_map_until: first version that refuses a head which drafts from the whole vocabulary and stores
            a `d2t` all the same.
        parallel_drafting_runner: the only model runner that P-EAGLE and PARD run on.
        multimodal_parallel_since: first version that lets P-EAGLE and PARD draft for a multimodal target (text only).
        batch_size_schedule_since: first version with `num_speculative_tokens_per_batch_size`.
        rejected_sampling_params: request parameters that are refused while speculation is on.
    """

    methods: Mapping[str, DraftingMethod]
    mask_token_keys_since: Mapping[str, tuple[str, ...]]
    kv_group_factor_since: Mapping[str, float]
    token_budget_subtraction: Versions
    max_position_crash_until: str
    full_vocabulary_map_until: str
    parallel_drafting_runner: str
    multimodal_parallel_since: str
    speculators_peagle_since: str
    speculators_qwen3_arch_since: str
    batch_size_schedule_since: str
    per_request_metrics_since: str
    rejected_sampling_params: tuple[str, ...]
    default_max_num_seqs: int
    default_max_num_batched_tokens: int


@dataclass(frozen=True)
class Image:
    """A container image that serves one engine version on one platform.

    Fields:
        version: the engine's, which may be a pre-release (`0.22.1rc0`).
        registry: AWS account of the ECR registry (us-east-1 and most regions), or the host of a public one.
        cuda, driver, python: `13.0`, the lowest NVIDIA driver branch it states (`580`), `3.12`.
        standards_version: pinned version of the package model-hosting-container-standards.
        entrypoint: `python` and `bash-loop` turn SM_VLLM_* variables into flags, `own` is another contract.
        supervisor_quoting: `broken` takes the quotes out of JSON flags, `fixed`, or `unknown`.
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
        card_flags: flags of the engine without leading dashes. `card_env`: environment variables.
        min_engine: first vLLM version that serves it, where one is known.
        context: `short` or `long` where a card says which of two sibling heads this is.
        recommended_max_context, min_context: tokens, for the same reason.
        revision, last_modified: of the repository, as the hub told the last refresh.
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
    keys = {since: tuple(keys) for since, keys in facts.pop("mask_token_keys").items()}
    return EngineFacts(
        methods={method: DraftingMethod(**fields) for method, fields in facts.pop("methods").items()},
        mask_token_keys_since=keys,
        kv_group_factor_since=facts.pop("kv_group_factor"),
        token_budget_subtraction=Versions(**facts.pop("token_budget_subtraction")),
        rejected_sampling_params=tuple(facts.pop("rejected_sampling_params")),
        **facts,
    )


def mask_token_keys(engine_name: str, version: str) -> tuple[str, ...]:
    """Keys of a drafter's config.json in which that version looks for the mask token, in its order."""
    return _at(engine(engine_name).mask_token_keys_since, version) or ()


def kv_group_factor(engine_name: str, version: str) -> float | None:
    """See `EngineFacts.kv_group_factor_since`; `None` for a version before the first one known."""
    return _at(engine(engine_name).kv_group_factor_since, version)


def subtracts_draft_slots(engine_name: str, version: str) -> bool:
    """Whether that version takes draft slots off the token budget of every step, whoever is scheduled."""
    return version in engine(engine_name).token_budget_subtraction


def flag_known(engine_name: str, version: str, flag: str) -> bool | None:
    """Whether that version's server takes `--flag` (no leading dashes; `_` is `-`). `None`: version not in the data."""
    return _listed(_listing(f"{engine_name}_flags.json"), "flags", version, flag.replace("_", "-"))


def flags(engine_name: str, version: str) -> tuple[str, ...]:
    """Every flag of that version's server, without leading dashes; none if the version is not in the data."""
    listing = _listing(f"{engine_name}_flags.json")
    return tuple(flag for flag in listing["flags"] if _listed(listing, "flags", version, flag))


def supports_eagle3(engine_name: str, version: str, architecture: str) -> bool | None:
    """Whether that version drafts with EAGLE-3 and P-EAGLE heads for a target of `architecture`.

    `architecture` is the class name in config.json. `None`: version or architecture not in the data.
    """
    listing = _listing(f"{engine_name}_models.json")
    if not _listed(listing, "targets", version, architecture):
        return None
    return _listed(listing, "eagle3_targets", version, architecture)


def drafter_known(engine_name: str, version: str, architecture: str) -> bool | None:
    """Whether `architecture` is in that version's registry of drafters. `None`: version not in the data."""
    return _listed(_listing(f"{engine_name}_models.json"), "drafters", version, architecture)


@cache
def images(platform: str, engine_name: str) -> tuple[Image, ...]:
    """Images that serve `engine_name` on `platform`, newest engine version first, the preferred one of each first."""
    all_images = [Image(**fields) for fields in _read("images.json")["images"]]
    found = [image for image in all_images if (image.platform, image.engine) == (platform, engine_name)]
    return tuple(sorted(found, key=lambda image: version_key(image.version), reverse=True))


@cache
def registries() -> Mapping[str, str]:
    """AWS account of the registry that holds AWS's own images, by region."""
    accounts: dict[str, str] = _read("registries.json")["accounts"]
    return accounts


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
    return PlatformFacts(facts["price_per_hour"], facts["endpoint_seconds"], facts["source"])


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


def _at(changes: Mapping[str, _T], version: str) -> _T | None:
    """The last of `changes`, which are in the order of versions, that `version` has."""
    found = [value for since, value in changes.items() if version_key(since) <= version_key(version)]
    return found[-1] if found else None


def _listed(listing: Mapping[str, Any], kind: str, version: str, name: str) -> bool | None:
    if version not in listing["versions"]:
        return None
    return name in listing[kind] and version in Versions(*listing[kind][name])


@cache
def _listing(filename: str) -> dict[str, Any]:
    """Names with the versions that have them. Read once: unlike the others it is kept as it is."""
    return _read(filename)


def _read(filename: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((FOLDER / filename).read_text(encoding="utf-8"))
    return facts
