"""A complete recipe with the engine and the platform that it is for, and what it asks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from toolkit.catalog import methods
from toolkit.catalog.lookup import Image, Instance
from toolkit.display import card, dollars_per_hour, facts, fold
from toolkit.documents import read_file
from toolkit.findings import Finding
from toolkit.recipe import unlisted
from toolkit.recipe.assemble import Sections
from toolkit.recipe.facts import Lock
from toolkit.recipe.imported import Imported
from toolkit.recipe.rules import Ask, CpuBuild, Disk, Download, EngineAnswer, MetricNames, Published, Rank, Scoring
from toolkit.recipe.schema import EngineSection, NetworkSection, PlatformSection
from toolkit.recipe.values import RecipeValues
from toolkit.text import inert


@dataclass(frozen=True)
class Recipe(RecipeValues):
    """A complete recipe, with the engine and the platform that it names.

    The fields down to `unlisted` are the file's keys, as the schema validated them. In them K, the engine's version and
    limits and the instance types are filled in, folders are absolute, `speculation` is None for a baseline and
    `container` None for AWS's image. `lines` gives the file's line of each key.
    `lock.pinned` fills in revisions, time-outs, the size of the weights, the target's model type, the files of each
    model that are staged, `image_digests` by address with tag, and `wheel_digests` by pin.
    `baseline_of` is the speculation that a baseline leaves out: some engines need both to have the same flags.
    Four fields cannot stand in a file. `candidate` is the speculation that `toolkit improve` tries beside
    `speculation`. With `synthetic_acceptance_length` the engine accepts drafts at random, so many tokens a step on
    average: answers are garbage, at the speed of such a drafter. With `one_data_source` target, drafter and settings
    are folders of one S3 prefix, for CloudFormation. `compared` are methods for each of which one training job makes a
    head.
    `left_open` are the keys that the file leaves open, `chosen` says what was taken for them and why.
    What follows from the fields (`image`, `flags`, the recipe on one of its instance types) is decided once and kept.
    """

    engine_rules: EngineRules = field(compare=False, kw_only=True)
    platform_rules: PlatformTraits = field(compare=False, kw_only=True)

    @property
    def price_per_hour(self) -> float | None:
        """US dollars per hour of its endpoint with its initial instances; None if unknown."""
        price = self.platform_rules.facts.price_per_hour
        return self.discounted(price(self)) if price else None

    @property
    def nodes(self) -> int:
        """How many nodes run one copy of its engine together."""
        ask = self.platform_rules.facts.nodes
        return ask(self) if ask else 1

    @property
    def is_isolated(self) -> bool:
        """Whether its containers have no network, on a platform that can see to it."""
        read = self.platform_rules.sections.get("network", NetworkSection)
        return "isolation" in read.model_fields and getattr(self.network, "isolation", False)

    @property
    def runs_model_code(self) -> bool:
        """Whether its engine may run Python that is part of a model."""
        asks = self.engine_rules.runs_model_code
        return asks is not None and asks(self)

    @cached_property
    def image(self) -> Image | None:
        """The image of its engine on its platform, or of what its container is built on; one under `unlisted` first."""
        known = [image for image in self.platform_rules.images(self) if image.version == self.engine.version]
        listed = unlisted.image(self.unlisted, self.engine.version, self.platform_rules.images(self))
        if listed and (not known or any(map(unlisted.is_image, self.unlisted))):
            return listed
        return next(iter(known), None)

    @cached_property
    def flags(self) -> Mapping[str, Any]:
        """All flags of its engine by name, without the leading dashes."""
        return {**self.engine.args, **self.engine_rules.flags(self)}

    def __repr__(self) -> str:
        k = f" K={self.speculation.num_speculative_tokens}" if self.speculation else ""
        engine = f"{self.engine.name} {self.engine.version}"
        return inert(f"<Recipe {self.name}: {self.target.name}, {self.method}{k}, {engine}, {self.platform.name}>")

    def _repr_html_(self) -> str:
        return _card(self)


def _card(recipe: Recipe) -> str:
    speculation, engine = recipe.speculation, recipe.engine
    rows: list[tuple[str, object]] = [
        ("target", recipe.target),
        ("drafter", recipe.drafter),
        ("method", f"{recipe.method}, K = {speculation.num_speculative_tokens}" if speculation else "no speculation"),
        ("engine", f"{engine.name} {engine.version}"),
        ("limits", _limits(recipe)),
        ("platform", _platform(recipe)),
        ("price", dollars_per_hour(recipe.price_per_hour)),
        ("workloads", ", ".join(recipe.workloads)),
        ("measured", _measured(recipe)),
    ]
    settings = "\n".join(f"{key}: {value}" for key, value in recipe.to_dict().items())
    parts = (facts(rows), fold(recipe.path, _source(recipe)), fold("all settings, with defaults", settings))
    return card(recipe.name, *parts, says=recipe.description)


def _limits(recipe: Recipe) -> str:
    context = f"{recipe.engine.max_model_len:,} tokens of context" if recipe.engine.max_model_len else ""
    return ", ".join(filter(None, (context, f"{recipe.engine.max_num_seqs} requests at once")))


def _platform(recipe: Recipe) -> str:
    if not recipe.platform_rules.facts.has_instance_types:
        return recipe.platform.name
    return f"{recipe.platform.name}, {' or '.join(recipe.platform.types)}"


def _measured(recipe: Recipe) -> str:
    """The speedups that the recipe's evidence gives."""
    found = [item for item in recipe.evidence if item.speedup]
    return "; ".join(f"{item.speedup:.2f}x on {item.workload} ({item.hardware}, {item.date})" for item in found)


def _source(recipe: Recipe) -> str:
    """The text of the recipe's file; empty where it is gone."""
    try:
        return read_file(recipe.path).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


class Metrics(Protocol):
    """What an engine tells while it serves: its Prometheus page, and a line of its log."""

    names: MetricNames

    def reports_drafts(self, recipe: Recipe) -> bool:
        """Whether its answers and its log tell how many tokens it drafted and accepted."""

    def draft_line(self, k: int) -> str:
        """CloudWatch's pattern of its log line on speculation, with the fields `accepted` and `drafted`."""


class Artifacts(Protocol):
    """Of an engine that can be given what an earlier start has compiled."""

    how_to_want: str
    """The edit for a recipe that does not ask for that."""

    how_to_do_without: str
    """The edit for one that does, as the end of a sentence."""

    def wanted(self, recipe: Recipe) -> bool:
        """Whether the recipe asks for that."""

    def without(self, recipe: Recipe) -> Recipe:
        """The recipe with containers that compile when they start; itself where that may take too long."""

    def parts(self, recipe: Recipe, image: str, target: str, drafter: str) -> dict[str, Any]:
        """All that the compiled code depends on; `image`, `target` and `drafter` tell those apart."""

    def seconds(self, recipe: Recipe) -> int:
        """How long compiling is thought to take; 0 where that is not known."""


class Compilation(Artifacts, Protocol):
    """Of an engine that compiles whole models for its accelerators, ahead of its start or at it."""

    def published(self, method: str) -> Published | None:
        """Settings to begin from; None where none were published."""

    def disk_bytes(self, recipe: Recipe, fetched: int, *, ahead: bool) -> int:
        """What a container writes to its disk besides the `fetched` weights, when it compiles ahead or else serves."""


class HardwareRules(Protocol):
    """Of an engine whose versions differ in the hardware they run on. Findings also say where it cannot be sized."""

    def drafts_on(self, recipe: Recipe, instance: Instance) -> bool:
        """Whether the recipe's version supports its method on hardware that the engine runs on."""

    def check_hardware(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on the recipe's instance types."""

    def notes(self, recipe: Recipe) -> Iterator[str]:
        """What a plan's reader should know of the version that was chosen for the hardware."""


class EngineParts(Protocol):
    """What some engines have and others do not; those without a part leave it out."""

    memory: object | None = None
    """Sizes models on its hardware: a `sizing.fit.MemoryModel`, which names what stands above this room."""

    metrics: Metrics | None = None
    artifacts: Artifacts | None = None
    compilation: Compilation | None = None
    hardware: HardwareRules | None = None
    cpu: CpuBuild | None = None
    scoring: Scoring | None = None

    cache_salt: str = ""
    """The field of a request that keeps it from what is cached of the prompts of requests with another value."""

    length_variable: str = ""
    """A variable of `engine.env` that, set to 1, lets requests be longer than the target has positions."""

    gpt_oss_method_since: str = ""
    """The first version with a quantization of its own for gpt-oss, which it takes whatever the flag says."""

    yarn_counted_since: str = ""
    """The first version that takes the positions written for a model with YaRN for all that it reaches."""

    import_settings: Callable[[str | Mapping[str, Any], str | None], Imported | None] | None = None
    """Reads a command line that starts it, or a YAML document of others for it; None for a format it cannot read.

    The text after it is one of the variants that such a document may have. Raises UsageError for what is wrong in it.
    """

    adopt: Callable[[Imported], bool] | None = None
    """Makes settings that the default engine has read its own, if they are for it; whether they are."""

    accepts_synthetically: Callable[[Recipe], bool] | None = None
    """Whether it can accept drafts by chance, at a chosen acceptance length, on the recipe's hardware."""

    ask: Callable[[Recipe, Lock | None, Ask], EngineAnswer] | None = None
    """What the engine itself says of the recipe; the last argument is whether it is asked where no answer is kept."""

    runs_model_code: Callable[[Recipe], bool] | None = None
    """Whether the recipe lets it run Python that is part of a model."""

    downloads: Callable[[Recipe], Sequence[Download]] | None = None
    """Files that it would download when it starts, and cannot in the recipe's network."""

    rank_flags: Callable[[Rank], Mapping[str, Any]] | None = None
    """Flags of one of several nodes that run it together."""

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
        """The flags that the toolkit adds to `engine.args`, and those of `engine.args` whose value it changes."""

    def variables(self, recipe: Recipe, flags: Mapping[str, str]) -> dict[str, str]:
        """Environment besides `engine.env`; `flags` are the texts of all flags."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this engine makes of the recipe and, where they are known, of its models."""


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
        compile_command: the command that compiles RECIPE ahead of its endpoint.
        why_not_compiled: why `toolkit compile` does not work, where `compile_command` is another one.
        keeps_caches: what engines find out when they first start outlives their containers.
        builds: whether an image is built for the recipe. None: images run as they are.
        nodes: how many nodes run one copy of the recipe's engine together. None: one.
        price_per_hour: US dollars per hour of the recipe's endpoint with its initial instances; None if unknown.
        training_disk: the disk on which a training job keeps hidden states.
        adopt: the section of a recipe for another platform, as far as it means something here. None: all of it.
    """

    gated_models: str
    has_instance_types: bool = False
    has_settings_by_type: bool = False
    starts_image_entrypoint: bool = False
    longest_variable: int | None = None
    price_option: str = ""
    compile_command: str = "toolkit compile RECIPE"
    why_not_compiled: str = ""
    keeps_caches: bool = False
    builds: Callable[[Recipe], bool] | None = None
    nodes: Callable[[Recipe], int] | None = None
    price_per_hour: Callable[[Recipe], float | None] | None = None
    training_disk: Callable[[Recipe], Disk] | None = None
    adopt: Callable[[PlatformSection], PlatformSection] | None = None


class PlatformTraits(Protocol):
    """What code for every platform asks of a platform's pure part."""

    name: str
    facts: PlatformFacts

    sections: Sections
    """What it reads of a recipe."""

    def fill_in(self, written: PlatformSection) -> PlatformSection:
        """With this platform's defaults."""

    def instance(self, name: str) -> Instance | None:
        """The catalogue's hardware of an instance type, by its name here; None where it is not known."""

    def instances(self) -> Sequence[Instance]:
        """All known instance types that may serve here, by their names here."""

    def images(self, recipe: Recipe) -> Sequence[Image]:
        """The catalogue's images of the recipe's engine that run here, or that one is built on; the preferred first."""

    def check(self, recipe: Recipe, models: Lock | None) -> Iterator[Finding]:
        """Findings on what this platform makes of the recipe and, where they are known, of its models."""
