"""What engines and platforms answer, and those of their parts that are not asked about a recipe (`recipe.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from toolkit.findings import Finding


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


Ask = bool | Literal["deep"]
"""Whether the engine itself is asked now; `deep` fetches the recipe's version of it, where another one is installed."""


@dataclass(frozen=True)
class Rank:
    """One of the nodes that run an engine together. `number` and `leader`, the address of the one that answers, are
    texts that its platform fills in.
    """

    nodes: int
    number: str
    leader: str
    leads: bool


@dataclass(frozen=True)
class EngineAnswer:
    """What an engine itself says of a recipe.

    `name` is the engine with its version. Where it was not asked, `why_not` says why, `can_be_asked` whether it could
    be, and `can_be_fetched` whether it could be fetched for that.
    """

    name: str
    findings: tuple[Finding, ...] = ()
    why_not: str = ""
    can_be_asked: bool = False
    can_be_fetched: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the document of `toolkit check --json`."""
        return {"name": self.name, "asked": not self.why_not, "why_not": self.why_not}


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
        """The metric that a pod autoscaler reads without KEDA: running plus waiting requests, which an adapter for
        Prometheus adds up. (Running requests alone never exceed `max_num_seqs`.)
        """
        return f"{self.prefix.replace(':', '_')}requests_in_flight"


class CpuBuild(Protocol):
    """An engine's build for CPUs, which the local platform can start. `package` is its name in the package index.

    `spare` is a program that imports what a server does, and waits until it is told what to serve: it is given the
    image's own program and a socket, as in `engines/vllm/spare.py`. Without one, every start is a fresh one.
    `spare_variables` are beginnings of names of variables that may wait in it: none of them is a secret, unless it
    looks like one.
    """

    package: str
    spare: Path | None = None
    spare_variables: Sequence[str] = ()

    def variables(
        self, given: Collection[str], free_bytes: int, cpu_features: Collection[str], cores: int
    ) -> dict[str, str]:
        """Environment for a machine without an accelerator, for settings that the `given` variables leave open."""

    def reserved_bytes(self, args: Mapping[str, Any]) -> int:
        """Memory that flags of the recipe reserve for the KV cache; 0 where it is chosen by what is free."""

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
        """What to add to a request for a completion, so that the answer says how probable its own tokens were."""

    def decoded(self, answer: Mapping[str, Any]) -> Sequence[Decoded]:
        """Each token that such an answer has."""


class Disk(NamedTuple):
    """The disk of a training job. `name` is what messages call it, `path` the recipe's key, `more` how to get more.

    An `empty` one must hold the target, too.
    """

    name: str
    free_bytes: int
    path: str
    more: str
    empty: bool
