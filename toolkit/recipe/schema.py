"""What a recipe file may say. Defaults that depend on the pair or the engine are filled in by `resolve`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr, StringConstraints, field_validator, model_validator

from toolkit import registry
from toolkit.recipe.model_schema import SpeculationSection, TargetSection
from toolkit.recipe.platform_schema import (
    NetworkSection,
    ObservabilitySection,
    PlatformSection,
    RolloutSection,
    ScalingSection,
)
from toolkit.recipe.section import EngineFlag, FlagValue, NonEmptyStr, PositiveInt, RecipeName, Section, one_of
from toolkit.recipe.training_schema import TrainingSection

# Three numbers; images for Trainium add two or three of the plugin's.
Version = Annotated[StrictStr, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+){0,3}$")]
EnvironmentName = Annotated[StrictStr, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


def _engine_enum(schema: dict[str, Any]) -> None:
    schema |= {"default": registry.default_engine(), "enum": list(registry.engines())}


EngineName = Annotated[StrictStr, one_of(registry.engines), Field(json_schema_extra=_engine_enum)]


class EngineSection(Section):
    """The inference engine and its limits."""

    name: EngineName = Field(default_factory=registry.default_engine, description=registry.engine_summary())
    version: Version | None = Field(
        None, description="engine version, three numbers; default: the newest that works with method and models"
    )
    compile: Literal["ahead", "at-start"] = Field(
        "ahead",
        description="Trainium: `ahead` serves what `toolkit compile`, or a cluster's Job, has made; `at-start` "
        "compiles while it starts, which may take longer than SageMaker waits",
    )
    max_model_len: PositiveInt | None = Field(
        None, description="longest prompt + answer in tokens; default: the target's own limit"
    )
    max_num_seqs: PositiveInt | None = Field(None, description="requests decoded together; default 128, on Trainium 4")
    max_num_batched_tokens: PositiveInt | None = Field(
        None, description="tokens per engine step, draft slots included; default 32768, on Trainium the engine's own"
    )
    args: dict[EngineFlag, FlagValue] = Field(
        default_factory=dict, description="any other flag of the engine, without the leading dashes"
    )
    env: dict[EnvironmentName, StrictStr] = Field(
        default_factory=dict, description="environment of the engine; never put a secret here"
    )
    allow: list[NonEmptyStr] = Field(
        default_factory=list,
        description="flags of `args` and variables of `env` that may run code, load files or open the server further",
    )

    @field_validator("args")
    @classmethod
    def _flags_differ(cls, args: dict[str, Any]) -> dict[str, Any]:
        dashed = [flag.replace("_", "-") for flag in args]
        if twice := next((flag for flag in dashed if dashed.count(flag) > 1), None):
            raise ValueError(f"`{twice}` is given twice, with `-` and with `_`")
        return args


class ContainerSection(Section):
    """An image of one's own: the toolkit's layer on a base. `container: custom` is this with all defaults."""

    base: Annotated[StrictStr, StringConstraints(pattern=r"^[\w.:/@-]+$", min_length=1)] | None = Field(
        None, description="image with tag or digest; default: AWS's of that engine version, else the engine's own"
    )
    python: Annotated[StrictStr, StringConstraints(pattern=r"^3\.[0-9]+$")] | None = Field(
        None, description="Python of the base, for `wheels`; default: the catalogue's of AWS's image, 3.12 of a `base`"
    )
    wheels: list[Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*==[\w.!+]+$")]] = Field(
        default_factory=list,
        description="packages, pinned as name==version, without what they depend on; `toolkit lock` pins their hashes",
    )
    bake_drafter: StrictBool = Field(False, description="the drafter lies in the image and is not fetched at start")
    builder: Literal["append", "docker", "buildah", "codebuild"] | None = Field(
        None, description="default: `append`, which needs no Docker; with `dockerfile` whichever of the others is there"
    )
    dockerfile: NonEmptyStr | None = Field(
        None, description="file with instructions for the end of the Dockerfile, such as RUN, which `append` cannot do"
    )
    repository: (
        Annotated[StrictStr, StringConstraints(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$", max_length=200)] | None
    ) = Field(None, description="ECR repository of yours; default: toolkit/<name>, which is made")


class Evidence(Section):
    """A number that somebody measured. Never invented: `source` says who and how."""

    workload: NonEmptyStr
    num_speculative_tokens: PositiveInt | None = Field(None, description="K that was measured")
    concurrency: PositiveInt | None = Field(None, description="requests at a time, where it is known")
    acceptance_length: Annotated[float, Field(ge=1, strict=True)] | None = None
    speedup: Annotated[float, Field(gt=0, strict=True)] | None = Field(
        None, description="output tokens/s over the baseline's"
    )
    hardware: NonEmptyStr
    engine: NonEmptyStr
    date: NonEmptyStr = Field(description="day of the measurement, YYYY-MM-DD in quotes")
    source: NonEmptyStr


class Slo(Section):
    """Limits on the latencies of a request, in seconds. A request meets the SLO if it meets all of them."""

    ttft: Annotated[float, Field(gt=0)] | None = Field(None, description="seconds to the first token")
    tpot: Annotated[float, Field(gt=0)] | None = Field(None, description="seconds per output token after the first")
    e2e: Annotated[float, Field(gt=0)] | None = Field(None, description="seconds of the whole request")
    share: Annotated[float, Field(gt=0, lt=1)] = Field(0.9, description="of the requests that must meet it")

    @model_validator(mode="after")
    def _has_a_limit(self) -> Slo:
        if not (self.ttft or self.tpot or self.e2e):
            raise ValueError("an SLO needs a limit: add `ttft`, `tpot` or `e2e`, in seconds")
        return self


class Expect(Section):
    """What `toolkit prove` and `toolkit bench` must find on a workload: a verdict each."""

    concurrency: PositiveInt = Field(1, description="requests at a time, with which all of this is expected")
    speedup: Annotated[float, Field(gt=0)] | None = Field(None, description="output tokens/s over the baseline's")
    acceptance_length: Annotated[float, Field(ge=1)] | None = Field(None, description="tokens per target step")
    slo: Slo | None = Field(None, description="limits on latencies")


class RecipeFile(Section):
    """One recipe file: a target, how to speculate, an engine, a platform."""

    name: RecipeName = Field(description="name of the endpoint; letters, digits and single hyphens")
    description: NonEmptyStr | None = None
    target: TargetSection
    speculation: SpeculationSection
    training: TrainingSection | None = Field(
        None, description="how `toolkit train` makes the head that speculation.model names"
    )
    engine: EngineSection
    container: Literal["aws-dlc", "custom"] | ContainerSection = Field(
        "aws-dlc",
        description="`aws-dlc`: AWS's image as it is, one for Trainium on SageMaker with the toolkit's "
        "entrypoint; `custom`, or its settings: one that is built on a base",
    )
    platform: PlatformSection
    scaling: ScalingSection = ScalingSection.model_construct()
    rollout: RolloutSection = RolloutSection.model_construct()
    network: NetworkSection = NetworkSection.model_construct()
    observability: ObservabilitySection = ObservabilitySection.model_construct()
    workloads: dict[RecipeName, NonEmptyStr] = Field(
        default_factory=dict,
        description="prompt sets: name to a .jsonl, .json, .csv or .parquet file, relative to the recipe",
    )
    tags: dict[NonEmptyStr, StrictStr] = Field(default_factory=dict, description="tags on everything that is made")
    evidence: list[Evidence] = Field(default_factory=list)
    unlisted: list[NonEmptyStr] = Field(
        default_factory=list,
        description="instance types, an engine version, or an image (`repository:tag`) to use though the catalogue "
        "does not know them: a warning, not an error",
    )
    expect: dict[NonEmptyStr, Expect] = Field(
        default_factory=dict, description="the least that a measurement must find, by workload"
    )

    @field_validator("name")
    @classmethod
    def _name_is_not_a_baseline(cls, name: str) -> str:
        if name.endswith("-baseline"):
            raise ValueError("names that end in `-baseline` are those of the endpoints that `--baseline` makes")
        return name


@cache
def recipe_keys() -> frozenset[str]:
    """Every key that some section of a recipe has."""
    return frozenset(_keys(json_schema()))


def _keys(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _keys(part)


def json_schema() -> dict[str, Any]:
    """The JSON schema of a recipe file, for editors; committed as recipe.schema.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RecipeFile.model_json_schema()}
