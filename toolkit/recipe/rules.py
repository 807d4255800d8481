"""What the rooms below may ask of an engine and of a platform. `toolkit.registry` finds who answers.

Engines implement EngineRules (toolkit/engines), the pure parts of platforms PlatformTraits (toolkit/platforms).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from toolkit.catalog import methods
from toolkit.recipe.assemble import Sections

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Image, Instance
    from toolkit.findings import Finding
    from toolkit.recipe.assemble import Sections
    from toolkit.recipe.imported import Imported
    from toolkit.recipe.lock import Lock
    from toolkit.recipe.recipe import Recipe
    from toolkit.recipe.schema import EngineSection, PlatformSection


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


class Metrics(Protocol):
    """What an engine tells while it serves: its Prometheus page, and a line of its log."""

    names: MetricNames

    def reports_drafts(self, recipe: Recipe) -> bool:
        """Whether its answers and its log tell how many tokens it drafted and accepted."""

    def draft_line(self, k: int) -> str:
        """CloudWatch's pattern of its log line on speculation, with the fields `accepted` and `drafted`."""


class Compilation(Protocol):
    """Of an engine that compiles for its accelerators, ahead of its start or at it."""

    def published(self, method: str) -> Published | None:
        """Settings to begin from; None where none were published."""

    def parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        """All that the compiled code depends on; `image`, `target` and `drafter` tell those apart."""

    def seconds(self, recipe: Recipe) -> int:
        """How long compiling is thought to take; 0 where that is not known."""

    def disk_bytes(self, recipe: Recipe, fetched: int, *, ahead: bool) -> int:
        """What a container writes to its disk besides the `fetched` weights, when it compiles ahead or else serves."""


class HardwareRules(Protocol):
    """Of an engine whose versions differ in the hardware they run on. Its check also says where it cannot be sized."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on the recipe's instance types."""

    def notes(self, recipe: Recipe) -> Iterator[str]:
        """What a plan's reader should know of the version that was chosen for the hardware."""


class CpuBuild(Protocol):
    """An engine's build for CPUs, which the local platform can start. `package` is its name in the package index."""

    package: str

    def variables(
        self, given: Collection[str], free_bytes: int, cpu_features: Collection[str], cores: int
    ) -> dict[str, str]:
        """Environment for a machine without an accelerator, for settings that the `given` variables leave open."""

    def binds_threads(self, given: Collection[str]) -> bool:
        """Whether the `given` variables say on which cores it computes."""


class Choice(NamedTuple):
    """A token that a model could have written, its log-probability and its text."""

    token: int
    logprob: float
    text: str = ""


def best_first(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    return tuple(sorted(choices, key=lambda choice: -choice.logprob))


class Decoded(NamedTuple):
    """A token that an engine decoded, and its most probable tokens at that moment, best first."""

    token: int
    best: Sequence[Choice]


class Scoring(Protocol):
    """How an engine is asked for the log-probabilities of tokens that it did not write itself, or just wrote.

    `most_tokens` is what one request may have, prompt and answer together. An answer that cannot be read raises
    InvocationError.
    """

    most_tokens: int

    def request(self, tokens: Sequence[int]) -> dict[str, Any]:
        """The completion to ask for so that the answer scores these tokens."""

    def scores(self, answer: Mapping[str, Any]) -> Sequence[Sequence[Choice]]:
        """The most probable tokens at each place of the request, with the token that stands there among them."""

    def decoding(self) -> dict[str, Any]:
        """What a request for a completion says besides, so that the answer tells how probable its own tokens were."""

    def decoded(self, answer: Mapping[str, Any]) -> Sequence[Decoded]:
        """Each token that such an answer has."""


class EngineParts(Protocol):
    """What some engines have and others do not; those without a part leave it out."""

    memory: object | None = None
    """Sizes models on its hardware: a `sizing.fit.MemoryModel`, which names what stands above this room."""

    metrics: Metrics | None = None
    compilation: Compilation | None = None
    hardware: HardwareRules | None = None
    cpu: CpuBuild | None = None
    scoring: Scoring | None = None

    import_settings: Callable[[str | Mapping[str, Any], str | None], Imported | None] | None = None
    """Reads a command line that starts it, or a YAML document of others for it; None for a format it cannot read.

    The text after it is one of the variants that such a document may have. Raises UsageError for what is wrong in it.
    """

    accepts_synthetically: Callable[[Recipe], bool] | None = None
    """Whether it can accept drafts by chance, at a chosen acceptance length, on the recipe's hardware."""

    downloads: Callable[[Recipe], Sequence[Download]] | None = None
    """Files that it would download when it starts, and cannot in the recipe's network."""

    cache_folders: Mapping[str, str] = {}
    """Variables that name a folder in which it keeps what it finds out when it first starts, with such a name."""


class EngineRules(EngineParts, Protocol):
    """All that differs between engines. `recipe` is always one that runs on this engine.

    Attributes:
        variable_prefix: what the variables begin with that the container's entrypoint turns into flags.
        sections: what it reads of a recipe.
        own_flags: flags that the toolkit writes itself, and the recipe's key that each comes from.
        causes: JSON files with its causes of failure and the stages of its log (apply/causes.py).
    """

    sections: Sections
    variable_prefix: str
    own_flags: Mapping[str, str]
    causes: Sequence[Path]

    def fill_in(self, written: EngineSection, method: str, instance_type: str) -> EngineSection:
        """With limits, and with a name and version where they are not chosen by trying (`loading`)."""

    def drafts_on(self, recipe: Recipe, instance: Instance) -> bool:
        """Whether it supports the recipe's method on hardware that it runs on."""
        return True

    def default_tokens(self, engine: EngineSection, method: str) -> int:
        """K where the recipe does not say it."""
        return methods.method(method).default_num_speculative_tokens

    def knows(self, version: str) -> bool:
        """Whether anything is known of that version; of others its own check tells."""

    def runs_on(self, instance: Instance) -> bool:
        """Whether its images run on that hardware."""

    def accelerators(self, recipe: Recipe, instance: Instance | None) -> int:
        """How many accelerators of an instance one copy of the engine takes."""

    def flags(self, recipe: Recipe) -> dict[str, Any]:
        """All flags besides `engine.args`, and those of them that the engine's own change."""

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        """Environment besides `engine.env`; `flags` are the texts of all flags."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this engine makes of the recipe and, where they are known, of its models."""


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

    def images(self, recipe: Recipe) -> Sequence[Image]:
        """The catalogue's images of the recipe's engine that run here, or that one is built on; the preferred first."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this platform makes of the recipe and, where they are known, of its models."""
