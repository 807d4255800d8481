"""From what a recipe file says to what it means: defaults of engine and method filled in, paths made absolute."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit import registry
from toolkit.catalog import methods
from toolkit.catalog.methods import EngineMethod
from toolkit.recipe import unlisted
from toolkit.recipe.load import Lines, LoadedRecipe, load_file
from toolkit.recipe.model_schema import SpeculationSection
from toolkit.recipe.parts import Engine, PlatformSettings, Speculation
from toolkit.recipe.platform_schema import (
    NetworkSection,
    ObservabilitySection,
    RolloutSection,
    ScalingSection,
)
from toolkit.recipe.rules import EngineRules, PlatformTraits
from toolkit.recipe.schema import ContainerSection, Evidence, Expect, RecipeFile
from toolkit.recipe.source import ModelSource, model_source
from toolkit.recipe.training_schema import TrainingSection
from toolkit.text import inert

if TYPE_CHECKING:
    from toolkit.catalog.lookup import Image

_CLUSTER = "platform.kubernetes"
# What stands for an instance type until JumpStart's own is read.
_OF_JUMPSTART = "ml.m7i.large"
VERSION, INSTANCE_TYPES = "engine.version", "platform.instance_types"
"""Keys that a recipe may leave open: what suits its models is then chosen when it is read."""


@dataclass(frozen=True)
class Recipe:
    """A complete recipe. `speculation` is None for a baseline; `lines` gives the file's line of each key.

    `lock.pinned` fills in revisions, the size of the weights, the target's model type, `image_digests` by address with
    tag, and `wheel_digests` by pin.
    `container` None is AWS's image. `baseline_of` is what a baseline leaves out: some engines need their flags to be
    alike. `candidate` is what `toolkit improve` tries beside `speculation`, which no recipe file can say. `training`
    says how its drafter is trained, None for one that exists. `left_open` are the keys that the file leaves open,
    `chosen` says what was taken for them and why.
    What follows from the fields (`image`, `flags`, the recipe on one of its instance types) is decided once and kept.
    """

    name: str
    description: str
    path: Path
    target: ModelSource
    speculation: Speculation | None
    engine: Engine
    platform: PlatformSettings
    workloads: Mapping[str, Path]
    tags: Mapping[str, str]
    evidence: tuple[Evidence, ...]
    expect: Mapping[str, Expect] = field(default_factory=dict)
    weight_bytes: int | None = None
    target_type: str = ""
    container: ContainerSection | None = None
    baseline_of: Speculation | None = field(default=None, repr=False)
    candidate: Speculation | None = field(default=None, repr=False)
    accept_eula: bool = False
    scaling: ScalingSection = field(default_factory=ScalingSection.model_construct)
    rollout: RolloutSection = field(default_factory=RolloutSection.model_construct)
    network: NetworkSection = field(default_factory=NetworkSection.model_construct)
    observability: ObservabilitySection = field(default_factory=ObservabilitySection.model_construct)
    image_digests: Mapping[str, str] = field(repr=False, default_factory=dict)
    wheel_digests: Mapping[str, str] = field(repr=False, default_factory=dict)
    unlisted: tuple[str, ...] = ()
    training: TrainingSection | None = None
    lines: Lines = field(repr=False, default_factory=dict)
    left_open: frozenset[str] = field(repr=False, default=frozenset())
    chosen: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def engine_rules(self) -> EngineRules:
        """What its engine knows."""
        rules: EngineRules = registry.engine_rules(self.engine.name)
        return rules

    @property
    def platform_rules(self) -> PlatformTraits:
        """What its platform knows."""
        rules: PlatformTraits = registry.platform_rules(self.platform.name)
        return rules

    @property
    def method(self) -> str:
        """The drafting method, `none` for a baseline."""
        return self.speculation.method if self.speculation else methods.BASELINE

    @property
    def drafter(self) -> ModelSource | None:
        """The drafter; None for a baseline, and for methods that draft without a model of their own."""
        return self.speculation.drafter if self.speculation else None

    @property
    def drafting(self) -> EngineMethod | None:
        """How its engine drafts with its method; None for a baseline, and where the engine cannot."""
        return self.speculation.facts.engines.get(self.engine.name) if self.speculation else None

    @property
    def models(self) -> dict[str, ModelSource]:
        """Where the recipe's models are, by the recipe's keys."""
        drafter = {"speculation.model": self.drafter} if self.drafter else {}
        return {"target.model": self.target, **drafter}

    @property
    def target_requests(self) -> int:
        """Requests in flight per container that autoscaling aims at: the recipe's, or half of `engine.max_num_seqs`.

        Above max_num_seqs requests wait. Another container takes minutes to start, and traffic may double meanwhile;
        and what speculation gains shrinks as the batch grows.
        """
        return self.scaling.requests_per_instance or max(1, self.engine.max_num_seqs // 2)

    @property
    def leaves_instance_type_open(self) -> bool:
        """Whether it names no instance type, and its target comes from where one is known to suit it."""
        return self.target.kind == "jumpstart" and INSTANCE_TYPES in self.left_open

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

    def baseline(self) -> Recipe:
        """This recipe without speculation, named `<name>-baseline`."""
        if self.speculation is None:
            return self
        without = replace(self, speculation=None, baseline_of=self.speculation, candidate=None)
        return replace(without, name=f"{self.name}-baseline")

    def on(self, instance_type: str) -> Recipe:
        """The recipe as it runs on that instance type."""
        if instance_type not in self._by_type:
            self._by_type[instance_type] = self._on(instance_type)
        return self._by_type[instance_type]

    @cached_property
    def _by_type(self) -> dict[str, Recipe]:
        return {}

    def _on(self, instance_type: str) -> Recipe:
        here = replace(self, platform=replace(self.platform, instance_types=(instance_type,)))
        differs = self.platform.overrides.get(instance_type)
        if differs is None:
            return here
        engine = replace(self.engine, args={**self.engine.args, **_dashed(differs.args)})
        k = differs.num_speculative_tokens
        speculation, baseline_of, candidate = (
            _with_tokens(arm, k) for arm in (self.speculation, self.baseline_of, self.candidate)
        )
        return replace(here, engine=engine, speculation=speculation, baseline_of=baseline_of, candidate=candidate)

    def with_platform(self, platform: str | None) -> Recipe:
        """The recipe on another platform; None keeps its own. Raises UsageError for an unknown one."""
        if platform in (None, self.platform.name):
            return self
        rules: PlatformTraits = registry.platform_rules(platform)
        settings = rules.settings_from(self.platform)
        changes_names = self.platform.kubernetes or settings.kubernetes
        lines = {path: line for path, line in self.lines.items() if not changes_names or path != _CLUSTER}
        if INSTANCE_TYPES in self.left_open:
            settings = rules.settled(replace(settings, instance_types=()))
        args = {flag: value for flag, value in self.engine.args.items() if f"engine.args.{flag}" not in self.chosen}
        engine = replace(self.engine, args=args)
        return _with_choices(replace(self, platform=settings, engine=engine, lines=lines, chosen={}))

    def chosen_notes(self) -> list[str]:
        """A sentence for each key that the file leaves open: what was taken, and why."""
        return [f"Left open, so chosen: {key} {why}" for key, why in self.chosen.items()]

    def to_dict(self) -> dict[str, Any]:
        """The resolved recipe as plain data, for people and `--json`."""
        speculation = self.speculation
        return {
            "name": self.name,
            "description": self.description,
            "target": str(self.target),
            "speculation": speculation.to_dict() if speculation else {"method": methods.BASELINE},
            "engine": {
                "name": self.engine.name,
                "version": self.engine.version,
                "max_model_len": self.engine.max_model_len,
                "max_num_seqs": self.engine.max_num_seqs,
                "max_num_batched_tokens": self.engine.max_num_batched_tokens,
                "args": dict(self.engine.args),
                "env": dict(self.engine.env),
                **({"allow": list(self.engine.allow)} if self.engine.allow else {}),
                **({"compile_ahead": self.engine.compile_ahead} if self.engine_rules.compilation else {}),
            },
            "container": self.container.model_dump() if self.container else "aws-dlc",
            "platform": {
                "name": self.platform.name,
                "run": self.platform.run,
                "instance_types": list(self.platform.instance_types),
                "overrides": {name: item.model_dump() for name, item in self.platform.overrides.items()},
                "region": self.platform.region,
                "role": self.platform.role,
                "weights": self.platform.weights,
                "hub_token_secret": self.platform.hub_token_secret,
                "inference_component": self.platform.component.model_dump() if self.platform.component else None,
                "routing": self.platform.routing,
                "capacity_reservation": self.platform.capacity_reservation,
                "kms_key": self.platform.kms_key,
                **({"kubernetes": self.platform.kubernetes.model_dump()} if self.platform.kubernetes else {}),
                **(
                    {"prefix_routing": self.platform.prefix_routing.model_dump()}
                    if self.platform.prefix_routing
                    else {}
                ),
            },
            "scaling": self.scaling.model_dump(),
            "rollout": self.rollout.model_dump(),
            "network": self.network.model_dump(),
            "observability": self.observability.model_dump(),
            "workloads": {name: str(path) for name, path in self.workloads.items()},
            **({"unlisted": list(self.unlisted)} if self.unlisted else {}),
            **({"training": self.training.model_dump()} if self.training else {}),
        }

    def __repr__(self) -> str:
        k = f" K={self.speculation.num_speculative_tokens}" if self.speculation else ""
        engine = f"{self.engine.name} {self.engine.version}"
        return inert(f"<Recipe {self.name}: {self.target.name}, {self.method}{k}, {engine}, {self.platform.name}>")

    def _repr_html_(self) -> str:
        from toolkit.recipe.card import recipe_card

        return recipe_card(self)


def load(recipe: str | os.PathLike[str] | Recipe) -> Recipe:
    """The complete recipe of a path, of a catalogue name such as `tiny/p-eagle`, or of a Recipe.

    Raises RecipeNotFound, UnreadableRecipe, or RecipeError with all findings.
    """
    return recipe if isinstance(recipe, Recipe) else resolve(load_file(recipe))


def resolve(loaded: LoadedRecipe) -> Recipe:
    """Fill in what the file leaves out. Pure but for looking where the recipe's folder is."""
    file, folder = loaded.file, loaded.path.resolve().parent
    platform = _platform(file)
    rules: EngineRules = registry.engine_rules(file.engine.name)
    engine = _engine(file, platform, rules)
    recipe = Recipe(
        name=file.name,
        description=file.description or "",
        path=loaded.path,
        target=model_source(file.target.model, folder, file.target.revision),
        speculation=_speculation(file.speculation, engine, rules, folder),
        engine=engine,
        platform=platform,
        workloads={name: _folder(folder, path) for name, path in file.workloads.items()},
        tags=file.tags,
        evidence=tuple(file.evidence),
        expect=file.expect,
        container=_container(file, folder),
        accept_eula=file.target.accept_eula,
        scaling=file.scaling,
        rollout=file.rollout,
        network=file.network,
        observability=file.observability,
        unlisted=tuple(file.unlisted),
        training=_training(file, folder),
        lines={_with_dashes(path): line for path, line in loaded.lines.items()},
        left_open=frozenset(_left_open(file)),
    )
    return _with_choices(recipe)


def _left_open(file: RecipeFile) -> Iterator[str]:
    if file.engine.version is None:
        yield VERSION
    if file.platform.instance_types is None:
        yield INSTANCE_TYPES


def _with_choices(recipe: Recipe) -> Recipe:
    """The recipe with what it leaves open; a JumpStart model's instance type is JumpStart's to choose."""
    if recipe.leaves_instance_type_open:
        recipe = replace(recipe, platform=replace(recipe.platform, instance_types=(_OF_JUMPSTART,)))
    elif not recipe.left_open:
        return recipe
    return recipe.engine_rules.completed(recipe)


def _platform(file: RecipeFile) -> PlatformSettings:
    written, types = file.platform, file.platform.instance_types or ()
    rules: PlatformTraits = registry.platform_rules(written.name)
    return rules.settled(
        PlatformSettings(
            name=written.name,
            instance_types=tuple(item if isinstance(item, str) else item.type for item in types),
            overrides={item.type: item for item in types if not isinstance(item, str)},
            health_check_timeout=written.health_check_timeout,
            capacity_timeout=written.capacity_timeout,
            region=written.region,
            role=written.role,
            run=written.run,
            weights=written.weights,
            hub_token_secret=written.hub_token_secret,
            component=written.inference_component,
            kubernetes=written.kubernetes,
            routing=written.routing,
            prefix_routing=written.prefix_routing,
            capacity_reservation=written.capacity_reservation,
            kms_key=written.kms_key,
        )
    )


def _engine(file: RecipeFile, platform: PlatformSettings, rules: EngineRules) -> Engine:
    written = file.engine
    chosen = rules.settle(written, file.speculation.method, next(iter(platform.instance_types), ""))
    return Engine(
        name=chosen.name,
        version=chosen.version,
        max_model_len=written.max_model_len,
        max_num_seqs=written.max_num_seqs or chosen.max_num_seqs,
        max_num_batched_tokens=written.max_num_batched_tokens or chosen.max_num_batched_tokens,
        args=_dashed(written.args),
        env=written.env,
        compile_ahead=written.compile == "ahead",
        allow=tuple(name if name in written.env else name.replace("_", "-") for name in written.allow),
    )


def _speculation(written: SpeculationSection, engine: Engine, rules: EngineRules, folder: Path) -> Speculation | None:
    if written.method == methods.BASELINE:
        return None
    return Speculation(
        method=written.method,
        drafter=model_source(written.model, folder, written.revision) if written.model else None,
        num_speculative_tokens=written.num_speculative_tokens or rules.default_tokens(engine, written.method),
        schedule=tuple(written.num_speculative_tokens_per_batch_size),
        tensor_parallel=written.draft_tensor_parallel_size,
        settings=written.settings,
    )


def _with_tokens(speculation: Speculation | None, tokens: int | None) -> Speculation | None:
    return replace(speculation, num_speculative_tokens=tokens) if speculation and tokens else speculation


def _container(file: RecipeFile, folder: Path) -> ContainerSection | None:
    written = file.container
    if isinstance(written, str):
        return ContainerSection() if written == "custom" else None
    if written.dockerfile is None:
        return written
    return written.model_copy(update={"dockerfile": str(_folder(folder, written.dockerfile))})


def _training(file: RecipeFile, folder: Path) -> TrainingSection | None:
    """The section with absolute paths instead of paths that begin at the recipe's folder."""
    written = file.training
    if written is None:
        return None
    data = [item if "://" in item else str(_folder(folder, item)) for item in written.data]
    start = str(model_source(written.start_from, folder)) if written.start_from else None
    return written.model_copy(update={"data": data, "start_from": start})


def _dashed(args: Mapping[str, Any]) -> dict[str, Any]:
    return {flag.replace("_", "-"): value for flag, value in args.items()}


def _with_dashes(path: str) -> str:
    """The path of a key with engine flags as `engine.args` holds them, however they are written."""
    above, args, flag = path.partition("engine.args.")
    return f"{above}{args}{flag.replace('_', '-')}"


def _folder(base: Path, written: str) -> Path:
    return (base / Path(written).expanduser()).resolve()
