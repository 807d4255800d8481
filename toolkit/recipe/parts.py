"""The parts of a complete recipe: how tokens are drafted, the engine, and where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.catalog import methods
from toolkit.catalog.methods import Method
from toolkit.recipe.cluster_schema import KubernetesSection
from toolkit.recipe.platform_schema import ComponentSection, InstanceType, PrefixRoutingSection
from toolkit.recipe.source import ModelSource


@dataclass(frozen=True)
class Speculation:
    """How draft tokens are made. `num_speculative_tokens` is K, draft tokens per target step.

    `drafter` is None where the target itself, or no model at all, makes them. `schedule` has a K by requests in a step,
    as (from, to, K), for those where another one is better; `tensor_parallel` is the drafter's, None for the target's.
    `settings` are further keys of the engine's own configuration. With `synthetic_acceptance_length` the engine accepts
    drafts by chance, that many tokens a step on average: answers are garbage at the speed of such a drafter. No recipe
    file can say that, only a measurement.
    """

    method: str
    drafter: ModelSource | None
    num_speculative_tokens: int
    schedule: tuple[tuple[int, int, int], ...] = ()
    tensor_parallel: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    synthetic_acceptance_length: float | None = None

    @property
    def facts(self) -> Method:
        return methods.method(self.method)

    @property
    def own_vocabulary(self) -> bool:
        """Whether the drafter may have another vocabulary than the target."""
        return bool(self.settings.get("use_heterogeneous_vocab"))

    @property
    def adaptive(self) -> bool:
        """Whether the engine verifies fewer drafts than K where the drafter is less sure."""
        return bool(self.settings.get("enable_adaptive_verification"))

    def to_dict(self) -> dict[str, Any]:
        """The keys of a recipe's `speculation`."""
        drafter = {"model": str(self.drafter)} if self.drafter else {}
        k = {"num_speculative_tokens": self.num_speculative_tokens}
        return {"method": self.method, **drafter, **k, **self.settings}


@dataclass(frozen=True)
class Engine:
    """The engine with its limits in tokens and requests.

    `max_model_len` None leaves it to the target's own limit, `max_num_batched_tokens` None to the engine.
    `compile_ahead` says whether an engine that compiles (Trainium) starts with compiled artifacts only. `allow` names
    the flags, with dashes, and variables whose risk the recipe's author takes.
    """

    name: str
    version: str
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int | None
    args: Mapping[str, Any]
    env: Mapping[str, str]
    compile_ahead: bool = True
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlatformSettings:
    """Where a recipe runs, and how. Time-outs are in seconds; `lock.pinned` fills in those that are None.

    `overrides` has the settings of those instance types that need their own. `region` None is the session's, `role`
    None is looked for, `component` None is a plain endpoint. `kubernetes` is there where the platform is. With
    `one_data_source` target, drafter and settings are folders of one S3 prefix, for CloudFormation.
    """

    name: str
    instance_types: tuple[str, ...]
    overrides: Mapping[str, InstanceType] = field(default_factory=dict)
    health_check_timeout: int | None = None
    download_timeout: int | None = None
    capacity_timeout: int | None = None
    region: str | None = None
    role: str | None = None
    run: str = "process"
    weights: str | None = "s3"
    hub_token_secret: str | None = None
    component: ComponentSection | None = None
    kubernetes: KubernetesSection | None = None
    routing: str = "least-outstanding-requests"
    prefix_routing: PrefixRoutingSection | None = None
    capacity_reservation: str | None = None
    kms_key: str | None = None
    one_data_source: bool = False
