"""What a recipe file may say. Defaults that depend on the pair or the engine are filled in by `resolve`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from toolkit.catalog import methods, registry
from toolkit.recipe.cluster_schema import KubernetesSection
from toolkit.recipe.section import ModelName, NonEmptyStr, PositiveInt, Section
from toolkit.recipe.training_schema import TrainingSection

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr
FlagValue = Scalar | list[Scalar] | dict[str, Any]

LONGEST_NAME = 44
# SageMaker's EndpointName is at most 63 characters; `-baseline` and an 8-character digest must still fit.
RecipeName = Annotated[
    StrictStr, StringConstraints(pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$", min_length=1, max_length=LONGEST_NAME)
]
# Three numbers; images for Trainium add two or three of the plugin's.
Version = Annotated[StrictStr, StringConstraints(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+){0,3}$")]
# Names of kernels, types and backends, which engines add to: FLASH_ATTN, fp8_e4m3.
BackendName = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$")]
EngineFlag = Annotated[StrictStr, StringConstraints(pattern=r"^[a-z][a-z0-9]*([-_][a-z0-9]+)*$")]
EnvironmentName = Annotated[StrictStr, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


def _known_method(name: object) -> object:
    """Refuses a method that is not in the table, as pydantic does for a Literal."""
    if name in methods.names():
        return name
    allowed = [*(found.name for found in methods.methods()), methods.BASELINE]
    raise PydanticCustomError(
        "literal_error", "Input should be {expected}", {"expected": ", ".join(f"'{known}'" for known in allowed)}
    )


MethodName = Annotated[
    str, BeforeValidator(_known_method), WithJsonSchema({"enum": list(methods.names()), "type": "string"})
]

_MODEL = "Hugging Face id, s3://bucket/prefix/, jumpstart:<id>, or a folder relative to the recipe (`./…`)"
_REVISION = "commit, branch or tag on the hub; default: the commit in the lock"
Revision = Annotated[StrictStr, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./+-]*$")]
BatchSizeRange = tuple[PositiveInt, PositiveInt, Annotated[StrictInt, Field(ge=0)]]


def _known(names: Callable[[], Sequence[str]]) -> BeforeValidator:
    """Refuses what is not registered when a recipe is read, which may be more than when this module was loaded."""

    def check(name: object) -> object:
        if name not in (known := names()):
            expected = ", ".join(f"'{item}'" for item in known)
            raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})
        return name

    return BeforeValidator(check)


def _engine_enum(schema: dict[str, Any]) -> None:
    schema |= {"default": registry.default_engine(), "enum": list(registry.engines())}


def _platform_enum(schema: dict[str, Any]) -> None:
    schema["enum"] = list(registry.platforms())


EngineName = Annotated[StrictStr, _known(registry.engines), Field(json_schema_extra=_engine_enum)]
PlatformName = Annotated[StrictStr, _known(registry.platforms), Field(json_schema_extra=_platform_enum)]


class TargetSection(Section):
    """The model whose output the user wants."""

    model: ModelName = Field(description=_MODEL)
    revision: Revision | None = Field(None, description=_REVISION)
    accept_eula: StrictBool = Field(
        False, description="you have read and accept the licence that JumpStart asks for; nothing accepts it for you"
    )


class SpeculationSection(Section):
    """How draft tokens are made. `method: none` is the baseline.

    Which of the further keys a method takes stands in catalog/methods.json, and a check says so.
    """

    method: MethodName = Field(
        description="how tokens are drafted; `mtp` also by the engine's name for one model, such as `qwen3_next_mtp`"
    )
    model: ModelName | None = Field(None, description=f"the drafter: {_MODEL}")
    revision: Revision | None = Field(None, description=_REVISION)
    num_speculative_tokens: PositiveInt | None = Field(
        None, description="K, draft tokens per target step; default: the method's in the catalogue"
    )
    draft_tensor_parallel_size: PositiveInt | None = Field(
        None, description="accelerators that share the drafter: 1, or as many as the target's; default: the target's"
    )
    num_speculative_tokens_per_batch_size: list[BatchSizeRange] = Field(
        default_factory=list, description="[from, to, K] by requests in a step, both ends included; K may be 0"
    )
    attention_backend: BackendName | None = Field(
        None, description="attention backend of the drafter, such as FLASH_ATTN; default: the engine's choice"
    )
    draft_sample_method: Literal["greedy", "probabilistic"] | None = Field(
        None, description="how the drafter samples: its first choice, or from its distribution; default: greedy"
    )
    enable_adaptive_verification: StrictBool | None = Field(
        None, description="dspark: verify fewer drafts of a request where the drafter is less sure; default: all"
    )
    enforce_eager: StrictBool | None = Field(None, description="run the drafter without CUDA graphs")
    kv_cache_dtype: BackendName | None = Field(
        None, description="type of the drafter's KV cache; default: the target's"
    )
    max_model_len: PositiveInt | None = Field(
        None, description="tokens of a request up to which the drafter drafts; default: the target's limit"
    )
    moe_backend: BackendName | None = Field(None, description="kernels of the drafter's experts; default: the target's")
    quantization: BackendName | None = Field(None, description="how the drafter's weights are quantized")
    rejection_sample_method: Literal["standard", "block"] | None = Field(
        None, description="drafts are verified one by one, or as a block; default: standard"
    )
    use_heterogeneous_vocab: StrictBool | None = Field(
        None,
        description="draft-model: the drafter may have another vocabulary than the target; it drafts the tokens that "
        "both have",
    )
    prompt_lookup_min: PositiveInt | None = Field(
        None, description="ngram: shortest run of tokens that is looked up in the text so far"
    )
    prompt_lookup_max: PositiveInt | None = Field(
        None, description="ngram: longest run of tokens that is looked up in the text so far"
    )
    suffix_decoding_max_tree_depth: PositiveInt | None = Field(
        None, description="suffix: most tokens of a match and its draft together"
    )
    suffix_decoding_max_cached_requests: Annotated[StrictInt, Field(ge=0)] | None = Field(
        None, description="suffix: finished requests that are kept to draft from; 0 keeps none"
    )
    suffix_decoding_max_spec_factor: Annotated[float, Field(ge=0, strict=True)] | None = Field(
        None, description="suffix: draft tokens per token of the match, at most"
    )
    suffix_decoding_min_token_prob: Annotated[float, Field(ge=0, le=1, strict=True)] | None = Field(
        None, description="suffix: least estimated probability of a token that is drafted"
    )

    @property
    def settings(self) -> dict[str, Any]:
        """Further keys of the engine's own configuration, as they are written here."""
        return self.model_dump(include=self.model_fields_set - _SHARED_KEYS, exclude_none=True)

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

    @model_validator(mode="after")
    def _lookup_in_order(self) -> SpeculationSection:
        least, most = self.prompt_lookup_min, self.prompt_lookup_max
        if least and most and least > most:
            raise ValueError(f"prompt_lookup_min {least} is above prompt_lookup_max {most}")
        return self


_SHARED_KEYS = {
    "method",
    "model",
    "revision",
    "num_speculative_tokens",
    "draft_tensor_parallel_size",
    "num_speculative_tokens_per_batch_size",
}


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


class ComponentSection(Section):
    """An inference component: the model as a tenant of an endpoint, with copies of its own."""

    endpoint: RecipeName | None = Field(
        None, description="the endpoint it lives on; recipes that name the same one share it; default: one of its own"
    )
    accelerators: PositiveInt | None = Field(
        None, description="accelerators of one copy; default: the tensor parallelism"
    )
    memory_mib: Annotated[StrictInt, Field(ge=128)] = Field(4096, description="host memory that one copy needs, MiB")


class InstanceType(Section):
    """An instance type that needs settings of its own, such as another tensor parallelism."""

    type: NonEmptyStr
    args: dict[EngineFlag, FlagValue] = Field(default_factory=dict, description="flags that differ from engine.args")
    num_speculative_tokens: PositiveInt | None = Field(None, description="K on this type")


class PrefixRoutingSection(Section):
    """How `routing: prefix-aware` groups requests. The limits are those of SageMaker's PrefixAwareRoutingConfig."""

    prefix_length: Annotated[StrictInt, Field(ge=1024, le=65536)] = Field(
        4096, description="bytes from the start of a request that are compared; of a chat, characters of its messages"
    )
    concurrency_threshold: Annotated[StrictInt, Field(ge=1, le=1024)] | None = Field(
        None,
        description="requests in progress from which an instance is passed over; default: engine.max_num_seqs, at "
        "most 1024",
    )


class PlatformSection(Section):
    """Where the endpoint runs. `run` is the local platform's; others but the name, types and time-out SageMaker's."""

    name: PlatformName = Field(
        description="`local`: AWS rehearsed on this machine; `sagemaker`; or `kubernetes`, such as an EKS cluster"
    )
    kubernetes: KubernetesSection | None = Field(None, description="settings of `name: kubernetes`")
    run: Literal["process", "container"] = Field(
        "process",
        description="on this machine: `process` starts the engine that is installed here; `container` builds the image "
        "of `container`, on a `base` that runs here, and runs it with podman or docker",
    )
    instance_types: Annotated[list[NonEmptyStr | InstanceType], Field(min_length=1, max_length=5)] | None = Field(
        None,
        description="instance types, best first: where one has no capacity the next is taken; SageMaker's begin with "
        "`ml.`, a cluster's do not; default: the cheapest that fits the models",
    )
    health_check_timeout: Annotated[StrictInt, Field(ge=60, le=3600)] | None = Field(
        None,
        description="seconds until the container answers /ping, 60 to 3600; default: by the size of the weights",
    )
    capacity_timeout: Annotated[StrictInt, Field(ge=300, le=3600)] | None = Field(
        None,
        description="seconds until one of several `instance_types` must have capacity, for all of them together; "
        "default: 900 for each, at most 3600",
    )
    region: Annotated[StrictStr, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")] | None = Field(
        None, description="AWS region; default: your session's"
    )
    role: Annotated[StrictStr, StringConstraints(pattern=r"^(create|[\w+=,.@-]+|arn:aws[a-z-]*:iam::.+)$")] | None = (
        Field(
            None,
            description="execution role: an ARN, a name, or `create`; default: the one of Studio or the environment",
        )
    )
    weights: Literal["s3", "hub"] | None = Field(
        None,
        description="`s3`: staged in your account first; `hub`: each container fetches them from the hub itself; "
        "default: `s3`, on Kubernetes `hub`",
    )
    hub_token_secret: Annotated[StrictStr, StringConstraints(pattern=r"^[\w/+=.@:-]+$", max_length=2048)] | None = (
        Field(
            None,
            description="secret in Secrets Manager with the token that staging reads gated models with, default: "
            "yours; on Kubernetes the Secret whose key `token` the containers read",
        )
    )
    inference_component: ComponentSection | None = Field(
        None, description="serve as an inference component; write {} for one on an endpoint of its own"
    )
    routing: Literal["least-outstanding-requests", "random", "prefix-aware", "kv-aware"] = Field(
        "least-outstanding-requests", description="how requests are spread over instances"
    )
    prefix_routing: PrefixRoutingSection | None = Field(
        None, description="settings of `routing: prefix-aware`; default: those of an empty section"
    )
    capacity_reservation: (
        Annotated[StrictStr, StringConstraints(pattern=r"^arn:aws[a-z-]*:sagemaker:.+:training-plan/.+$")] | None
    ) = Field(None, description="ARN of the reserved capacity to run on, and on nothing else")
    kms_key: NonEmptyStr | None = Field(
        None, description="KMS key, id or ARN, that encrypts staged weights and the instances' volumes"
    )

    @model_validator(mode="after")
    def _prefix_routing_is_used(self) -> PlatformSection:
        if self.prefix_routing and self.routing != "prefix-aware":
            raise ValueError("`prefix_routing` has settings of prefix-aware routing: add `routing: prefix-aware`")
        return self


class ScalingSection(Section):
    """How many instances serve (of an inference component: how many copies)."""

    min_instances: Annotated[StrictInt, Field(ge=0)] = Field(
        1, description="0: none when nobody asks, for inference components only"
    )
    max_instances: PositiveInt = Field(1, description="above `min_instances`: autoscaling between the two")
    requests_per_instance: PositiveInt | None = Field(
        None, description="concurrent requests that autoscaling aims at; default: half of engine.max_num_seqs"
    )
    scale_in: StrictBool = Field(True, description="false: autoscaling only ever adds instances")
    scale_out_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] = Field(60, description="pause after adding")
    scale_in_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] = Field(600, description="pause after removing")

    @model_validator(mode="after")
    def _in_order(self) -> ScalingSection:
        if self.max_instances < self.min_instances:
            raise ValueError(f"max_instances {self.max_instances} is below min_instances {self.min_instances}")
        return self


class RolloutSection(Section):
    """How a changed recipe replaces the one that serves, and how traffic is shared with the baseline."""

    update: Literal["all-at-once", "canary", "linear", "rolling"] = Field(
        "all-at-once", description="canary: a first step, then the rest; linear and rolling: step by step"
    )
    step_percent: Annotated[StrictInt, Field(ge=5, le=50)] = Field(10, description="capacity of one step, percent")
    wait_seconds: Annotated[StrictInt, Field(ge=0, le=3600)] = Field(300, description="watching after each step")
    alarms: Annotated[list[NonEmptyStr], Field(max_length=5)] = Field(
        default_factory=list, description="CloudWatch alarms that roll an update back, besides the toolkit's own"
    )
    speculative_percent: Annotated[StrictInt, Field(ge=1, le=100)] = Field(
        100, description="below 100: the rest of the requests goes to a variant without speculation"
    )
    shadow: StrictBool = Field(
        False, description="the variant without speculation answers; the speculative one gets a copy of each request"
    )

    @model_validator(mode="after")
    def _one_experiment(self) -> RolloutSection:
        if self.shadow and self.speculative_percent != 100:
            raise ValueError("a shadow variant answers nobody: remove `speculative_percent`, or `shadow`")
        return self


class NetworkSection(Section):
    """The VPC that containers run in, and whether they may call out at all."""

    subnets: list[NonEmptyStr] = Field(default_factory=list, description="subnet ids, in at least two zones")
    security_groups: list[NonEmptyStr] = Field(default_factory=list, description="security group ids")
    isolation: StrictBool = Field(False, description="no network at all for the container; weights come from S3")
    private_registry: StrictBool = Field(False, description="images come from a registry that only the VPC reaches")

    @model_validator(mode="after")
    def _both_or_none(self) -> NetworkSection:
        if bool(self.subnets) != bool(self.security_groups):
            raise ValueError("`subnets` and `security_groups` belong together: give both, or none")
        if self.private_registry and not self.subnets:
            raise ValueError("a private registry is reached through a VPC: add `subnets` and `security_groups`")
        return self


class ObservabilitySection(Section):
    """What is watched."""

    alarms: StrictBool | None = Field(None, description="alarms on errors, latency and acceptance; default: on AWS")
    dashboard: StrictBool | None = Field(None, description="a CloudWatch dashboard; default: on AWS")
    notify: Annotated[StrictStr, StringConstraints(pattern=r"^arn:aws[a-z-]*:sns:.+$")] | None = Field(
        None, description="SNS topic that alarms are sent to"
    )
    metrics_seconds: Literal[10, 30, 60, 120, 180, 240, 300] = Field(
        60, description="how often the container's own metrics go to CloudWatch"
    )
    data_capture_percent: Annotated[StrictInt, Field(ge=0, le=100)] = Field(
        0, description="requests and answers that are kept in the toolkit's bucket"
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
