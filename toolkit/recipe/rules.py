"""What the rooms below may ask of an engine and of a platform. `toolkit.registry` finds who answers.

Engines implement EngineRules (toolkit/engines), the pure parts of platforms PlatformTraits (toolkit/platforms).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Image, Instance
    from toolkit.engines.imported import Imported
    from toolkit.findings import Finding
    from toolkit.recipe.lock import Lock
    from toolkit.recipe.parts import Engine, PlatformSettings
    from toolkit.recipe.resolve import Recipe
    from toolkit.recipe.schema import EngineSection
    from toolkit.sizing.fit import Fit, Pair
    from toolkit.sizing.settings import Settings


@dataclass(frozen=True)
class EngineDefaults:
    """What an engine is where a recipe leaves it open. `max_num_batched_tokens` None is the engine's own."""

    name: str
    version: str
    max_num_seqs: int
    max_num_batched_tokens: int | None


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
        own_flags: flags that the toolkit writes itself, and the recipe's key that each comes from.
        causes: JSON files with its causes of failure and the stages of its log (apply/causes.py).
    """

    name: str
    package: str
    cpu_package: str
    explains_hardware: bool
    variable_prefix: str
    own_flags: Mapping[str, str]
    metrics: MetricNames
    causes: Sequence[Path]

    def settle(self, written: EngineSection, method: str, instance_type: str) -> EngineDefaults:
        """Name, version and limits, where the recipe does not say them."""

    def completed(self, recipe: Recipe) -> Recipe:
        """With what the recipe leaves open (`left_open`) chosen for its models, and the reasons in `chosen`."""
        return recipe

    def published(self, method: str) -> Published | None:
        """Settings to begin from, for an engine that compiles for them; None where any will do."""
        return None

    def default_tokens(self, engine: Engine, method: str) -> int:
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


@dataclass(frozen=True)
class PlatformFacts:
    """What a platform is. A function that is None asks for something that the platform does not have.

    Fields:
        gated_models: what to do for a model that the hub gives to some users only, as the end of a sentence.
        has_instance_types: it has instances of the recipe's types; else this machine is all there is.
        has_settings_by_type: an instance type may have settings of its own.
        isolates_containers: `network.isolation` has an effect: containers without a network.
        starts_image_entrypoint: an image's own entrypoint starts the engine; else the toolkit's program does.
        longest_variable: characters that the value of an environment variable may have; longer flags go by file. None:
            any number.
        price_option: with it, `toolkit catalog update` reads this platform's prices too; empty if it needs none.
        compile_command: the command that compiles RECIPE for Trainium ahead of its endpoint.
        why_not_compiled: why `toolkit compile` does not work, where `compile_command` is another one.
        builds: whether an image is built for the recipe. None: images run as they are.
        price_per_hour: US dollars per hour of the recipe's endpoint with its initial instances; None if unknown.
        training_disk: the disk on which a training job keeps hidden states.
    """

    gated_models: str
    has_instance_types: bool = False
    has_settings_by_type: bool = False
    isolates_containers: bool = False
    starts_image_entrypoint: bool = False
    longest_variable: int | None = None
    price_option: str = ""
    compile_command: str = "toolkit compile RECIPE"
    why_not_compiled: str = ""
    builds: Callable[[Recipe], bool] | None = None
    price_per_hour: Callable[[Recipe], float | None] | None = None
    training_disk: Callable[[Recipe], Disk] | None = None


class PlatformTraits(Protocol):
    """What rooms without a platform's word in them ask of a platform's pure part."""

    name: str
    facts: PlatformFacts

    def settled(self, written: PlatformSettings) -> PlatformSettings:
        """The settings as they are written, with this platform's defaults filled in."""

    def settings_from(self, other: PlatformSettings) -> PlatformSettings:
        """The settings of a recipe that was written for another platform, as far as they mean something here."""

    def instance(self, name: str) -> Instance | None:
        """The catalogue's hardware of an instance type, by its name here; None where it is not known."""

    def instances(self) -> Sequence[Instance]:
        """All known instance types that may serve here, by their names here."""

    def images(self, recipe: Recipe) -> Sequence[Image]:
        """The catalogue's images of the recipe's engine that run here, or that one is built on; the preferred first."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this platform makes of the recipe and, where they are known, of its models."""


def price_per_hour(recipe: Recipe) -> float | None:
    """US dollars per hour of the recipe's endpoint with its initial instances; None if unknown."""
    price = recipe.platform_rules.facts.price_per_hour
    return price(recipe) if price else None
