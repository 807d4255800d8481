"""What the rooms below may ask of an engine and of a platform. `toolkit.registry` finds who answers.

Engines implement EngineRules (toolkit/engines), the pure parts of platforms PlatformTraits (toolkit/platforms).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Image, Instance
    from toolkit.engines.imported import Imported
    from toolkit.findings import Finding
    from toolkit.recipe.assemble import Sections
    from toolkit.recipe.lock import Lock
    from toolkit.recipe.recipe import Recipe
    from toolkit.recipe.schema import EngineSection, PlatformSection
    from toolkit.sizing.fit import Fit, Pair
    from toolkit.sizing.settings import Settings


@dataclass(frozen=True)
class Published:
    """The settings with which numbers of a method were published; `about` says more of the requests at once."""

    max_model_len: int
    max_num_seqs: int
    tensor_parallel: int
    about: str


@dataclass(frozen=True)
class Download:
    """A file that an engine downloads when it starts, unless the folder that `variable` names has it."""

    name: str
    url: str
    size: int
    sha256: str
    variable: str


@dataclass(frozen=True)
class MetricNames:
    """What an engine calls its metrics on its Prometheus page. Histograms without `_bucket`."""

    time_to_first_token: str
    time_per_output_token: str
    inter_token_latency: str
    request_latency: str
    generated_tokens: str
    prompt_tokens: str
    running_requests: str
    waiting_requests: str
    kv_cache_usage: str
    drafts: str
    drafted_tokens: str
    accepted_tokens: str
    accepted_by_position: str

    @property
    def prefix(self) -> str:
        """What all of them begin with, up to the colon."""
        return self.running_requests.partition(":")[0] + ":"

    @property
    def of_pods(self) -> str:
        """The metric that a pod autoscaler reads without KEDA: an adapter for Prometheus gives it this name."""
        return self.running_requests.replace(":", "_")


class EngineRules(Protocol):
    """All that differs between engines. `recipe` is always one that runs on this engine.

    Attributes:
        package: its name in the Python package index, which lists its versions.
        cpu_package: its build for CPUs there, which the local platform can start; empty if there is none.
        explains_hardware: its own check says why it does not run on an instance type, and where it cannot be sized.
        variable_prefix: what the variables begin with that the container's entrypoint turns into flags.
        sections: what it reads of a recipe.
        own_flags: flags that the toolkit writes itself, and the recipe's key that each comes from.
        causes: JSON files with its causes of failure and the stages of its log (apply/causes.py).
    """

    name: str
    package: str
    cpu_package: str
    explains_hardware: bool
    variable_prefix: str
    own_flags: Mapping[str, str]
    sections: Sections
    metrics: MetricNames
    causes: Sequence[Path]

    def fill_in(self, written: EngineSection, method: str, instance_type: str) -> EngineSection:
        """With limits, and with a name and version where they are not chosen by trying (`loading`)."""

    def drafts_on(self, recipe: Recipe, instance: Instance) -> bool:
        """Whether it supports the recipe's method on hardware that it runs on."""
        return True

    def published(self, method: str) -> Published | None:
        """Settings to begin from, for an engine that compiles for them; None where any will do."""
        return None

    def default_tokens(self, engine: EngineSection, method: str) -> int:
        """K where the recipe does not say it."""

    def knows(self, version: str) -> bool:
        """Whether anything is known of that version; of others its own check tells."""

    def known_versions(self) -> Sequence[str]:
        """The versions whose flags are known, oldest first."""
        return ()

    def imported(self, settings: str | Mapping[str, Any], variant: str | None) -> Imported | None:
        """A command line that starts it, or a YAML document of others for it; None for a format that it cannot read.

        `variant` is one of those that such a document may have. Raises UsageError for what is wrong in it.
        """
        return None

    def runs_on(self, instance: Instance) -> bool:
        """Whether its images run on that hardware."""

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        """How many accelerators of an instance one copy of the engine takes."""

    def compiles(self, recipe: Recipe) -> bool:
        """Whether it compiles for its accelerators, ahead of its start or at it."""

    def compiled_parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        """All that the compiled code depends on; `image`, `target` and `drafter` tell those apart."""

    def compile_seconds(self, recipe: Recipe) -> int:
        """How long compiling is thought to take; 0 where that is not known."""

    def disk_bytes(self, recipe: Recipe, *, compiles: bool) -> int:
        """What a container writes to its own disk, which `compiles` beforehand or else serves; 0 where not known."""

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        """All flags besides `engine.args`, and those of them that the engine's own change."""

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        """Environment besides `engine.env`; `flags` are the texts of all flags."""

    def downloads(self, recipe: Recipe) -> Sequence[Download]:
        """Files that it would download when it starts, and cannot in the recipe's network."""
        return ()

    def cache_variables(self, folder: str) -> dict[str, str]:
        """Environment that keeps in `folder` what the engine finds out when it first starts."""

    def cpu_variables(
        self, given: Collection[str], free_bytes: int, cpu_features: Collection[str], cores: int
    ) -> dict[str, str]:
        """Environment for a machine without an accelerator, for settings that the `given` variables leave open."""
        return {}

    def binds_threads(self, given: Collection[str]) -> bool:
        """Whether the `given` variables say on which cores it computes."""
        return False

    def reports_drafts(self, recipe: Recipe) -> bool:
        """Whether it tells how many tokens it drafted and accepted."""

    def accepts_synthetically(self, recipe: Recipe) -> bool:
        """Whether it can accept drafts by chance, at a chosen acceptance length, on the recipe's hardware."""
        return False

    def draft_line(self, k: int) -> str:
        """CloudWatch's pattern of its log line on speculation, with the fields `accepted` and `drafted`."""

    def settings(self, recipe: Recipe | None, models: Lock) -> Settings:
        """What decides about memory; the engine's defaults without a recipe. Raises ToolkitError for a bad flag."""

    def fit(self, recipe: Recipe | None, pair: Pair, instance: Instance, empty: Fit) -> Fit:
        """How the pair fits the instance; `empty` is a fit that does not, to be filled in."""

    def notes(self, recipe: Recipe) -> Iterator[str]:
        """What a plan's reader should know of the choice of engine."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this engine makes of the recipe and, where they are known, of its models."""

    def check_hardware(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on the recipe's instance types."""


class Disk(NamedTuple):
    """The disk of a training job. `name` is what messages call it, `path` the recipe's key, `more` how to get more."""

    name: str
    free_bytes: int
    path: str
    more: str


class PlatformTraits(Protocol):
    """What rooms without a platform's word in them ask of a platform's pure part."""

    name: str
    has_instance_types: bool
    """Whether it has instances of the recipe's types; else this machine is all there is."""

    has_settings_by_type: bool
    """Whether an instance type may have settings of its own."""

    builds_images: bool
    """Whether it can run an image that is built for the recipe; else images run as they are."""

    starts_image_entrypoint: bool
    """Whether an image's own entrypoint starts the engine; else the toolkit's program does."""

    longest_variable: int | None
    """Characters that the value of an environment variable may have; longer flags go by file. None: any number."""

    gated_models: str
    """What to do for a model that the hub gives to some users only, as the end of a sentence."""

    price_option: str
    """The option with which `toolkit catalog update` reads this platform's prices too; empty if it needs none."""

    compile_command: str
    """The command that compiles RECIPE for Trainium ahead of its endpoint."""

    sections: Sections
    """What it reads of a recipe."""

    def fill_in(self, written: PlatformSection) -> PlatformSection:
        """With this platform's defaults."""

    def move_here(self, other: PlatformSection) -> PlatformSection:
        """The section of a recipe that was written for another platform, as far as it means something here."""

    def instance(self, name: str) -> Instance | None:
        """The catalogue's hardware of an instance type, by its name here; None where it is not known."""

    def instances(self) -> Sequence[Instance]:
        """All known instance types that may serve here, by their names here."""

    def builds(self, recipe: Recipe) -> bool:
        """Whether an image is built for the recipe."""

    def images(self, recipe: Recipe) -> Sequence[Image]:
        """The catalogue's images of the recipe's engine that run here, or that one is built on; the preferred first."""

    def price_per_hour(self, recipe: Recipe) -> float | None:
        """US dollars per hour of the recipe's endpoint with its initial instances; None if unknown."""

    def training_disk(self, recipe: Recipe) -> Disk | None:
        """The disk on which a training job keeps hidden states; None if unknown."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this platform makes of the recipe and, where they are known, of its models."""
