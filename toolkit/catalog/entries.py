"""The entries of the catalogue's files, as data. What no source states is `None`, `""` or empty, never a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MIB = 2**20
# Of the memory that EC2 reports, what CUDA does: 94.97 of 96 GiB (RTX PRO 6000), 79.19 of 80 (H100), 44.42 of 44.7
# (L40S), in published vLLM logs. All other GPUs that were measured are within 1 % of it, but the T4, whose error
# correction takes some of the memory that EC2 counts (tests/unit/catalog/test_lookup.py).
_CUDA_SHARE = 0.989
BFLOAT16_SINCE = 8.0
"""The compute capability of the first GPUs with arithmetic for it: NVIDIA's CUDA C++ Programming Guide."""
# As in `cc-by-nc-4.0` (Creative Commons).
_NO_COMMERCE = re.compile(r"(^|-)nc(-|$)")


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
class NoPrice:
    """Why no price is known, and the page to look at."""

    reason: str
    address: str


@dataclass(frozen=True)
class Instance:
    """A SageMaker instance type.

    Fields:
        architecture: of its CPUs: `x86_64` or `arm64`.
        accelerator: `""` for a CPU type.
        memory_per_accelerator_mib: MiB as EC2 reports it, below the marketing figure.
        cuda_memory_mib: MiB as CUDA reports it, where that is not the usual share of what EC2 reports; else 0.
        compute_capability: of an NVIDIA GPU, `8.9`.
        interconnect: between the accelerators: `nvlink`, `pcie`, `neuronlink`; `""` where there is at most one.
        neuron_cores, neuron_cores_logical: physical ones, and as the default LNC groups them.
        hostable: whether an endpoint can run on it at all.
        regions: where AWS prices it for hosting; empty where that is not known.
        prices: of hosting in SageMaker, one for each region where it is known; us-east-1 first.
        ec2_prices: likewise of the EC2 instance, which a cluster's node is.
        no_price, no_ec2_price: why there is none, where there is none.
    """

    name: str
    architecture: str
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
    prices: tuple[Price, ...] = ()
    ec2_prices: tuple[Price, ...] = ()
    no_price: NoPrice | None = None
    no_ec2_price: NoPrice | None = None
    cuda_memory_mib: int = 0

    @property
    def usable_bytes(self) -> int:
        """Memory of one GPU as a program sees it, which is less than what EC2 reports."""
        return self.cuda_memory_mib * _MIB or int(self.memory_per_accelerator_mib * _MIB * _CUDA_SHARE)

    @property
    def has_bfloat16(self) -> bool:
        """Whether it has arithmetic for bfloat16. A T4 (7.5) has none."""
        return float(self.compute_capability or "inf") >= BFLOAT16_SINCE

    @property
    def processors(self) -> str:
        """What it computes with, in words."""
        generation = f" (compute capability {self.compute_capability})" if self.compute_capability else ""
        cpus = f"{self.architecture} CPUs" if self.architecture != "x86_64" else "" if self.accelerator else "CPUs"
        return " and ".join(filter(None, (f"{self.accelerator}{generation}", cpus)))

    def price(self, region: str | None = None) -> Price | None:
        """The price in that region; where it is not known there, in another one."""
        return next((price for price in self.prices if price.region == region), next(iter(self.prices), None))


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
        drafter_class: the engine's class that loads it, where it is not the method's usual one: `DFlash2DraftModel`.
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
    drafter_class: str = ""

    @property
    def unverified(self) -> bool:
        """Whether neither its card nor its files were read, as its note says."""
        return "unverified" in self.note

    @property
    def served(self) -> bool:
        """Whether somebody has published what it was served with."""
        return bool(self.card_k or self.acceptance) and not self.unverified

    @property
    def commercial(self) -> bool:
        """Whether its licence is not known to forbid commercial use."""
        return not _NO_COMMERCE.search(self.license)


@dataclass(frozen=True)
class OwnLayers:
    """A published K, `tokens`, for a target that drafts with layers of its own."""

    target: str
    method: str
    tokens: int
    source: str


@dataclass(frozen=True)
class PlatformFacts:
    """US dollars per instance and hour, and the seconds that an endpoint usually takes to come up.

    `scale_to_zero_refused` are regions where AWS was seen to refuse it, each with the source of that report.
    """

    price_per_hour: float
    endpoint_seconds: int
    source: str
    scale_to_zero_refused: Mapping[str, str] = field(default_factory=dict)
