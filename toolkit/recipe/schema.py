"""What a recipe file may say. Defaults that depend on the pair or the engine are filled in by `resolve`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    field_validator,
    model_validator,
)

PositiveInt = Annotated[StrictInt, Field(gt=0)]
NonEmptyStr = Annotated[StrictStr, StringConstraints(min_length=1)]
Scalar = StrictBool | StrictInt | StrictFloat | StrictStr

# SageMaker's EndpointName is at most 63 characters; `-baseline` and an 8-character digest must still fit.
RecipeName = Annotated[
    StrictStr, StringConstraints(pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$", min_length=1, max_length=44)
]
Version = Annotated[StrictStr, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
# A hub id, a folder, s3://bucket/prefix/ or jumpstart:<id>; other schemes are typing errors.
ModelName = Annotated[
    StrictStr, StringConstraints(pattern=r"^(s3://[^/]+/.+|jumpstart:[a-z0-9-]+|[^:]+)$", min_length=1)
]
EngineFlag = Annotated[StrictStr, StringConstraints(pattern=r"^[a-z][a-z0-9]*([-_][a-z0-9]+)*$")]
EnvironmentName = Annotated[StrictStr, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]

_MODEL = "Hugging Face id, s3://bucket/prefix/, jumpstart:<id>, or a folder relative to the recipe (`./…`)"
_REVISION = "commit, branch or tag on the hub; default: the commit in the lock"
BatchSizeRange = tuple[PositiveInt, PositiveInt, Annotated[StrictInt, Field(ge=0)]]


class Section(BaseModel):
    """A mapping of the recipe: unknown keys are errors, so that a typo never passes as a default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetSection(Section):
    """The model whose output the user wants."""

    model: ModelName = Field(description=_MODEL)
    revision: NonEmptyStr | None = Field(None, description=_REVISION)


class SpeculationSection(Section):
    """How draft tokens are made. `method: none` is the baseline."""

    method: Literal["p-eagle", "eagle3", "draft-model", "pard", "dflash", "none"] = Field(
        description="how tokens are drafted"
    )
    model: ModelName | None = Field(None, description=f"the drafter: {_MODEL}")
    revision: NonEmptyStr | None = Field(None, description=_REVISION)
    num_speculative_tokens: PositiveInt | None = Field(
        None, description="K, draft tokens per target step; default: the method's in the catalogue"
    )
    draft_tensor_parallel_size: PositiveInt | None = Field(
        None, description="accelerators that share the drafter: 1, or as many as the target's; default: the target's"
    )
    num_speculative_tokens_per_batch_size: list[BatchSizeRange] = Field(
        default_factory=list, description="[from, to, K] by requests in a step, both ends included; K may be 0"
    )

    @model_validator(mode="after")
    def _drafter_belongs_to_method(self) -> SpeculationSection:
        if self.method == "none" and len(self.model_fields_set) > 1:
            raise ValueError("method `none` drafts nothing: remove the other keys of `speculation`")
        if self.method != "none" and not self.model:
            raise ValueError(f"method `{self.method}` needs a drafter: add `model: <Hugging Face id or folder>`")
        return self


class EngineSection(Section):
    """The inference engine and its limits."""

    name: Literal["vllm"] = "vllm"
    version: Version = Field(description="engine version, three numbers")
    max_model_len: PositiveInt | None = Field(
        None, description="longest prompt + answer in tokens; default: the target's own limit"
    )
    max_num_seqs: PositiveInt | None = Field(None, description="requests decoded together; default 128")
    max_num_batched_tokens: PositiveInt | None = Field(
        None, description="tokens per engine step, draft slots included; default 32768"
    )
    args: dict[EngineFlag, Scalar | list[Scalar] | dict[str, Any]] = Field(
        default_factory=dict, description="any other flag of the engine, without the leading dashes"
    )
    env: dict[EnvironmentName, StrictStr] = Field(
        default_factory=dict, description="environment of the engine; never put a secret here"
    )

    @field_validator("args")
    @classmethod
    def _flags_differ(cls, args: dict[str, Any]) -> dict[str, Any]:
        dashed = [flag.replace("_", "-") for flag in args]
        if twice := next((flag for flag in dashed if dashed.count(flag) > 1), None):
            raise ValueError(f"`{twice}` is given twice, with `-` and with `_`")
        return args


class PlatformSection(Section):
    """Where the endpoint runs."""

    name: Literal["local", "sagemaker"] = Field(description="`local`: AWS rehearsed on this machine; or `sagemaker`")
    instance_types: Annotated[list[NonEmptyStr], Field(min_length=1)] = Field(
        default=["ml.m7i.large"], description="SageMaker instance types, best first"
    )
    health_check_timeout: Annotated[StrictInt, Field(ge=60, le=3600)] = Field(
        600, description="seconds the container may take until it answers /ping (SageMaker: 60 to 3600)"
    )


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


class RecipeFile(Section):
    """One recipe file: a target, how to speculate, an engine, a platform."""

    name: RecipeName = Field(description="name of the endpoint; letters, digits and single hyphens")
    description: NonEmptyStr | None = None
    target: TargetSection
    speculation: SpeculationSection
    engine: EngineSection
    platform: PlatformSection
    workloads: dict[RecipeName, NonEmptyStr] = Field(
        default_factory=dict, description='prompt sets: name to a .jsonl file of {"prompt": …}, relative to the recipe'
    )
    tags: dict[NonEmptyStr, StrictStr] = Field(default_factory=dict, description="tags on everything that is made")
    evidence: list[Evidence] = Field(default_factory=list)

    @field_validator("name")
    @classmethod
    def _name_is_not_a_baseline(cls, name: str) -> str:
        if name.endswith("-baseline"):
            raise ValueError("names that end in `-baseline` are those of the endpoints that `--baseline` makes")
        return name


def json_schema() -> dict[str, Any]:
    """The JSON schema of a recipe file, for editors; committed as recipe.schema.json."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **RecipeFile.model_json_schema()}
