"""What a recipe file may say, whatever serves it and wherever it runs.

Platforms and engines declare further keys in folders of their own, by subclasses of these sections; `assemble` makes
one schema of all of them. Keys that depend on the pair or the engine may be left open and are filled in later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from toolkit.catalog import methods
from toolkit.catalog.methods import Method
from toolkit.recipe.section import (
    ChangesNothing,
    EngineFlag,
    FlagValue,
    ModelName,
    NonEmptyStr,
    PositiveInt,
    RecipeName,
    Section,
    left_open,
    one_of,
)
from toolkit.recipe.source import MODEL, REVISION, ModelSource, Revision
from toolkit.recipe.training_schema import TrainingSection

# Three numbers; images for Trainium add two or three of the plugin's.
Version = Annotated[StrictStr, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+){0,3}$")]
EnvironmentName = Annotated[StrictStr, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


def _with_dashes(args: dict[str, Any]) -> dict[str, Any]:
    dashed = [flag.replace("_", "-") for flag in args]
    if twice := next((flag for flag in dashed if dashed.count(flag) > 1), None):
        raise ValueError(f"`{twice}` is given twice, with `-` and with `_`")
    return dict(zip(dashed, args.values(), strict=True))


Flags = Annotated[dict[EngineFlag, FlagValue], AfterValidator(_with_dashes)]


def _without_spellings() -> list[str]:
    return [*(found.name for found in methods.methods()), methods.BASELINE]


MethodName = Annotated[
    str,
    one_of(methods.names, shown=_without_spellings),
    WithJsonSchema({"enum": list(methods.names()), "type": "string"}),
]


class TargetSection(ModelSource):
    """The model whose output the user wants."""

    accept_eula: StrictBool = Field(
        False, description="true: you have read and accept the licence of the JumpStart model"
    )


class SpeculationSection(Section):
    """How draft tokens are made. `method: none` is the baseline.

    Further keys depend on the method; `toolkit check` names those that it does not take.
    """

    method: MethodName = Field(
        description="how tokens are drafted; `mtp` also by the engine's name for one model, such as `qwen3_next_mtp`"
    )
    model: ModelName | None = Field(None, description=f"the drafter: {MODEL}")
    revision: Revision | None = Field(None, description=REVISION)
    num_speculative_tokens: PositiveInt = left_open(
        "K, draft tokens per target step; default: the method's in the catalogue"
    )

    @property
    def facts(self) -> Method:
        return methods.method(self.method)

    @property
    def drafter(self) -> ModelSource | None:
        """None where the target itself, or no model at all, makes the drafts."""
        return ModelSource.model_construct(model=self.model, revision=self.revision) if self.model else None

    @property
    def settings(self) -> dict[str, Any]:
        """The keys that its engine declares, as they are written."""
        written = self.model_fields_set - SpeculationSection.model_fields.keys()
        values = {key: getattr(self, key) for key in type(self).model_fields if key in written}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def schedule(self) -> Sequence[tuple[int, int, int]]:
        """A K by requests in a step, as (from, to, K), for those where another one is better."""
        return ()

    @property
    def own_vocabulary(self) -> bool:
        """Whether the drafter may have another vocabulary than the target."""
        return False

    @property
    def adaptive(self) -> bool:
        """Whether the engine verifies fewer drafts than K where the drafter is less sure."""
        return False

    @model_validator(mode="after")
    def _drafter_belongs_to_method(self) -> SpeculationSection:
        if self.method == methods.BASELINE:
            if len(self.model_fields_set) > 1:
                raise ValueError("method `none` drafts nothing: remove the other keys of `speculation`")
            return self
        drafter = methods.method(self.method).drafter
        if drafter == "required" and not self.model:
            message = "method `{method}` needs a drafter: add `model: <Hugging Face id or folder>`"
            raise PydanticCustomError("drafter_missing", message, {"method": self.method})
        if drafter == "none" and self.model:
            raise ValueError(f"method `{self.method}` drafts without a model: remove `model`")
        if self.revision and not self.model:
            raise ValueError("`revision` is that of a drafter: add its `model`, or remove it")
        return self


class EngineSection(Section):
    """The inference engine and its limits."""

    name: NonEmptyStr
    version: Version = left_open("engine version, three numbers; default: the newest that works with method and models")
    max_model_len: PositiveInt | None = Field(
        None, description="longest prompt + answer in tokens; default: the target's own limit"
    )
    max_num_seqs: PositiveInt = left_open("requests decoded together; default 128, on Trainium 4")
    max_num_batched_tokens: PositiveInt | None = Field(
        None, description="tokens per engine step, draft slots included; default 32768, on Trainium the engine's own"
    )
    args: Flags = Field(default_factory=dict, description="any other flag of the engine, without the leading dashes")
    env: dict[EnvironmentName, StrictStr] = Field(
        default_factory=dict, description="environment of the engine; never put a secret here"
    )
    allow: Annotated[list[NonEmptyStr], ChangesNothing] = Field(
        default_factory=list,
        description="flags of `args` and variables of `env` that you allow although they can run code, load files or "
        "open the server to others",
    )

    @property
    def compile_ahead(self) -> bool:
        """Whether an engine that compiles starts with compiled code only."""
        return True

    @field_validator("allow")
    @classmethod
    def _flags_with_dashes(cls, allow: list[str], info: ValidationInfo) -> list[str]:
        return [name if name in info.data.get("env", {}) else name.replace("_", "-") for name in allow]


class ContainerSection(Section):
    """An image of one's own: the toolkit's layer on a base. `container: custom` is this with all defaults."""

    base: Annotated[StrictStr, StringConstraints(pattern=r"^[\w.:/@-]+$", min_length=1)] | None = Field(
        None, description="image with tag or digest; default: AWS's of that engine version, else the engine's own"
    )
    python: Annotated[StrictStr, StringConstraints(pattern=r"^3\.[0-9]+$")] | None = Field(
        None, description="Python version of the base, for `wheels`; default: that of AWS's image, 3.12 for a `base`"
    )
    wheels: list[Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*==[\w.!+]+$")]] = Field(
        default_factory=list,
        description="packages to add, as name==version; what they depend on is not installed: list it too; "
        "`toolkit lock` pins their hashes",
    )
    bake_drafter: StrictBool = Field(False, description="put the drafter into the image, so that no start fetches it")
    builder: Literal["append", "docker", "buildah", "codebuild"] | None = Field(
        None,
        description="default: `append`, which needs no Docker; with `dockerfile`, whichever of the others is there",
    )
    dockerfile: NonEmptyStr | None = Field(
        None, description="file of instructions, such as RUN, to add to the Dockerfile; `append` cannot execute them"
    )
    repository: (
        Annotated[StrictStr, StringConstraints(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$", max_length=200)] | None
    ) = Field(None, description="an ECR repository of yours; default: toolkit/<name>, which is created")


class InstanceType(Section):
    """An instance type that needs settings of its own, such as another tensor parallelism."""

    type: NonEmptyStr
    args: Flags = Field(default_factory=dict, description="flags that differ from engine.args")
    num_speculative_tokens: PositiveInt | None = Field(None, description="K on this type")


class PlatformSection(Section):
    """Where the endpoint runs. Further keys depend on the platform."""

    name: NonEmptyStr
    instance_types: Annotated[list[NonEmptyStr | InstanceType], Field(min_length=1, max_length=5)] = left_open(
        "instance types, the preferred first: if one has no capacity, the next is taken; SageMaker's begin with `ml.`, "
        "a cluster's do not; default: the cheapest that fits the models"
    )
    health_check_timeout: Annotated[StrictInt, Field(ge=60, le=3600)] | None = Field(
        None,
        description="seconds that the container has to start, until it answers /ping, 60 to 3600; default: by the size "
        "of the weights",
    )
    weights: Literal["s3", "hub"] | None = Field(
        None,
        description="`s3`: copied to your account's S3 first; `hub`: each container downloads them from the hub; "
        "default: `s3`, on Kubernetes `hub`",
    )
    hub_token_secret: Annotated[StrictStr, StringConstraints(pattern=r"^[\w/+=.@:-]+$", max_length=2048)] | None = (
        Field(
            None,
            description="secret in Secrets Manager with a hub token, to copy gated models to S3; default: your own "
            "token; on Kubernetes the Secret whose key `token` the containers read",
        )
    )

    @property
    def types(self) -> tuple[str, ...]:
        """Names of the instance types."""
        return tuple(item if isinstance(item, str) else item.type for item in self.instance_types or ())

    @property
    def overrides(self) -> Mapping[str, InstanceType]:
        """Those instance types that have settings of their own."""
        return {item.type: item for item in self.instance_types or () if not isinstance(item, str)}

    def on(self, *types: str) -> Self:
        """On these instance types; one that has settings of its own keeps them."""
        return self.edit(instance_types=[self.overrides.get(name, name) for name in types])

    def rename_types(self, rename: Callable[[str], str]) -> Self:
        """With other names of the instance types."""
        renamed = {name: rename(name) for name in self.types}
        own = {name: item.edit(type=renamed[name]) for name, item in self.overrides.items()}
        return self.edit(instance_types=[own.get(name, renamed[name]) for name in self.types])


class ScalingSection(Section):
    """How many instances serve (of an inference component: how many copies)."""

    min_instances: Annotated[StrictInt, Field(ge=0)] = Field(
        1, description="0: none while there are no requests, for inference components only"
    )
    max_instances: PositiveInt = Field(1, description="above `min_instances`: autoscaling between the two")
    requests_per_instance: PositiveInt | None = Field(
        None, description="concurrent requests that autoscaling aims at; default: half of engine.max_num_seqs"
    )
    scale_in: StrictBool = Field(True, description="false: autoscaling only ever adds instances")
    scale_out_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] = Field(
        60, description="pause after instances were added, in seconds"
    )
    scale_in_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] = Field(
        600, description="pause after instances were removed, in seconds"
    )

    @model_validator(mode="after")
    def _in_order(self) -> ScalingSection:
        if self.max_instances < self.min_instances:
            raise ValueError(f"max_instances {self.max_instances} is below min_instances {self.min_instances}")
        return self


class RolloutSection(Section):
    """How a changed recipe replaces the one that serves, and how traffic is shared with the baseline."""


class NetworkSection(Section):
    """The network that containers run in, and whether they may call out at all."""


class ObservabilitySection(Section):
    """What is watched."""


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


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Slo(Section):
    """Limits on the latencies of a request, in seconds. A request meets the SLO if it meets all of them."""

    ttft: Seconds | None = Field(None, description="seconds to the first token")
    tpot: Seconds | None = Field(None, description="seconds per output token after the first")
    e2e: Seconds | None = Field(None, description="seconds of the whole request")
    share: Annotated[float, Field(gt=0, lt=1)] = Field(0.9, description="share of the requests that must meet it")

    @model_validator(mode="after")
    def _has_a_limit(self) -> Slo:
        if not (self.ttft or self.tpot or self.e2e):
            raise ValueError("an SLO needs a limit: add `ttft`, `tpot` or `e2e`, in seconds")
        return self


class Expect(Section):
    """What `toolkit prove` and `toolkit bench` must find on a workload: a verdict each."""

    concurrency: PositiveInt = Field(1, description="requests at a time that this is expected with")
    speedup: Annotated[float, Field(gt=0)] | None = Field(None, description="output tokens/s over the baseline's")
    acceptance_length: Annotated[float, Field(ge=1)] | None = Field(None, description="tokens per target step")
    slo: Slo | None = Field(None, description="limits on latencies")


class RecipeFile(Section):
    """One recipe file: a target, how to speculate, an engine, a platform."""

    name: RecipeName = Field(description="name of the endpoint; letters, digits and single hyphens")
    description: Annotated[NonEmptyStr | None, ChangesNothing] = None
    target: TargetSection
    speculation: SpeculationSection
    training: Annotated[TrainingSection | None, ChangesNothing] = Field(
        None, description="how `toolkit train` makes the head that speculation.model names"
    )
    engine: EngineSection
    container: Literal["aws-dlc", "custom"] | ContainerSection = Field(
        "aws-dlc",
        description="`aws-dlc`: AWS's image as it is, for Trainium on SageMaker with the toolkit's entrypoint added; "
        "`custom`, or settings: an image that is built on a base",
    )
    platform: PlatformSection
    scaling: ScalingSection = ScalingSection.model_construct()
    rollout: RolloutSection = RolloutSection.model_construct()
    network: NetworkSection = NetworkSection.model_construct()
    observability: ObservabilitySection = ObservabilitySection.model_construct()
    workloads: Annotated[dict[RecipeName, NonEmptyStr], ChangesNothing] = Field(
        default_factory=dict,
        description="prompt sets: name to a .jsonl, .json, .csv or .parquet file, relative to the recipe",
    )
    tags: dict[NonEmptyStr, StrictStr] = Field(default_factory=dict, description="tags on everything that is made")
    evidence: Annotated[list[Evidence], ChangesNothing] = Field(default_factory=list)
    unlisted: list[NonEmptyStr] = Field(
        default_factory=list,
        description="instance types, an engine version, or an image (`repository:tag`) that you use although the "
        "catalogue does not know them; each is then a warning, not an error",
    )
    expect: Annotated[dict[NonEmptyStr, Expect], ChangesNothing] = Field(
        default_factory=dict, description="the least that a measurement must find, by workload"
    )

    @field_validator("name")
    @classmethod
    def _name_is_not_a_baseline(cls, name: str) -> str:
        if name.endswith("-baseline"):
            raise ValueError("names that end in `-baseline` are those of the endpoints that `--baseline` makes")
        return name
