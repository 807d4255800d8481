"""What a complete recipe says: its file's keys with what they leave open filled in, and what its lock pins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from toolkit.catalog import methods
from toolkit.catalog.methods import EngineMethod
from toolkit.errors import UsageError
from toolkit.recipe.content import digest
from toolkit.recipe.schema import (
    ContainerSection,
    EngineSection,
    Evidence,
    Expect,
    NetworkSection,
    ObservabilitySection,
    PlatformSection,
    RecipeFile,
    RolloutSection,
    ScalingSection,
    SpeculationSection,
    TargetSection,
)
from toolkit.recipe.section import ChangesNothing, Section
from toolkit.recipe.source import ModelSource, model_source
from toolkit.recipe.training_schema import TrainingSection

VERSION, INSTANCE_TYPES = "engine.version", "platform.instance_types"
"""Keys that a recipe may leave open: what suits its models is then chosen when it is read."""

_MODELS = ("model", "head", "start_from")


@dataclass(frozen=True)
class RecipeValues:
    """What a recipe says, and what follows from that alone."""

    name: str
    description: str | None
    target: TargetSection
    speculation: SpeculationSection | None
    training: TrainingSection | None
    engine: EngineSection
    container: ContainerSection | None
    platform: PlatformSection
    scaling: ScalingSection
    rollout: RolloutSection
    network: NetworkSection
    observability: ObservabilitySection
    workloads: Mapping[str, Path]
    tags: Mapping[str, str]
    evidence: Sequence[Evidence]
    expect: Mapping[str, Expect]
    unlisted: Sequence[str]
    path: Path
    lines: Mapping[str, int] = field(default_factory=dict)
    weight_bytes: int | None = None
    model_bytes: Mapping[str, int] = field(default_factory=dict)
    target_type: str = ""
    download_timeout: int | None = None
    staged_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    other_files: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    image_digests: Mapping[str, str] = field(default_factory=dict)
    wheel_digests: Mapping[str, str] = field(default_factory=dict)
    baseline_of: SpeculationSection | None = None
    candidate: SpeculationSection | None = None
    synthetic_acceptance_length: float | None = None
    discount_percent: float = 0.0
    one_data_source: bool = False
    compared: tuple[str, ...] = ()
    left_open: frozenset[str] = frozenset()
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def region(self) -> str | None:
        """AWS's region; None for the session's, and on platforms that have none."""
        return getattr(self.platform, "region", None)

    def discounted(self, usd: float | None) -> float | None:
        """What is paid for something of that list price, None where it is not known."""
        return None if usd is None else usd * (1 - self.discount_percent / 100)

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

    def edit(self, **changes: Any) -> Self:
        """A copy with other values: of a section these keys, such as `edit(speculation={"num_speculative_tokens": 4})`.

        They are checked as those of a file, which is not changed. Raises UsageError.
        """
        edited = {key: _edited(getattr(self, key, None), self.path, key, value) for key, value in changes.items()}
        return replace(self, **edited)

    def baseline(self) -> Self:
        """This recipe without speculation, named `<name>-baseline`."""
        if self.speculation is None:
            return self
        without = replace(self, speculation=None, baseline_of=self.speculation, candidate=None)
        return replace(without, name=f"{self.name}-baseline", synthetic_acceptance_length=None)

    def on(self, instance_type: str) -> Self:
        """The recipe as it runs on that instance type."""
        if instance_type not in self._by_type:
            self._by_type[instance_type] = self._on(instance_type)
        return self._by_type[instance_type]

    @cached_property
    def _by_type(self) -> dict[str, Self]:
        return {}

    def _on(self, instance_type: str) -> Self:
        here = replace(self, platform=self.platform.on(instance_type))
        own = self.platform.overrides.get(instance_type)
        if own is None:
            return here
        engine = self.engine.edit(args={**self.engine.args, **own.args})
        k = own.num_speculative_tokens
        speculation, baseline_of, candidate = (
            arm.edit(num_speculative_tokens=k) if arm and k else arm
            for arm in (self.speculation, self.baseline_of, self.candidate)
        )
        return replace(here, engine=engine, speculation=speculation, baseline_of=baseline_of, candidate=candidate)

    def chosen_notes(self) -> list[str]:
        """A sentence for each key that the file leaves open: what was taken, and why."""
        return [f"Left open, so chosen: {key} {why}" for key, why in self.chosen.items()]

    def to_dict(self) -> dict[str, Any]:
        """The keys of its file with everything filled in, for people and `--json`."""
        return self._dump(what_runs=False)

    def what_runs(self) -> dict[str, Any]:
        """The keys that decide what runs, where they are not at their defaults: two recipes alike in them run alike.

        It does not depend on the machine: of a folder only the name counts.
        """
        found = self._dump(what_runs=True)
        for key in ("target", "speculation"):
            if model := found[key].get("model"):
                found[key]["model"] = ModelSource.model_construct(model=model).name
        return found

    @cached_property
    def digest(self) -> str:
        """Of what runs: all that is made for the recipe carries it."""
        return digest(self.what_runs())

    def _dump(self, *, what_runs: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, schema in RecipeFile.model_fields.items():
            if not (what_runs and ChangesNothing in schema.metadata):
                found[key] = _dumped(getattr(self, key), what_runs=what_runs)
        absent = {"speculation": {"method": methods.BASELINE}, "container": "aws-dlc"}
        return {key: absent.get(key) if value is None else value for key, value in found.items()}


def _dumped(value: Any, *, what_runs: bool) -> Any:
    """As JSON data. Section by section: pydantic before 2.14 dumps none whose validator is still to build in a list."""
    if isinstance(value, Section):
        return value.dump(what_runs=what_runs)
    if isinstance(value, Mapping):
        return {key: _dumped(each, what_runs=what_runs) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_dumped(each, what_runs=what_runs) for each in value]
    return to_jsonable_python(value)


def _edited(before: Any, file: Path, key: str, value: Any) -> Any:
    if key not in RecipeFile.model_fields:
        raise UsageError(f"a recipe has no key `{key}`", hint=f"It has: {', '.join(RecipeFile.model_fields)}.")
    if not isinstance(before, Section):
        raise UsageError(f"`{key}` is no section that the recipe has", hint=f"Write it in {file}.")
    if not isinstance(value, Mapping):
        raise UsageError(f"`{key}` is a section", hint=f"Write: edit({key}={{KEY: VALUE}})")
    try:
        return _section(before, file.resolve().parent, value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (key, *first["loc"])))
        raise UsageError(f"`{where}`: {first['msg']}", hint="All keys: toolkit schema") from error


def _section(before: Section, base: Path, changes: Mapping[str, Any]) -> Section:
    """Folders begin at the recipe's own, as in its file."""
    placed = {
        name: model_source(value, base).model if name in _MODELS and isinstance(value, str) else value
        for name, value in changes.items()
    }
    written = {name: getattr(before, name) for name in before.model_fields_set if name not in changes}
    validated = type(before).model_validate({**_plain(written), **placed})
    # What was filled in and is not written stays as it was.
    return before.model_copy(update={name: getattr(validated, name) for name in changes})


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sections in a section as the data that they were read from."""
    return {name: value.dump() if isinstance(value, Section) else value for name, value in values.items()}
